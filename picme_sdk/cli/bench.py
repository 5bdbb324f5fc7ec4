"""`picme bench`: what a result costs here, without any package that the runtime does not need. benchmarks/latency.py has more detail.

Encode and per-result cost apart, percentiles, the time around the graphs, and a plot of the cost against the number of results.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from picme_sdk.cli.options import add_model, open_completer
from picme_sdk.errors import BadArgument
from picme_sdk.io import check_free

if TYPE_CHECKING:
    from PIL import Image

    from picme_sdk.completer import Completer

HELP = "measure latency"
COUNTS = (1, 2, 4, 6, 8, 12, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--rounds", type=int, default=20, help="(20)")
    parser.add_argument("--plot", metavar="FILE.png", help="draw cost against the number of results")
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Latency of a bundle here: encode and per-result cost apart, percentiles, the time around the graphs."""
    from picme_sdk.pixels.png import save_png

    if options.plot:
        check_free(Path(options.plot), options.force)
    if options.rounds < 1:
        raise BadArgument(f"--rounds {options.rounds}", "at least 1", "choose another")
    with open_completer(options) as completer:
        bench = measure(completer, options.rounds)
    if options.plot:
        save_png(plot(bench), Path(options.plot))
    if options.json:
        print(json.dumps(bench.as_dict()))
        return 0
    print(
        f"{bench.model} {bench.image_size}x{bench.image_size} on {bench.device} ({bench.backend}), {bench.rounds} rounds, milliseconds"
    )
    for name, row in (("encode", bench.encode), ("each result", bench.per_result), ("photo to six", bench.six)):
        print(f"  {name:14} p50 {row.p50:8.2f}   p95 {row.p95:8.2f}   p99 {row.p99:8.2f}")
    print(f"  around the graphs: {bench.overhead:.1%} of their time")
    return 0


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Percentiles:
        import numpy as np

        p50, p95, p99 = (round(float(np.percentile(seconds, q)) * 1000, 3) for q in (50, 95, 99))
        return cls(p50, p95, p99)


@dataclass(frozen=True)
class Bench:
    """One run's numbers."""

    model: str
    image_size: int
    backend: str
    device: str
    rounds: int
    encode: Percentiles  # photo and mask in, scene out
    per_result: Percentiles  # one decoder pass in a batch of six, with its finished picture
    six: Percentiles  # photo in, six finished pictures out
    overhead: float  # time outside the graphs in `six`, relative to the time inside them
    by_count: dict[int, float]  # number of results -> median milliseconds, encoding included

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(completer: Completer, rounds: int = 20) -> Bench:
    """Interleaved rounds after a warm-up. Run it on an otherwise idle machine."""
    import numpy as np

    size = completer.manifest.image_size
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 255
    encode: list[float] = []
    results: list[float] = []
    totals: dict[int, list[float]] = {count: [] for count in COUNTS}
    inside: list[float] = []
    for i in range(rounds + 2):
        for count in COUNTS:
            before = completer.pipeline.spent.seconds
            start = time.perf_counter()
            scene = completer.encode(image, mask)
            middle = time.perf_counter()
            for result in scene.sample(count, seed=i):
                result.image  # noqa: B018 (composes)
            end = time.perf_counter()
            if i < 2:
                continue
            totals[count].append(end - start)
            if count == 6:
                encode.append(middle - start)
                results.append((end - middle) / count)
                inside.append(completer.pipeline.spent.seconds - before)
    outside = float(np.median([(t - g) / g for t, g in zip(totals[6], inside, strict=True)]))
    return Bench(
        completer.manifest.name, size, completer.backend, completer.device, rounds,
        Percentiles.of(encode), Percentiles.of(results), Percentiles.of(totals[6]), round(outside, 4),
        {count: round(float(np.median(values)) * 1000, 3) for count, values in totals.items()},
    )  # fmt: skip


def plot(bench: Bench) -> Image.Image:
    """Milliseconds against the number of results, as a picture."""
    from PIL import Image, ImageDraw, ImageFont

    width, height, left, bottom = 640, 400, 70, 60
    picture = Image.new("RGB", (width, height), (250, 250, 250))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    last, top = max(bench.by_count), max(bench.by_count.values()) * 1.1

    def at(count: float, value: float) -> tuple[float, float]:
        return left + (width - left - 30) * count / last, height - bottom - (height - bottom - 50) * value / top

    ink = (30, 30, 30)
    draw.line([at(0, 0), at(last, 0)], ink)
    draw.line([at(0, 0), at(0, top)], ink)
    for tick in range(5):
        value = top * tick / 4
        draw.text((8, at(0, value)[1] - 8), f"{value:.0f} ms", ink, font)
    points = [at(count, value) for count, value in sorted(bench.by_count.items())]
    draw.line(points, (40, 90, 200), 2)
    for (count, value), (x, y) in zip(sorted(bench.by_count.items()), points, strict=True):
        draw.ellipse([x - 4, y - 4, x + 4, y + 4], (40, 90, 200))
        draw.text((x - 6, height - bottom + 6), str(count), ink, font)
        draw.text((x - 14, y - 22), f"{value:.0f}", ink, font)
    draw.text(
        (left, 12),
        f"{bench.model} on {bench.device}: encode {bench.encode.p50:.1f} ms, then {bench.per_result.p50:.1f} ms per result",
        ink,
        font,
    )
    draw.text((left, height - 26), "results of one photo (encoding included)", ink, font)
    return picture
