"""Faults on demand: a piece of work is done in forked children, each of which dies, or finds the disk full, at another moment.

    python -m tests.attacks.faults FOLDER BUNDLE CHECKPOINT        prints one line of JSON

killed at event k   SIGKILL just before the k-th time that Python opens a file for writing, renames or removes one (an audit hook)
killed at byte k    RLIMIT_FSIZE with SIGXFSZ's default action: the kernel ends the process at byte k of any file, whoever writes it
full at byte k      the same limit with the signal ignored, as Python does: the write fails as it does on a full disk
race                four children at once

After each child the parent looks: what is there must be the old thing or the new one, whole, and a clean error must leave nothing behind.
The parent has one thread and has opened no model, so that forking is safe.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np
import onnxruntime  # noqa: F401 (before the forks: loading takes longer than the work)
from PIL import Image

from export.write import write_bundle
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import Manifest
from picme_sdk.cli import main
from picme_sdk.errors import CheckpointError, ExportError, PicmeError
from tests.vectors.make import photo as formula
from training.checkpoint import Progress, load_weights, save_weights

CLEAN = (PicmeError, ExportError, CheckpointError, OSError)
EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "ctypes.dlsym"}
BYTES = (0, 1, 300, 2_000, 9_000, 30_000)
DONE, REFUSED, BROKEN = 0, 3, 4


@dataclass(frozen=True)
class Work:
    """Something that replaces an old thing by a new one. `state` says which is there, and raises for half of one."""

    prepare: Callable[[Path], None]
    do: Callable[[Path], object]
    state: Callable[[Path], str]
    names: frozenset[str]  # what may be in the folder afterwards


def child(work: Callable[[], object], before: Callable[[], None]) -> int:
    """Run in a child; its exit code, or minus the signal that ended it."""
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        code = BROKEN
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2) if "-v" not in sys.argv else None
            before()
            code = DONE if work() in (0, None) else REFUSED
        except CLEAN:
            code = REFUSED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def kill_at_event(wanted: int) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in EVENTS:
            seen += 1
            if seen == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def limit(size: int, action: signal.Handlers) -> None:
    signal.signal(signal.SIGXFSZ, action)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def try_all(work: Work, base: Path) -> dict[str, dict[str, int]]:
    """Every fault, each in a folder of its own."""
    found: dict[str, Counter[str]] = {"killed": Counter(), "full": Counter()}

    def once(kind: str, before: Callable[[], None], ends: set[int]) -> int:
        folder = base / "work"
        folder.mkdir()
        work.prepare(folder)
        code = child(lambda: work.do(folder), before)
        if code not in ends:
            raise SystemExit(f"{work} ended with {code} when {kind}")
        left = {path.name for path in folder.iterdir()} - work.names
        if kind == "full" and left:
            raise SystemExit(f"{work} left {left} on a full disk")
        if not all(name.startswith(".") for name in left):
            raise SystemExit(f"{work} left {left} when killed")
        found[kind][work.state(folder)] += 1
        shutil.rmtree(folder)
        return code

    event = 1
    while once("killed", lambda at=event: kill_at_event(at), {-signal.SIGKILL, DONE}) != DONE:  # type: ignore[misc]
        event += 1
    for size in BYTES:
        once("killed", lambda at=size: limit(at, signal.SIG_DFL), {-signal.SIGXFSZ, DONE})  # type: ignore[misc]
        once("full", lambda at=size: limit(at, signal.SIG_IGN), {REFUSED, DONE})  # type: ignore[misc]
    return {kind: dict(states) for kind, states in found.items()} | {"events": {"all": event}}


def race(work: Callable[[int], object]) -> list[int]:
    """Exit codes of four children that start together."""
    reading, writing = os.pipe()
    numbers = []
    for i in range(4):
        number = os.fork()
        if number == 0:
            os.close(writing)
            os.read(reading, 1)  # returns when the parent closes its end
            try:
                work(i)
                os._exit(DONE)
            except CLEAN:
                os._exit(REFUSED)
            finally:
                os._exit(BROKEN)
        numbers.append(number)
    os.close(writing)
    os.close(reading)
    return [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]


# ---- What is tried -----------------------------------------------------------------------------------------------------------


def plain(source: Bundle) -> tuple[Manifest, dict[str, bytes]]:
    """The float32 graphs alone."""
    graphs = tuple(graph for graph in source.manifest.graphs if graph.precision == "float32")
    return replace(source.manifest, graphs=graphs, engines=(), files=()), {g.file: source.read(g) for g in graphs}


def bundle_work(source: Bundle, name: str) -> Work:
    manifest, contents = plain(source)

    def write(folder: Path, which: str, force: bool = True) -> None:
        write_bundle(folder / name, replace(manifest, licence=which), contents, {"report.md": b"x" * 5000}, force)

    def state(folder: Path) -> str:
        bundle = Bundle(folder / name)
        bundle.verify()
        return bundle.manifest.licence

    return Work(lambda folder: write(folder, "old"), lambda folder: write(folder, "new"), state, frozenset({name}))


def checkpoint_work(path: Path) -> Work:
    model, config, _ = load_weights(path)

    def save(folder: Path, images: int) -> None:
        save_weights(folder / "last.safetensors", model, config, config.model.image_size, Progress(images), {})

    def state(folder: Path) -> str:
        json.loads((folder / "last.json").read_text())
        return {1: "old", 2: "new"}[load_weights(folder / "last.safetensors")[2]["progress"]["images"]]

    names = frozenset({"last.safetensors", "last.json"})
    return Work(lambda folder: save(folder, 1), lambda folder: save(folder, 2), state, names)


def picture(path: Path) -> str:
    """The token of a PNG that can be decoded whole."""
    with Image.open(path) as opened:
        opened.load()
        return str(opened.info["picme-token"])


def complete_work(base: Path, bundle: Path) -> Work:
    common = [
        "complete",
        str(base / "photos/a.png"),
        str(base / "mask.png"),
        "--bundle",
        str(bundle),
        "-n",
        "1",
        "--force",
    ]

    def run(folder: Path, seed: int) -> int:
        return main([*common, "--seed", str(seed), "--threads", "1", "-o", str(folder / "out.png")])

    olds = {}
    for seed in (1, 2):
        child(lambda seed=seed: run(base / "tokens", seed), lambda: None)  # type: ignore[misc]
        olds[seed] = picture(base / "tokens/out.png")
        shutil.copy(base / "tokens/out.png", base / f"{seed}.png")

    def state(folder: Path) -> str:
        return {olds[1]: "old", olds[2]: "new"}[picture(folder / "out.png")]

    def prepare(folder: Path) -> None:
        shutil.copy(base / "1.png", folder / "out.png")

    return Work(prepare, lambda folder: run(folder, 2), state, frozenset({"out.png"}))


def batch_work(base: Path, bundle: Path) -> Work:
    """Nothing is there before; afterwards every picture is whole, and so is the report if there is one."""

    def run(folder: Path) -> int:
        mask, report = str(base / "mask.png"), str(folder / "report.json")
        return main(["batch", str(base / "photos"), "--mask", mask, "--bundle", str(bundle), "--threads", "1", "-o", str(folder), "--json", report])  # fmt: skip

    def state(folder: Path) -> str:
        shown = [path for path in folder.iterdir() if not path.name.startswith(".")]
        for path in shown:
            picture(path) if path.suffix == ".png" else json.loads(path.read_text())
        return "new" if folder / "report.json" in shown else "old"

    names = frozenset({"a.png-1.png", "b.png-1.png", "report.json"})
    return Work(lambda folder: None, run, state, names)


def video(path: Path, frames: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 48, 40, "yuv420p"
        for i in range(frames):
            pixels = np.ascontiguousarray(np.roll(formula(48, 40), i, 1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode(None))


def video_work(base: Path, bundle: Path) -> Work:
    child(lambda: video(base / "in.mp4", 4), lambda: None)
    child(lambda: video(base / "old.mp4", 2), lambda: None)

    def run(folder: Path) -> int:
        return main(["video", str(base / "in.mp4"), str(folder / "out.mp4"), "--mask", str(base / "frame.png"), "--bundle", str(bundle), "--threads", "1", "--force"])  # fmt: skip

    def state(folder: Path) -> str:
        with av.open(str(folder / "out.mp4")) as container:
            return {2: "old", 4: "new"}[sum(1 for _ in container.decode(video=0))]

    def prepare(folder: Path) -> None:
        shutil.copy(base / "old.mp4", folder / "out.mp4")

    return Work(prepare, run, state, frozenset({"out.mp4"}))


def everything(base: Path, bundle: Path, checkpoint: Path) -> dict[str, object]:
    (base / "photos").mkdir()
    (base / "tokens").mkdir()
    for name, size in (("photos/a", (64, 48)), ("photos/b", (50, 40))):
        Image.fromarray(formula(*size)).save(base / f"{name}.png")
    for name, (width, height) in (("mask", (64, 48)), ("frame", (48, 40))):
        mask = np.zeros((height, width), np.uint8)
        mask[16:32, 10:30] = 255
        Image.fromarray(mask).save(base / f"{name}.png")
    Image.fromarray(formula(64, 48)).save(base / "photos/b.png")
    source = Bundle(bundle)
    works = {
        "bundle": bundle_work(source, "b"),
        "bundle file": bundle_work(source, "b.picme"),
        "checkpoint": checkpoint_work(checkpoint),
        "complete": complete_work(base, bundle),
        "batch": batch_work(base, bundle),
        "video": video_work(base, bundle),
    }
    found: dict[str, object] = {name: try_all(work, base) for name, work in works.items()}
    manifest, contents = plain(source)
    for name in ("bundle", "bundle file"):
        work, at = works[name], base / f"race {name}"
        at.mkdir()
        (path,) = work.names

        def write(i: int, out: Path = at / path) -> None:
            write_bundle(out, replace(manifest, licence=str(i)), contents, {}, False)

        codes = race(write)
        found[f"race {name}"] = {"codes": codes, "winner": work.state(at), "left": sorted(os.listdir(at))}
    return found


if __name__ == "__main__":
    os.fsync = lambda file: None  # a killed process loses nothing that it wrote, and this takes most of the time
    sys.stdout.write(json.dumps(everything(*(Path(argument) for argument in sys.argv[1:4]))))
