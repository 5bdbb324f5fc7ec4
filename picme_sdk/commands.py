"""What each `picme` command does. A command returns its exit code; expected faults are `PicmeError`s, which cli.py prints."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from picme_sdk.errors import BadArgument, FileExists
from picme_sdk.files import replacing

HOLE = (120, 70, 200, 150)  # of the demo's photo: one eye, but for its inner corner


def open_completer(options: argparse.Namespace) -> Any:
    from picme_sdk.completer import Completer

    return Completer(options.bundle, options.device, options.threads, options.precision)


def free(path: Path, force: bool) -> Path:
    if path.exists() and not force:
        raise FileExists(f"{path} exists", "a new name", "choose another, or --force to replace it")
    return path


def check_sampling(options: argparse.Namespace) -> None:
    """Before any work: a list of a billion names would take all memory, and no results are no reason to skip a photo."""
    from picme_sdk.sampling import check_arguments

    check_arguments(options.n, options.seed or 0, options.strategy, None, options.temperature, 1)


def complete(options: argparse.Namespace) -> int:
    """One photo. OUT is a folder for one PNG a result, or a PNG: the result if there is one, else a contact sheet."""
    from PIL import Image

    from picme_sdk.imaging import load, png_bytes, save_png
    from picme_sdk.masks import load_mask
    from picme_sdk.sheet import results_sheet

    check_sampling(options)
    out = options.out
    single = out == "-" or out.lower().endswith(".png")
    targets = [Path(out)] if single else [Path(out) / f"{_stem(options.photo)}-{i + 1}.png" for i in range(options.n)]
    if out != "-":
        for target in targets:
            free(target, options.force)
    source: Any = sys.stdin.buffer.read() if options.photo == "-" else options.photo
    photo = load(source)
    mask = None if options.mask in (None, "alpha") else options.mask
    with open_completer(options) as completer:
        scene = completer.encode(photo.pixels, mask, context=options.context)
        results = scene.sample(options.n, options.seed, options.strategy, options.primitive, options.temperature)
        if single and options.n > 1:
            hole = load_mask(mask, photo)
            shown = Image.new("L", photo.size)
            shown.paste(Image.fromarray(hole.values), hole.box[:2])
            assert isinstance(photo.pixels, Image.Image)  # noqa: S101 (from a path or bytes)
            pictures = [(results_sheet(photo.pixels, shown, results), None)]
        else:
            pictures = [(result.image, result.token) for result in results]
        if out == "-":
            sys.stdout.buffer.write(png_bytes(pictures[0][0]))
        else:
            targets[0].parent.mkdir(parents=True, exist_ok=True)
            for target, (picture, token) in zip(targets, pictures, strict=True):
                save_png(picture, target, token)
        lines = [
            {"primitive": r.primitive, "weight": r.weight, "log_prob": r.log_prob, "token": r.token, "decode_ms": r.timings.decode_ms}
            for r in results
        ]  # fmt: skip
        report = {
            "backend": completer.backend, "device": completer.device, "encode_ms": scene.encode_ms, "ambiguity": scene.ambiguity,
            "files": [str(t) for t in targets] if out != "-" else [], "results": lines,
        }  # fmt: skip
    to = sys.stderr if out == "-" else sys.stdout
    if options.json:
        print(json.dumps(report), file=to)
    else:
        for number, line in enumerate(lines, 1):
            print(
                f"{number}: primitive {line['primitive']}, weight {line['weight']:.2f}, log-probability {line['log_prob']:.1f}, {line['token']}",
                file=to,
            )
        for target in targets if out != "-" else []:
            print(target, file=to)
    return 0


def _stem(photo: str) -> str:
    return "photo" if photo == "-" else Path(photo).stem


@contextmanager
def progress(total: int | None) -> Iterator[Callable[..., None]]:
    """A progress bar where rich is installed and somebody looks; silence elsewhere."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda text, total=None: None
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, total=None: bar.update(task, advance=1, description=text, total=total)


