"""How cost grows: with the number of results, the photo's size, the number of holes, threads, scenes at once, and in batches.

    python benchmarks/scale.py [BUNDLE] [--json FILE] [--plot FILE]

Cost must be encode + n x decode, flat in the photo's size for the same hole, and memory bounded. (benchmarks/soak.py asks whether it stays so.)
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from PIL import Image

from benchmarks.measure import rounds
from picme_sdk.batch import Folder, Sampling, photos_in, run_batch
from picme_sdk.completer import Completer, shipped_bundle

HOLE = 128  # pixels a side, in every photo
RESULTS = (1, 2, 4, 8, 16, 32, 64)
PHOTOS = {"256x256": (256, 256), "512x512": (512, 512), "1024x1024": (1024, 1024), "2000x1500": (2000, 1500), "4000x3000": (4000, 3000)}  # fmt: skip


def scene(width: int, height: int, holes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Noise with holes of one size along the diagonal."""
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    mask = np.zeros((height, width), np.uint8)
    for i in range(holes):
        x, y = (int((length - HOLE) * (i + 0.5) / holes) for length in (width, height))
        mask[y : y + HOLE, x : x + HOLE] = 255
    return image, mask


def medians(methods: dict[str, Any], count: int = 7) -> dict[str, float]:
    return {name: round(float(np.median(values)), 2) for name, values in rounds(methods, count).items()}


def peak(path: Path, given: tuple[np.ndarray, np.ndarray], n: int) -> float:
    """Megabytes that `n` results need at their worst, above a model that has just been opened. Linux only."""
    with Completer(path, "cpu", 2) as completer:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # memory left by earlier calls would hide what this one needs
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _memory("VmRSS")
        completer.complete(*given, n=n, seed=0)
        return round(max(0.0, _memory("VmHWM") - before), 1)


def _memory(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def batch_throughput(completer: Completer) -> dict[str, float]:
    """Photos per second of `picme batch` against a plain loop, files included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        image, mask = scene(512, 512)
        Image.fromarray(mask).save(folder / "mask.png")
        for i in range(48):
            Image.fromarray(np.roll(image, i, 0)).save(folder / "photos" / f"{i}.jpg", quality=90)
        photos = photos_in(folder / "photos")
        start = time.perf_counter()
        for photo in photos:
            completer.complete(photo, folder / "mask.png", n=1, seed=0)[0].image.save(folder / f"{photo.stem}.png")
        plain = time.perf_counter() - start
        start = time.perf_counter()
        run_batch(completer, photos, Folder(folder / "out", folder / "mask.png"), Sampling(), lambda report: None)
        pooled = time.perf_counter() - start
    return {"loop": round(len(photos) / plain, 1), "batch": round(len(photos) / pooled, 1)}


def measure(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    with Completer(path, "cpu", 2) as completer:
        image, mask = scene(256, 256)
        results = {str(n): lambda n=n: completer.complete(image, mask, n=n, seed=0) for n in RESULTS}
        report["results ms"] = medians(results)
        report["results MB"] = {str(n): peak(path, (image, mask), n) for n in RESULTS}
        scenes = {name: scene(*size) for name, size in PHOTOS.items()}
        photos = {name: lambda p=p: completer.complete(*p, n=6, seed=0) for name, p in scenes.items()}
        report["photo ms"] = medians(photos)
        report["photo MB"] = {name: peak(path, given, 6) for name, given in scenes.items()}
        many = {str(n): scene(3000, 3000, n) for n in (1, 2, 4, 8)}
        report["holes ms"] = medians(
            {name: lambda p=p: completer.complete(*p, n=1, seed=0) for name, p in many.items()}
        )
        report["batch photos/s"] = batch_throughput(completer)

        def at_once(count: int) -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(lambda i: completer.complete(image, mask, n=6, seed=i), range(8)))

        report["eight photos by threads of the caller, ms"] = medians(
            {str(n): lambda n=n: at_once(n) for n in (1, 2, 4, 8)}, 3
        )
    with Completer(path, "cpu", 1) as one, Completer(path, "cpu", 2) as two:
        report["threads ms"] = medians(
            {name: lambda c=c: c.complete(image, mask, n=6, seed=0) for name, c in (("1", one), ("2", two))}
        )
    return report


def plot(report: dict[str, Any], path: Path) -> None:
    """Time and memory against the number of results and the photo's size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, what, label in zip(figure.subplots(1, 2), ("results", "photo"), ("results", "photo, one hole of 128x128, six results"), strict=True):  # fmt: skip
        names = list(report[f"{what} ms"])
        places = [int(name) for name in names] if what == "results" else list(range(len(names)))
        axes.plot(places, report[f"{what} ms"].values(), "o-", color="tab:blue")
        axes.set_ylabel("ms", color="tab:blue")
        memory = axes.twinx()
        memory.plot(places, report[f"{what} MB"].values(), "s--", color="tab:orange")
        memory.set_ylabel("MB above idle", color="tab:orange")
        for axis in (axes, memory):
            axis.set_ylim(bottom=0)
        axes.set_xticks(places[3:] if what == "results" else places, names[3:] if what == "results" else names)
        axes.set_xlabel(label)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="how cost grows")
    parser.add_argument("bundle", type=Path, nargs="?", help="(the model that ships)")
    parser.add_argument("--json", type=Path, help="write the numbers to a file, too")
    parser.add_argument("--plot", type=Path, help="write a PNG, too")
    options = parser.parse_args()
    report = measure(options.bundle or shipped_bundle())
    for name, values in report.items():
        print(f"{name}: {values}")
    if options.json:
        options.json.write_text(json.dumps(report) + "\n")
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main()
