"""`picme batch`: a folder of photos, in this process or on a Ray cluster."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from picme_sdk.cli.options import (
    add_model,
    add_sampling,
    check_sampling,
    completer_options,
    open_completer,
    progress,
    stop_on,
)
from picme_sdk.contract import DEFAULT_BATCH_RESULTS
from picme_sdk.errors import BadArgument
from picme_sdk.io import check_free, replacing

if TYPE_CHECKING:
    from picme_sdk.batch import PhotoReport, Sampling
    from picme_sdk.cluster.bulk import Row

HELP = "complete a folder of photos"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("photos", help="folder")
    parser.add_argument("--mask", help="one mask for all, a folder of masks of the same names, or alpha (the default)")
    parser.add_argument(
        "-o", "--out", required=True, help="folder of results: NAME-1.png and so on; existing results are skipped"
    )
    add_sampling(parser, DEFAULT_BATCH_RESULTS, 0)
    parser.add_argument(
        "--watch", action="store_true", help="continue with photos that arrive in the folder, until Ctrl-C"
    )
    parser.add_argument(
        "--json", metavar="REPORT", help="write a report, - for standard output; with --ray also FILE.parquet"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="use a Ray cluster; without an address, one on this machine",
    )


def run(options: argparse.Namespace) -> int:
    """A folder of photos."""
    from picme_sdk.batch import Sampling

    check_sampling(options)
    sampling = Sampling(options.n, options.seed, options.strategy, options.temperature)
    return _here(options, sampling) if options.ray is None else _on_cluster(options, sampling)


def _here(options: argparse.Namespace, sampling: Sampling) -> int:
    from picme_sdk.batch import WORKERS, Folder, photos_in, run_batch, watch

    # Photos side by side on one core each are faster than one photo at a time on all cores: 46 against 36 photos/s on two cores.
    options.threads = 1 if options.threads is None else options.threads
    at_once = max(1, (os.cpu_count() or 1) // max(1, options.threads)) + WORKERS - 1
    source = Path(options.photos)
    if not source.is_dir():
        raise BadArgument(f"{source}", "a folder of photos", "check the path")
    mask = None if options.mask in (None, "alpha") else Path(options.mask)
    if mask is not None and not mask.exists():
        raise _no_mask(options)
    if Path(options.out).resolve() == source.resolve():
        raise _same_folder(options)
    if options.json and options.json != "-":
        check_free(Path(options.json), options.force)
    photos = photos_in(source)
    reports: list[PhotoReport] = []

    def finished(report: PhotoReport, say: Callable[[str], None]) -> None:
        reports.append(report)
        say(report.photo)
        if report.state == "failed":
            print(f"{report.photo}: {report.error}", file=sys.stderr)

    with (
        open_completer(options) as completer,
        progress(None if options.watch else len(photos)) as say,
        stop_on(signal.SIGINT) as stop,
    ):
        todo = watch(source, stop) if options.watch else takewhile(lambda _: not stop.is_set(), photos)
        folder = Folder(Path(options.out), mask)
        run_batch(completer, todo, folder, sampling, lambda report: finished(report, say), at_once)
    if stop.is_set():
        print("stopped; finished results stay", file=sys.stderr)
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


def _on_cluster(options: argparse.Namespace, sampling: Sampling) -> int:
    from picme_sdk.cluster.bulk import BulkJob, ReportFile, photos_of, run_bulk
    from picme_sdk.cluster.connection import connected, imported, workers_of
    from picme_sdk.cluster.places import Place

    if options.watch:
        raise BadArgument("--watch with --ray", "one of them", "start the job again for photos that arrive later")
    if options.json == "-":
        raise BadArgument("--json - with --ray", "a file", "name one")
    imported(options.ray)
    mask = None if options.mask in (None, "alpha") else Place(options.mask)
    if mask is not None and not (mask.has() or mask.is_folder()):
        raise _no_mask(options)
    photos, out = Place(options.photos), Place(options.out)
    if photos.where.rstrip("/") == out.where.rstrip("/"):
        raise _same_folder(options)
    report = ReportFile(check_free(Path(options.json), options.force)) if options.json else None
    counts: Counter[str] = Counter()
    with connected(options.ray) as ray, progress(len(photos_of(photos))) as say:
        workers = workers_of(ray.nodes(), options.device, options.threads)
        job = BulkJob(photos, out, mask, sampling, completer_options(options, workers.cpus))

        def finished(row: Row) -> None:
            counts[row["state"] if row["fresh"] else f"{row['state']} before"] += 1
            if report:
                report.add(row)
            say(row["photo"])
            if row["state"] == "failed":
                print(f"{row['photo']}: {row['error']}", file=sys.stderr)

        run_bulk(job, workers, finished)
    if report:
        report.close()
    failed = counts["failed"] + counts["failed before"]
    print(
        f"{counts['done']} done, {counts['done before']} done before, {failed} set aside ({counts['failed before']} before);"
        f" {workers.count} workers of {workers.cpus} cores" + (" and a GPU" if workers.gpus else ""),
        file=sys.stderr,
    )
    return 1 if failed else 0


def _no_mask(options: argparse.Namespace) -> BadArgument:
    return BadArgument(f"--mask {options.mask}", "a file, a folder, or alpha", "check the path")


def _same_folder(options: argparse.Namespace) -> BadArgument:
    return BadArgument(f"--out {options.out} is the folder of the photos", "another folder", "choose another")