def batch(options: argparse.Namespace) -> int:
    """A folder of photos."""
    check_sampling(options)
    if options.ray is not None:
        from picme_sdk.scale.commands import bulk

        return bulk(options)
    from picme_sdk.batch import WORKERS, Job, Report, photos_in, run_batch, watch

    # Photos side by side on a core each get more done than one photo on all cores: 46 against 36 photos/s on two.
    options.threads = 1 if options.threads is None else options.threads
    at_once = max(1, (os.cpu_count() or 1) // max(1, options.threads)) + WORKERS - 1
    folder = Path(options.photos)
    if not folder.is_dir():
        raise BadArgument(f"{folder}", "a folder of photos", "check the path")
    mask = None if options.mask in (None, "alpha") else Path(options.mask)
    if mask is not None and not mask.exists():
        raise BadArgument(f"--mask {mask}", "a file, a folder, or alpha", "check the path")
    if Path(options.out).resolve() == folder.resolve():
        raise BadArgument(f"--out {options.out} is the folder of the photos", "another folder", "choose another")
    if options.json and options.json != "-":
        free(Path(options.json), options.force)
    job = Job(Path(options.out), mask, options.n, options.seed, options.strategy, options.temperature)
    found = photos_in(folder)
    reports: list[Report] = []

    def finished(report: Report, say: Callable[[str], None]) -> None:
        reports.append(report)
        say(report.photo)
        if report.state == "failed":
            print(f"{report.photo}: {report.error}", file=sys.stderr)

    with open_completer(options) as completer, progress(None if options.watch else len(found)) as say:
        try:
            photos = watch(folder, threading.Event()) if options.watch else iter(found)
            run_batch(completer, photos, job, lambda report: finished(report, say), at_once)
        except KeyboardInterrupt:
            print("stopped; what was finished stays", file=sys.stderr)
    counts = {state: sum(r.state == state for r in reports) for state in ("done", "skipped", "failed")}
    if options.json:
        text = json.dumps({**counts, "photos": [r.as_dict() for r in sorted(reports, key=lambda r: r.photo)]})
        if options.json == "-":
            print(text)
        else:
            with replacing(Path(options.json)) as temporary:
                temporary.write_text(text + "\n")
    print(
        f"{counts['done']} done, {counts['skipped']} skipped (results exist), {counts['failed']} failed",
        file=sys.stderr,
    )
    return 1 if counts["failed"] else 0


def video(options: argparse.Namespace) -> int:
    """A video: every frame's hole is filled with the same idea and noise. Without OUT, only the preview is written."""
    from picme_sdk.imaging import save_png
    from picme_sdk.video import complete_video, preview

    targets = [Path(name) for name in (options.preview, options.out) if name]
    if not targets:
        raise BadArgument("neither OUT nor --preview", "one of them, or both", "name the new video")
    for target in targets:
        free(target, options.force)
    with open_completer(options) as completer:
        if options.preview:
            sheet = preview(completer, options.video, options.mask, options.seed, options.temperature)
            save_png(sheet, Path(options.preview))
        if not options.out:
            print(json.dumps({"files": [options.preview]}) if options.json else options.preview)
            return 0
        start = time.perf_counter()
        with progress(None) as say:
            report = complete_video(
                completer, options.video, options.out, options.mask, options.primitive, options.seed, options.temperature,
                options.smoothing, options.force,
                lambda made, total: say(f"{made / (time.perf_counter() - start):.1f} frames/s", total),
            )  # fmt: skip
    if options.json:
        print(json.dumps({"files": [str(target) for target in targets], **report.as_dict()}))
        return 0
    print(report)
    for target in targets:
        print(target)
    return 0


def bench(options: argparse.Namespace) -> int:
    """Latency of a bundle here: encode and per-result cost apart, percentiles, the share around the graphs."""
    from picme_sdk.bench import measure, plot
    from picme_sdk.imaging import save_png

    if options.plot:
        free(Path(options.plot), options.force)
    if options.rounds < 1:
        raise BadArgument(f"--rounds {options.rounds}", "at least 1", "choose another")
    with open_completer(options) as completer:
        found = measure(completer, options.rounds)
    if options.plot:
        save_png(plot(found), Path(options.plot))
    if options.json:
        print(json.dumps(found.as_dict()))
        return 0
    print(
        f"{found.model} {found.image_size}x{found.image_size} on {found.device} ({found.backend}), {found.rounds} rounds, milliseconds"
    )
    for name, row in (("encode", found.encode), ("each result", found.per_result), ("photo to six", found.six)):
        print(f"  {name:14} p50 {row.p50:8.2f}   p95 {row.p95:8.2f}   p99 {row.p99:8.2f}")
    print(f"  around the graphs: {found.overhead:.1%}")
    return 0


def demo(options: argparse.Namespace) -> int:
    """Complete the photo that comes with the package."""
    from PIL import Image

    from picme_sdk.imaging import save_png
    from picme_sdk.sheet import results_sheet

    out = free(Path(options.out), options.force)
    with Image.open(str(files("picme_sdk") / "samples" / "chelsea.jpg")) as opened:
        photo = opened.convert("RGB")
    mask = Image.new("L", photo.size)
    mask.paste(255, HOLE)
    with open_completer(options) as completer:
        scene = completer.encode(photo, mask)
        results = scene.sample(6, seed=7, strategy="diverse")
        save_png(results_sheet(photo, mask, results), out)
        decode = sum(r.timings.decode_ms for r in results)
        print(
            f"{completer.manifest.name} on {completer.device} ({completer.backend}): encode {scene.encode_ms:.1f} ms, six results {decode:.1f} ms"
        )
        print(
            f"about {scene.ambiguity:.1f} equally likely answers; weights "
            + " ".join(f"{i}:{w:.2f}" for i, w in scene.primitives)
        )
    print(out)
    return 0


def studio(options: argparse.Namespace) -> int:
    """Serve a page on this machine to paint holes and choose among their fills, and open it. Ctrl-C ends it."""
    from picme_sdk.studio.app import Options, serve

    chosen = Options(options.photo, options.host, options.port, options.token, not options.no_browser)
    with open_completer(options) as completer:
        serve(completer, chosen, lambda address: print(address, flush=True))
    return 0


def serve(options: argparse.Namespace) -> int:
    """Serve the studio's HTTP API on several replicas until Ctrl-C."""
    from picme_sdk.scale.commands import serve

    return serve(options)


def inspect(options: argparse.Namespace) -> int:
    """Check every file of a bundle and print what is in it."""
    from picme_sdk.bundle import Bundle

    bundle = Bundle(options.bundle)
    bundle.verify()
    manifest = bundle.manifest
    if options.json:
        print(json.dumps(asdict(manifest) | {"model_id": manifest.model_id}))
        return 0
    print(
        f"{manifest.name}: {manifest.image_size}x{manifest.image_size}, {manifest.primitives} primitives, latent {manifest.latent}"
    )
    if manifest.knows:
        print(f"knows {manifest.knows}")
    print(f"licence {manifest.licence} | {manifest.made_by} | model {manifest.model_id[:16]} | every hash matches")
    for graph in manifest.graphs:
        print(
            f"  graph   {graph.graph:8} {graph.precision:8} {graph.bytes / 1e6:8.2f} MB  {graph.file}, weights in {graph.storage}"
        )
    for engine in manifest.engines:
        print(
            f"  engine  {engine.graph:8} {engine.precision:8} {engine.bytes / 1e6:8.2f} MB  {engine.builder} {engine.version} for {engine.target}"
        )
    for check in manifest.verified:
        print(
            f"  check   {check.graph:8} {check.compared:16} {check.measure:8} {check.value:9.3g} (limit {check.limit:.3g}; {check.input})"
        )
    for found in manifest.measured:
        print(
            f"  time    {found.graph:8} {found.precision:8} {found.p50_ms:8.2f} ms (p99 {found.p99_ms:.2f}; {found.results} results, {found.backend}, {found.device})"
        )
    for name, text in asdict(manifest.card).items():
        if text:
            print(f"  card    {name}: {text}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    """What this machine has and what `auto` picks."""
    from picme_sdk.completer import shipped_bundle
    from picme_sdk.doctor import diagnose

    found = diagnose(str(options.bundle or shipped_bundle()))
    if options.json:
        print(json.dumps(found.as_dict()))
        return 0 if found.chosen else 1
    print(f"{found.machine}; GPU: {found.gpu}")
    print(", ".join(f"{name} {version}" for name, version in found.packages.items()))
    print(f"bundle  {found.bundle}")
    for attempt in found.attempts:
        print(f"  {'yes' if attempt.works else 'no ':3} {attempt.device:8} {attempt.title}: {attempt.note}")
    print(f"auto takes: {found.chosen or 'nothing works'}")
    print(f"advice: {found.advice}")
    return 0 if found.chosen else 1
