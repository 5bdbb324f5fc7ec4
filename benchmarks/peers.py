"""PICME against its peers, measured side by side in one run.

    python benchmarks/peers.py [BUNDLE] [--threads 2] [--rounds 9] [--json]

The peer is a stand-in of PIC's published architecture with random weights (benchmarks/pic.py) in ONNX Runtime and in torch, one photo to six results at
256x256, and OpenCV's two classical methods (one result) where it is installed. `--json` prints one line.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import onnx
import torch

from benchmarks.latency import RESULTS, measure, photo_and_mask
from benchmarks.measure import matrix_product, percentiles, rounds, session
from benchmarks.pic import Decoder, Encoder
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.completer import Completer, shipped_bundle

SIZE = 256


def to_onnx(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], batch: bool) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    shapes = tuple({0: torch.export.Dim("n", min=1, max=16)} if batch and i == 0 else None for i in range(len(inputs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, inputs, dynamo=True, opset_version=20, external_data=False, verbose=False,
                                    input_names=names, dynamic_shapes=shapes if batch else None)  # fmt: skip
    return program.model_proto


class Pic:
    """The stand-in in both runtimes: encode, sample six latents, decode."""

    def __init__(self, threads: int) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(threads)
        self.encoder, self.decoder = Encoder().eval(), Decoder().eval()
        self.image, self.mask = torch.zeros(1, 3, SIZE, SIZE), torch.ones(1, 1, 32, 32)
        with torch.no_grad():
            mean, _, kept = self.encoder(self.image)
            latents = mean.repeat(RESULTS, 1, 1, 1)
            self.encoder_session = session(to_onnx(self.encoder, (self.image,), False), threads)
            self.decoder_session = session(to_onnx(self.decoder, (latents, kept, self.mask), True), threads)

    def in_torch(self) -> None:
        """One call per latent: torch is slower in one batch of six."""
        with torch.no_grad():
            mean, scale, kept = self.encoder(self.image)
            for _ in range(RESULTS):
                self.decoder(mean + scale * torch.randn_like(mean), kept, self.mask)

    def in_onnxruntime(self) -> None:
        """One batch of six, which is faster there."""
        mean, scale, kept = self.encoder_session.run(None, {"x0": self.image.numpy()})
        noise = np.random.default_rng(0).standard_normal((RESULTS, *mean.shape[1:])).astype(np.float32)
        self.decoder_session.run(None, {"x0": mean + scale * noise, "x1": kept, "x2": self.mask.numpy()})


def classical() -> dict[str, Any]:
    try:
        import cv2
    except ImportError:
        return {}
    image, mask = photo_and_mask(SIZE)
    return {
        "telea_ms": lambda: cv2.inpaint(image, mask, 3, cv2.INPAINT_TELEA),
        "navier_stokes_ms": lambda: cv2.inpaint(image, mask, 3, cv2.INPAINT_NS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="PICME against PIC (stand-in) and OpenCV, in one run")
    parser.add_argument("bundle", type=Path, nargs="?", help="(the model that ships)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    path = options.bundle or shipped_bundle()
    pic = Pic(options.threads)
    image, mask = photo_and_mask(SIZE)
    seeds = iter(range(10**9))
    with Completer(path, "cpu", options.threads) as completer:

        def picme() -> None:
            for result in completer.complete(image, mask, n=RESULTS, seed=next(seeds)):
                result.image  # noqa: B018 (composes)

        product, work = matrix_product(options.threads)
        times = rounds(
            {
                "picme_ms": picme,
                "pic_ort_ms": pic.in_onnxruntime,
                "pic_torch_ms": pic.in_torch,
                "product": product,
                **classical(),
            },
            options.rounds,
        )
    numbers: dict[str, Any] = {name: percentiles(values)["p50"] for name, values in times.items() if name != "product"}
    # Ratios of the same round: noise that hits one method hits its neighbours too.
    numbers["ratio_pic_ort"] = round(float(np.median(times["pic_ort_ms"] / times["picme_ms"])), 2)
    numbers["ratio_pic_torch"] = round(float(np.median(times["pic_torch_ms"] / times["picme_ms"])), 2)
    numbers["matrix_product_gflop_s"] = round(work / (float(np.median(times["product"])) / 1000), 1)
    report = measure(path, options.threads, 3 * options.rounds)
    # Rates and shares are those of a stream of results; "cold" is the first after other graphs have filled the caches.
    numbers["limit_share"] = report["decoder float32, side by side, again"]["limit_share"]
    numbers["limit_share_cold"] = report["decoder float32, side by side"]["limit_share"]
    numbers["overhead"] = report["summary"]["overhead"]
    numbers["overhead_cold"] = report["summary"]["overhead_cold"]
    if "int8" in Bundle(path).manifest.precisions():
        graphs = ("encoder {}", "decoder {}, side by side")
        whole = {p: sum(report[g.format(p)]["p50"] for g in graphs) for p in ("float32", "int8")}
        numbers["int8_ms"] = round(whole["int8"], 3)
        numbers["int8_ratio"] = round(whole["float32"] / whole["int8"], 2)
    # The paper's protocol: 100 photos, six results each. It reports 0.235 minutes on an A100 (PIC 0.387, ICT 179.126).
    numbers["paper_protocol_minutes"] = round(100 * numbers["picme_ms"] / 60_000, 4)
    if options.json:
        print(json.dumps(numbers))
    else:
        for name, number in numbers.items():
            print(f"{name:24} {number:>10}")


if __name__ == "__main__":
    main()
