"""A lower bound on GPU latency, computed from the graphs. Nothing here is measured, because we have no GPU.

    python benchmarks/roofline.py [BUNDLE]

For each graph in FP16: FLOP, bytes that must move (weights once, every tensor that a convolution or product reads or writes), and kernels if each of
them fuses with its neighbours. The bound is the larger of FLOP/peak and bytes/bandwidth, plus 2 microseconds a kernel. Peaks are the vendors' figures
for dense FP16 tensor-core arithmetic; real kernels of this size reach a fraction of them. `make test-gpu` and the polygraphy commands that
export prints will measure the truth.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import onnx

from benchmarks.measure import gflop, with_shapes
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.completer import shipped_bundle

CARDS = {  # dense FP16 TFLOP/s, GB/s
    "Jetson Orin Nano 8GB": (10.0, 68.0),
    "Jetson AGX Orin 64GB": (68.0, 204.8),
    "T4": (65.0, 320.0),
    "RTX 4060": (60.0, 272.0),
    "RTX 4090": (165.0, 1008.0),
    "A100 40GB": (312.0, 1555.0),
}
KERNEL_US = 2.0
HEAVY = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Work:
    """What one run of a graph must do."""

    gflop: float
    megabytes: float
    kernels: int

    def bound_us(self, tflops: float, bandwidth: float) -> float:
        return max(self.gflop / tflops * 1e3, self.megabytes / bandwidth * 1e3) + KERNEL_US * self.kernels


def work(model: onnx.ModelProto, batch: int) -> Work:
    graph = with_shapes(model, batch).graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*graph.value_info, *graph.input, *graph.output)
    }
    weights = sum(int(np.prod(t.dims)) for t in graph.initializer)
    moved = 0
    kernels = [node for node in graph.node if node.op_type in HEAVY]
    for node in kernels:
        moved += sum(int(np.prod(shapes[name])) for name in (node.input[0], node.output[0]) if name in shapes)
    return Work(gflop(model, batch), 2 * (weights + moved) / 1e6, len(kernels))


def main() -> None:
    parser = argparse.ArgumentParser(description="computed, not measured: a lower bound on GPU latency")
    parser.add_argument("bundle", type=Path, nargs="?", help="(the model that ships)")
    bundle = Bundle(parser.parse_args().bundle or shipped_bundle())
    parts = {}
    for name, batch in (("encoder", 1), ("mixture", 1), ("decoder", 6)):
        parts[name] = work(onnx.load_from_string(bundle.read(bundle.manifest.graph(name))), batch)
        part = parts[name]
        print(f"{name:8} batch {batch}: {part.gflop:6.3f} GFLOP {part.megabytes:7.1f} MB {part.kernels:3} kernels")
    print("lower bound for one photo and six results, computed:")
    for card, figures in CARDS.items():
        print(f"  {card:22} {sum(part.bound_us(*figures) for part in parts.values()) / 1000:6.2f} ms")


if __name__ == "__main__":
    main()
