"""What a result costs here: the friendly face of benchmarks/latency.py, without any package that the runtime does not need.

Encode and per-result cost apart, percentiles, the SDK's share around the graphs, and a plot of the cost against the number of results.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from picme_sdk.completer import Completer

COUNTS = (1, 2, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Percentiles:
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
    overhead: float  # share of time outside the graphs in `six`
    by_count: dict[int, float]  # number of results -> median milliseconds, encoding included

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(completer: Completer, rounds: int = 20) -> Bench:
    """Interleaved rounds after a warm-up. Run it on a machine that does nothing else."""
    size = completer.manifest.image_size
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 255
    encode: list[float] = []
    results: list[float] = []
    totals: dict[int, list[float]] = {count: [] for count in COUNTS}
    inside: list[float] = []
    graphs = _GraphClock(completer)
    try:
        for i in range(rounds + 2):
            for count in COUNTS:
                graphs.seconds = 0.0
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
                    inside.append(graphs.seconds)
    finally:
        graphs.stop()
    outside = float(np.median([(t - g) / g for t, g in zip(totals[6], inside, strict=True)]))
    return Bench(
        completer.manifest.name, size, completer.backend, completer.device, rounds,
        Percentiles.of(encode), Percentiles.of(results), Percentiles.of(totals[6]), round(outside, 4),
        {count: round(float(np.median(values)) * 1000, 3) for count, values in totals.items()},
    )  # fmt: skip


class _GraphClock:
    """Adds up the time inside the graphs."""

    def __init__(self, completer: Completer) -> None:
        self.backend = cast(Any, completer._backend)
        self.run, self.seconds = self.backend.run, 0.0
        self.backend.run = self._timed

    def _timed(self, graph: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        start = time.perf_counter()
        outputs: dict[str, NDArray[Any]] = self.run(graph, inputs)
        self.seconds += time.perf_counter() - start
        return outputs

    def stop(self) -> None:
        del self.backend.run  # the instance attribute that hid the method


def plot(bench: Bench) -> Image.Image:
    """Milliseconds against the number of results, as a picture."""
    width, height, left, bottom = 640, 400, 70, 60
    picture = Image.new("RGB", (width, height), (250, 250, 250))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    most, top = max(bench.by_count), max(bench.by_count.values()) * 1.1

    def at(count: float, value: float) -> tuple[float, float]:
        return left + (width - left - 30) * count / most, height - bottom - (height - bottom - 50) * value / top

    ink = (30, 30, 30)
    draw.line([at(0, 0), at(most, 0)], ink)
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
        f"{bench.model} on {bench.device}: encode {bench.encode.p50:.1f} ms, then {bench.per_result.p50:.1f} ms a result",
        ink,
        font,
    )
    draw.text((left, height - 26), "results of one photo (encoding included)", ink, font)
    return picture
