"""Soak and load: does memory stay flat, and does every client get its own result?

    python benchmarks/soak.py [BUNDLE ...] [--out soak.png] [--json FILE]          about ten minutes a bundle on two cores

completions   2,000 photos, one after the other
cycles        a model opened, used once and closed, 200 times
threads       16 threads on one completer, 2,000 results, each compared with the one that a single thread computed
closing       `close()` while four threads sample, 70 times: each must end with `Closed`, and with nothing else
studio        100 requests at once on four scenes, 12 times, each compared with the answer that it gets alone

Each runs in a process of its own; the studio in another one, whose memory is what is measured. Drift is the mean of the last quarter of a
curve minus that of the second, so that what is filled once (arenas, caches, thread pools) does not count.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from PIL import Image

from picme_sdk.completer import Completer, shipped_bundle
from picme_sdk.errors import Closed

ROOT = Path(__file__).resolve().parents[1]
SEEDS = 25  # different results that are requested repeatedly
SCENES = 4


@dataclass(frozen=True)
class Soak:
    """The outcome of one run."""

    name: str
    count: int  # of operations
    wrong: int  # results that belong to another call, or differ from a single thread's
    lost: int  # calls that ended in an unexpected way
    seconds: float
    curve: list[float]  # megabytes in memory
    files: int = 0  # open at the end, compared with the start

    @property
    def drift(self) -> float:
        quarter = len(self.curve) // 4
        return float(np.mean(self.curve[-quarter:]) - np.mean(self.curve[quarter : 2 * quarter]))


def resident(process: int | str = "self") -> float:
    """Megabytes that a process has in memory; garbage is not collected first, as in production."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def scene(number: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A photo of its own for each number, and its hole."""
    image = np.random.default_rng(number).integers(0, 256, (size, size, 3), np.uint8)
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size // 2, size // 4 : size // 2] = 255
    return image, mask


def completions(bundle: Path, count: int) -> Soak:
    curve, start = [], time.perf_counter()
    with Completer(bundle, "cpu", 2) as completer:
        photos = [scene(number, completer.manifest.image_size) for number in range(SCENES)]
        for i in range(count):
            completer.complete(*photos[i % SCENES], n=1, seed=i)[0].image  # noqa: B018 (composes)
            if i % max(1, count // 100) == 0:
                curve.append(resident())
    return Soak("completions", count, 0, 0, time.perf_counter() - start, curve)


def cycles(bundle: Path, count: int) -> Soak:
    curve, start, before = [], time.perf_counter(), 0
    for i in range(count):
        with Completer(bundle, "cpu", 2) as completer:
            completer.complete(*scene(0, completer.manifest.image_size), n=1, seed=i)
        curve.append(resident())
        if i == 0:
            before = len(os.listdir("/proc/self/fd"))
    files = len(os.listdir("/proc/self/fd")) - before
    return Soak("cycles", count, 0, 0, time.perf_counter() - start, curve, files)


def threads(bundle: Path, count: int) -> Soak:
    curve: list[float] = []
    with Completer(bundle, "cpu", 2) as completer:
        photos = [scene(number, completer.manifest.image_size) for number in range(SCENES)]
        scenes = [completer.encode(*photo) for photo in photos]
        expected = {(s, i): scenes[s].sample(1, i)[0].image.tobytes() for s in range(SCENES) for i in range(SEEDS)}
        wrong: list[int] = []  # lists, because threads lose counts
        lost: list[int] = []

        def work(job: int) -> None:
            which, seed = job % SCENES, job // SCENES % SEEDS
            try:
                own = completer.encode(*photos[which]) if job % 5 == 0 else scenes[which]
                same = own.sample(1, seed)[0].image.tobytes() == expected[which, seed]
                if not same:
                    wrong.append(job)
            except Exception:
                lost.append(job)
            if job % max(1, count // 100) == 0:
                curve.append(resident())

        start = time.perf_counter()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(count)))
    return Soak("threads", count, len(wrong), len(lost), time.perf_counter() - start, curve)


def closing(bundle: Path, count: int) -> Soak:
    curve, ends, start = [], [], time.perf_counter()

    def work(completer: Completer, photo: tuple[np.ndarray, np.ndarray], begun: threading.Event) -> None:
        try:
            own = completer.encode(*photo)
            for i in range(1_000_000):
                own.sample(2, i)
                begun.set()
        except Closed:
            ends.append("closed")
        except Exception as error:
            ends.append(repr(error))

    for _ in range(count):
        completer, begun = Completer(bundle, "cpu", 2), threading.Event()
        photo = scene(0, completer.manifest.image_size)
        workers = [threading.Thread(target=work, args=(completer, photo, begun)) for _ in range(4)]
        for worker in workers:
            worker.start()
        begun.wait(60)
        completer.close()
        for worker in workers:
            worker.join(60)
        curve.append(resident())
    lost = 4 * count - ends.count("closed")
    return Soak("closing", count, 0, lost, time.perf_counter() - start, curve)


