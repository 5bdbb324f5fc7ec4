"""What `picme batch --ray` and `picme serve` do."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from picme_sdk.cli.commands import free, progress
from picme_sdk.cluster.bulk import BulkJob, Report, Row, photos_of, run_bulk
from picme_sdk.cluster.connection import LOCAL, imported, joined, workers_of
from picme_sdk.cluster.places import Place
from picme_sdk.errors import BadArgument


def bulk(options: argparse.Namespace) -> int:
    """A folder of photos on a cluster."""
    if options.watch:
        raise BadArgument("--watch with --ray", "one of them", "start the job again for photos that came later")
    if options.json == "-":
        raise BadArgument("--json - with --ray", "a file", "name one")
    imported(options.ray)
    mask = None if options.mask in (None, "alpha") else Place(options.mask)
    if mask is not None and not (mask.has() or mask.is_folder()):
        raise BadArgument(f"--mask {options.mask}", "a file, a folder, or alpha", "check the path")
    photos, out = Place(options.photos), Place(options.out)
    if photos.where.rstrip("/") == out.where.rstrip("/"):
        raise BadArgument(f"--out {options.out} is the folder of the photos", "another folder", "choose another")
    report = Report(free(Path(options.json), options.force)) if options.json else None
    bundle = None if options.bundle is None else os.path.abspath(options.bundle)
    counts: Counter[str] = Counter()
    with joined(options.ray) as ray, progress(len(photos_of(photos))) as say:
        workers = workers_of(ray.nodes(), options.device, options.threads)
        job = BulkJob(
            photos, out, mask, options.n, options.seed, options.strategy, options.temperature,
            bundle, options.device, workers.cpus, options.precision,
        )  # fmt: skip

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


def serve(options: argparse.Namespace) -> int:
    """Serve the studio's HTTP API on several replicas until Ctrl-C."""
    from picme_sdk.cluster.serve import Service, deploy, withdraw
    from picme_sdk.studio.app import check_token, listen

    check_token(options.host, options.token)
    given = re.fullmatch(r"(\d+)(?::(\d+))?", options.replicas)
    if given is None:
        raise BadArgument(f"--replicas {options.replicas}", "a number, or FEWEST:MOST", "such as 2 or 1:8")
    replicas = int(given[1]), int(given[2] or given[1])
    bundle = None if options.bundle is None else os.path.abspath(options.bundle)
    service = Service(
        options.token or secrets.token_urlsafe(24), options.host, options.port, replicas, options.ongoing, options.queue,
        options.deadline, bundle, options.device, options.threads or 1, options.precision,
    )  # fmt: skip
    if options.ray == LOCAL:
        listen(service.host, service.port).close()  # Ray would try a taken port for minutes
    stopped = threading.Event()
    with joined(options.ray) as ray:
        deploy(service, workers_of(ray.nodes(), options.device, service.threads))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        shown = f"[{service.host}]" if ":" in service.host else service.host
        print(f"http://{shown}:{service.port}/#token={service.token}", flush=True)
        while not stopped.wait(1):  # a wait without an end would not see the signal on every system
            pass
        withdraw()
    return 0
