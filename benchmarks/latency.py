"""Latency of the three graphs (polygraphy runners) and of the SDK around them.

    python benchmarks/latency.py [BUNDLE] [--threads 2] [--rounds 30] [--json]

Prints p50, p95 and p99 of each graph in each precision, GFLOP/s, the share of the machine's matrix-product rate measured in the same run,
encode and per-result cost apart, and what the SDK adds around the graphs. The decoder has three rows: one session on all threads, as
polygraphy runs it; "side by side", as the SDK does, one result per core; and "again", the same once more immediately afterwards. Methods take turns, so every other
row starts with caches that are full of other graphs' weights; "again" is the rate of a stream of results. So is "sdk, photo after photo" for the SDK.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import onnx
from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.logger import G_LOGGER

from benchmarks.measure import gflop, matrix_product, percentiles, rounds, session
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.completer import Completer, shipped_bundle

RESULTS = 6


def photo_and_mask(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with the centre hole."""
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 255
    return image, mask


def feeds(bundle: Bundle) -> dict[str, dict[str, np.ndarray]]:
    """Inputs of each graph of a float32 bundle; the decoder computes six results."""
    manifest = bundle.manifest
    image, mask = photo_and_mask(manifest.image_size)
    encoder = {"image": image[None], "mask": mask[None, ..., None]}
    names = [t.name for t in manifest.graph("encoder").outputs]
    outputs = dict(zip(names, session(bundle.read(manifest.graph("encoder")), 2).run(names, encoder), strict=True))
    z = np.random.default_rng(1).standard_normal((RESULTS, manifest.latent)).astype(np.float32)
    skips = {name: value for name, value in outputs.items() if name.startswith("skip_")}
    return {"encoder": encoder, "mixture": {"context": outputs["context"]}, "decoder": {**skips, "z": z}}


def measure(path: Path, threads: int, count: int) -> dict[str, Any]:
    """All numbers of one run."""
    bundle = Bundle(path)
    inputs = feeds(bundle)
    methods, work = {}, {}
    runners = []
    for graph in bundle.manifest.graphs:
        if graph.precision == "float16":
            continue  # for TensorRT; a CPU only emulates it
        data = bundle.read(graph)
        runner = OnnxrtRunner(session(data, 1 if graph.graph == "mixture" else threads))
        runner.activate()
        runners.append(runner)
        name = f"{graph.graph} {graph.precision}"
        methods[name] = lambda r=runner, f=inputs[graph.graph]: r.infer(f, check_inputs=False)
        batch = RESULTS if graph.graph == "decoder" else 1
        work[name] = gflop(onnx.load_from_string(bundle.read(bundle.manifest.graph(graph.graph))), batch)
    methods["matrix product"], work["matrix product"] = matrix_product(threads)
    image, mask = photo_and_mask(bundle.manifest.image_size)
    first: list[float] = []  # time outside the graphs relative to the time inside: after other graphs ...
    later: list[float] = []  # ... and photo after photo
    with ExitStack() as opened:
        for precision in ("float32", "int8"):
            if precision in bundle.manifest.precisions():
                completer = opened.enter_context(Completer(path, "cpu", threads, precision))
                name = f"decoder {precision}, side by side"
                backend = completer.pipeline.backend
                skips = backend.encode(image, mask).skips
                methods[name] = lambda b=backend, s=skips: b.decode(s, inputs["decoder"]["z"])
                methods[f"{name}, again"] = methods[name]
                work[name] = work[f"{name}, again"] = work[f"decoder {precision}"]
        completer = opened.enter_context(Completer(path, "cpu", threads))
        methods["sdk"] = lambda: _complete(completer, image, mask, first)
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
            times = rounds(methods, count)
        times |= rounds({"sdk, photo after photo": lambda: _complete(completer, image, mask, later)}, count)
    for runner in runners:
        runner.deactivate()
    rate = {name: work[name] / (float(np.median(times[name])) / 1000) for name in work}
    report: dict[str, Any] = {
        name: {**percentiles(times[name]), **({"gflop": round(work[name], 4), "gflop_s": round(rate[name], 1),
               "limit_share": round(rate[name] / rate["matrix product"], 3)} if name in work else {})}
        for name in times
    }  # fmt: skip
    decoder = report["decoder float32, side by side"]["p50"]
    graphs = report["encoder float32"]["p50"] + report["mixture float32"]["p50"] + decoder
    report["summary"] = {
        "encode_ms": round(report["encoder float32"]["p50"] + report["mixture float32"]["p50"], 3),
        "per_result_ms": round(decoder / RESULTS, 3),
        "graphs_ms": round(graphs, 3),
        "sdk_ms": report["sdk"]["p50"],
        "overhead": round(float(np.median(later)), 4),
        "overhead_cold": round(float(np.median(first)), 4),
        "results": RESULTS,
        "threads": threads,
        "image_size": bundle.manifest.image_size,
    }
    return report


def _complete(completer: Completer, image: np.ndarray, mask: np.ndarray, overheads: list[float]) -> None:
    """One photo, six finished pictures; notes the time outside the graphs relative to the time inside them."""
    before, start = completer.pipeline.spent.seconds, time.perf_counter()
    for result in completer.complete(image, mask, n=RESULTS, seed=len(overheads)):
        result.image  # noqa: B018 (composes)
    elapsed, inside = time.perf_counter() - start, completer.pipeline.spent.seconds - before
    overheads.append((elapsed - inside) / inside)


def main() -> None:
    parser = argparse.ArgumentParser(description="latency of a bundle's graphs and of the SDK")
    parser.add_argument("bundle", type=Path, nargs="?", help="(the model that ships)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    report = measure(options.bundle or shipped_bundle(), options.threads, options.rounds)
    if options.json:
        print(json.dumps(report))
        return
    print(f"{'':36} {'p50':>8} {'p95':>8} {'p99':>8} {'GFLOP':>8} {'GFLOP/s':>8} {'of limit':>8}")
    for name, row in report.items():
        if name != "summary":
            extra = f"{row['gflop']:8.3f} {row['gflop_s']:8.1f} {row['limit_share']:8.0%}" if "gflop" in row else ""
            print(f"{name:36} {row['p50']:8.2f} {row['p95']:8.2f} {row['p99']:8.2f} {extra}")
    print(" ".join(f"{key} {value}" for key, value in report["summary"].items()))


if __name__ == "__main__":
    main()
