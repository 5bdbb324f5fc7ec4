"""How cost grows: with the number of results, the photo's size, the number of holes, threads, scenes at once, and in batches; and a soak.

    python benchmarks/scale.py [BUNDLE] [--json FILE]

Cost must be encode + n x decode, flat in the photo's size for the same hole, and memory bounded.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from PIL import Image

from benchmarks.measure import rounds
from picme_sdk.batch import Job, photos_in, run_batch
from picme_sdk.completer import Completer, shipped_bundle

HOLE = 128  # pixels a side, in every photo
SOAK = 2000


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


def resident() -> float:
    """Megabytes in memory now."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def batch_throughput(completer: Completer) -> dict[str, float]:
    """Photos a second of `picme batch` against a plain loop, files included."""
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
        run_batch(completer, photos, Job(folder / "out", folder / "mask.png"), lambda report: None)
        pooled = time.perf_counter() - start
    return {"loop": round(len(photos) / plain, 1), "batch": round(len(photos) / pooled, 1)}


def measure(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    with Completer(path, "cpu", 2) as completer:
        image, mask = scene(256, 256)
        report["results"] = medians(
            {str(n): lambda n=n: completer.complete(image, mask, n=n, seed=0) for n in (1, 2, 4, 8, 16, 32, 64)}
        )
        sizes = {"256x256": (256, 256), "512x512": (512, 512), "1024x1024": (1024, 1024), "4000x3000": (4000, 3000)}
        photos = {name: scene(*size) for name, size in sizes.items()}
        report["photo"] = medians({name: lambda p=p: completer.complete(*p, n=6, seed=0) for name, p in photos.items()})
        many = {str(n): scene(3000, 3000, n) for n in (1, 2, 4, 8)}
        report["holes"] = medians({name: lambda p=p: completer.complete(*p, n=1, seed=0) for name, p in many.items()})
        report["batch photos/s"] = batch_throughput(completer)

        def at_once(count: int) -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(lambda i: completer.complete(image, mask, n=6, seed=i), range(8)))

        report["eight photos by threads of the caller"] = medians(
            {str(n): lambda n=n: at_once(n) for n in (1, 2, 4, 8)}, 3
        )
        for i in range(50):
            completer.complete(image, mask, n=1, seed=i)
        curve = [resident()]
        for block in range(4):
            for i in range(SOAK // 4):
                completer.complete(image, mask, n=1, seed=block * SOAK + i)[0].image  # noqa: B018 (composes)
            curve.append(resident())
        report["soak MB"] = [round(value, 1) for value in curve]
    with Completer(path, "cpu", 1) as one, Completer(path, "cpu", 2) as two:
        report["threads"] = medians(
            {name: lambda c=c: c.complete(image, mask, n=6, seed=0) for name, c in (("1", one), ("2", two))}
        )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="how cost grows")
    parser.add_argument("bundle", type=Path, nargs="?", help="(the model that ships)")
    parser.add_argument("--json", type=Path, help="write the numbers to a file, too")
    options = parser.parse_args()
    report = measure(options.bundle or shipped_bundle())
    for name, values in report.items():
        print(f"{name}: {values}")
    if options.json:
        options.json.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
