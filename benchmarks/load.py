"""Load on `picme serve`, on the loopback and with a bounded number of requests; and bulk work against `picme batch`.

    python benchmarks/load.py [BUNDLE] [--replicas 2] [--requests 150] [--json FILE]
    python benchmarks/load.py --bulk [BUNDLE] [--photos 200]
    python benchmarks/load.py --merge [BUNDLE]

A request is one photo of the model's size with the centre hole and N results as whole PNGs (`POST /api/complete`).

load    starts the service, finds its capacity with as many clients as replicas work at, then sends requests at a fixed rate whatever comes back
        (half, once and twice the capacity), then kills a replica under load. Columns: offered and answered per second, p50 and p99 of the
        answered, how many were answered (200), refused (429) and lost (anything else).
bulk    photos per second of `picme batch` in one process and of `picme batch --ray`, each with its own start
merge   what one decoder call of several latents gains over several calls: the most that merging requests can bring here
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from PIL import Image

from benchmarks.latency import photo_and_mask
from benchmarks.measure import rounds
from picme_sdk.completer import Completer, shipped_bundle

N = 3  # results of a request
ONGOING, QUEUE = 4, 8
PICME = [sys.executable, "-m", "picme_sdk.cli"]


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


class Service:
    """`picme serve` in a process of its own."""

    def __init__(self, bundle: Path, replicas: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.token = secrets.token_urlsafe(24)
        limits = ["--replicas", str(replicas), "--ongoing", str(ONGOING), "--queue", str(QUEUE), "--threads", "1"]
        command = [*PICME, "serve", "--bundle", str(bundle), "--port", str(self.port), "--token", self.token, *limits]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own)
        if self.process.stdout is None or not self.process.stdout.readline():
            raise SystemExit("the service did not start")
        photo, mask = photo_and_mask(Completer(bundle).manifest.image_size)
        asked = {"photo": png(photo), "mask": png(mask)}
        self.body = json.dumps({**{k: base64.b64encode(v).decode() for k, v in asked.items()}, "n": N, "seed": 1})

    def ask(self) -> str:
        """The status of a complete answer, or the name of the failure."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            link.request("POST", "/api/complete", self.body, headers)
            response = link.getresponse()
            lines = response.read().splitlines()
            return str(response.status) if response.status != 200 or len(lines) == N else "cut"
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            link.close()

    def replicas(self) -> list[int]:
        """Processes of the replicas, among the descendants of the service."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
        own = {self.process.pid}
        for _ in range(4):
            own |= {pid for pid, parent in parents.items() if parent in own}
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in own}
        return [pid for pid, title in titles.items() if title.startswith(b"ray::ServeReplica:picme:replica")]

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def row(name: str, offered: float | None, seconds: float, came: list[tuple[str, float]]) -> dict[str, Any]:
    times = [took * 1000 for status, took in came if status == "200"]
    counts = {status: sum(s == status for s, _ in came) for status in {s for s, _ in came}}
    good, refused = counts.pop("200", 0), counts.pop("429", 0)
    return {
        "run": name, "offered": None if offered is None else round(offered, 1), "answered": round(good / seconds, 1),
        "p50": round(float(np.percentile(times, 50))), "p99": round(float(np.percentile(times, 99))),
        "200": good, "429": refused, "lost": sum(counts.values()), "how": counts,
    }  # fmt: skip


def closed(service: Service, clients: int, requests: int) -> tuple[float, list[tuple[str, float]]]:
    """Clients that send the next request as soon as the last one is answered."""

    def one(_: int) -> tuple[str, float]:
        start = time.perf_counter()
        return service.ask(), time.perf_counter() - start

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        came = list(pool.map(one, range(requests)))
    return time.perf_counter() - start, came


def paced(
    service: Service, rate: float, requests: int, kill_at: int | None = None
) -> tuple[float, list[tuple[str, float]]]:
    """Requests at a fixed rate, whether the earlier ones were answered or not."""
    came: list[tuple[str, float]] = []

    def one(number: int) -> None:
        start = time.perf_counter()
        status = service.ask()
        came.append((status, time.perf_counter() - start))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(requests)]
    victim = service.replicas()[0]
    start = time.perf_counter()
    for number, thread in enumerate(threads):
        time.sleep(max(0.0, start + number / rate - time.perf_counter()))
        if number == kill_at:
            os.kill(victim, signal.SIGKILL)
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start, came


def load(bundle: Path, replicas: int, requests: int) -> list[dict[str, Any]]:
    service = Service(bundle, replicas)
    try:
        closed(service, 2, 10)  # warm
        one = row("one client", None, *closed(service, 1, requests // 4))
        full = row("capacity", None, *closed(service, ONGOING * replicas, requests))
        table = [one, full]
        for name, factor in (("half", 0.5), ("once", 1.0), ("twice", 2.0)):
            rate = full["answered"] * factor
            table.append(row(name, rate, *paced(service, rate, requests)))
        rate = full["answered"] * 0.5
        table.append(row("a replica killed", rate, *paced(service, rate, requests, requests // 3)))
        return table
    finally:
        service.close()


def bulk(bundle: Path, photos: int) -> list[dict[str, Any]]:
    table = []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        image, mask = photo_and_mask(Completer(bundle).manifest.image_size)
        (here / "photos").mkdir()
        for i in range(photos):
            Image.fromarray(np.roll(image, i, 0)).save(here / "photos" / f"{i:05}.jpg", quality=90)
        (here / "mask.png").write_bytes(png(mask))
        ways = {
            "picme batch": [],
            "picme batch, one photo at a time on all cores": ["--threads", str(os.cpu_count() or 1)],
            "--ray, all cores in one worker": ["--ray"],
            "--ray, a worker a core": ["--ray", "--threads", "1"],
        }
        for number, (name, more) in enumerate(ways.items()):
            command = [*PICME, "batch", str(here / "photos"), "--mask", str(here / "mask.png"), "--bundle", str(bundle)]
            out = here / str(number)
            start = time.time()
            work = subprocess.Popen([*command, "-o", str(out), *more], stderr=subprocess.PIPE, text=True)  # noqa: S603
            printed = work.communicate()[1]
            if work.returncode:
                raise SystemExit(printed)
            written = [path.stat().st_mtime for path in out.glob("*.png")]
            rate = (photos - 1) / (max(written) - min(written))
            times = {"first result s": round(min(written) - start, 1), "photos/s after it": round(rate, 1)}
            table.append({"way": name, **times, "whole s": round(time.time() - start, 1)})
    return table


def merge(bundle: Path) -> list[dict[str, Any]]:
    return [line for threads in (1, 2) for line in merged(bundle, threads)]


def merged(bundle: Path, threads: int) -> list[dict[str, Any]]:
    with Completer(bundle, "cpu", threads) as completer:
        image, mask = photo_and_mask(completer.manifest.image_size)
        backend = completer.pipeline.backend
        skips = backend.encode(image, mask).skips
        z = np.random.default_rng(1).standard_normal((8, completer.manifest.latent)).astype(np.float32)

        def decode(latents: int) -> Callable[[], object]:
            return lambda: backend.decode(skips, z[:latents])

        times = rounds({str(latents): decode(latents) for latents in (1, 2, 4, 8)}, 30)
    each = {latents: float(np.median(times[latents])) / int(latents) for latents in times}
    return [
        {"threads": threads, "latents": k, "ms each": round(took, 2), "gain": round(each["1"] / took, 2)}
        for k, took in each.items()
    ]


def show(table: list[dict[str, Any]]) -> None:
    names = [name for name in table[0] if name != "how"]
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for line in table:
        print("| " + " | ".join("" if line[name] is None else str(line[name]) for name in names) + " |")
        if line.get("how"):
            print(f"  lost: {line['how']}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", nargs="?", type=Path, default=None)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--bulk", action="store_true")
    what.add_argument("--merge", action="store_true")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    bundle = (options.bundle or shipped_bundle()).resolve()
    if options.bulk:
        table = bulk(bundle, options.photos)
    elif options.merge:
        table = merge(bundle)
    else:
        table = load(bundle, options.replicas, options.requests)
    show(table)
    if options.json:
        options.json.write_text(json.dumps(table) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