class StudioClient:
    """`picme studio` in a process of its own."""

    def __init__(self, bundle: Path) -> None:
        command = [sys.executable, "-m", "picme_sdk.cli", "studio", "--no-browser", "--bundle", str(bundle.resolve())]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603
        address = self.process.stdout.readline() if self.process.stdout else ""
        self.place, self.token = address.strip().removeprefix("http://").split("/#token=")

    def post(self, path: str, asked: object) -> bytes:
        """The answer; a request that is refused with 429 is repeated until it is served."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        for _ in range(10_000):
            link = http.client.HTTPConnection(self.place, timeout=120)
            try:
                link.request("POST", path, json.dumps(asked), headers)
                response = link.getresponse()
                body = response.read()
            finally:
                link.close()
            if response.status not in (429, 503):
                if response.status not in (200, 201):
                    raise OSError(f"{path}: {response.status} {body[:200]!r}")
                return body
            time.sleep(np.random.default_rng().uniform(0.02, 0.2))
        raise OSError("never served")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def studio(bundle: Path, count: int) -> Soak:
    size = json.loads((bundle / "picme.json").read_bytes())["image_size"]
    client, curve, wrong, lost = StudioClient(bundle), [], 0, 0
    try:
        handles = []
        for number in range(SCENES):
            texts = []
            for picture in scene(number, size):
                stream = io.BytesIO()
                Image.fromarray(picture).save(stream, "PNG")
                texts.append(base64.b64encode(stream.getvalue()).decode())
            handles.append(
                json.loads(client.post("/api/scenes", dict(zip(("photo", "mask"), texts, strict=True))))["id"]
            )

        def ask(job: tuple[int, int]) -> list[tuple[str, str]]:
            body = client.post(f"/api/scenes/{handles[job[0]]}/samples", {"n": 2, "seed": job[1]})
            return [(line["token"], line["preview"]) for line in map(json.loads, body.splitlines())]

        jobs = [(which, seed) for which in range(SCENES) for seed in range(SEEDS)]
        expected = {job: ask(job) for job in jobs}
        start = time.perf_counter()
        for _ in range(count):
            with ThreadPoolExecutor(len(jobs)) as pool:
                for job, future in [(job, pool.submit(ask, job)) for job in jobs]:
                    try:
                        wrong += future.result() != expected[job]
                    except Exception:
                        lost += 1
            curve.append(resident(client.process.pid))
        seconds = time.perf_counter() - start
    finally:
        client.stop()
    return Soak("studio", count * len(jobs), wrong, lost, seconds, curve)


RUNS: tuple[tuple[Callable[[Path, int], Soak], int], ...] = (
    (completions, 2000), (cycles, 200), (threads, 2000), (closing, 70), (studio, 12),
)  # fmt: skip


def soak(bundle: Path, share: float) -> list[Soak]:
    """All runs, each in a fresh process; `share` of the full length."""
    runs = []
    for run, count in RUNS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            runs.append(pool.submit(run, bundle, max(4, round(count * share))).result())
        print(row(bundle.name, runs[-1]), flush=True)
    return runs


def row(bundle: str, run: Soak) -> str:
    least, most = min(run.curve), max(run.curve)
    return (
        f"| {bundle} | {run.name} | {run.count:,} | {run.wrong} | {run.lost} | {least:.1f} to {most:.1f} |"
        f" {run.drift:+.2f} | {run.files} | {run.seconds:.0f} |"
    )


def plot(runs_by_bundle: dict[str, list[Soak]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(runs_by_bundle), len(RUNS), figsize=(3 * len(RUNS), 2.6 * len(runs_by_bundle)), squeeze=False
    )
    for line, (bundle, runs) in zip(axes, runs_by_bundle.items(), strict=True):
        for axis, run in zip(line, runs, strict=True):
            axis.plot(np.linspace(0, run.count, len(run.curve)), run.curve, linewidth=1.2)
            axis.set_ylim(0, 1.25 * max(run.curve))
            axis.set_title(f"{bundle}: {run.name}", fontsize=9)
            axis.tick_params(labelsize=7)
        line[0].set_ylabel("MB in memory", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="soak and load")
    parser.add_argument("bundles", type=Path, nargs="*", help="folders (the model that ships)")
    parser.add_argument("--share", type=float, default=1.0, help="of the full length (1)")
    parser.add_argument("--out", type=Path, help="write the curves of memory to a PNG")
    parser.add_argument("--json", type=Path, help="write the numbers to a file, too")
    options = parser.parse_args()
    print("| bundle | run | count | wrong | lost | MB in memory | drift MB | files left open | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    runs_by_bundle: dict[str, list[Soak]] = {}
    for bundle in options.bundles or [shipped_bundle()]:
        runs_by_bundle[bundle.name] = soak(bundle, options.share)
    if options.out:
        plot(runs_by_bundle, options.out)
    if options.json:
        report: dict[str, Any] = {name: [asdict(run) for run in runs] for name, runs in runs_by_bundle.items()}
        options.json.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
