"""The gates between a checkpoint and a bundle: torch against float32 ONNX, float32 against FP16 and INT8.

Each precision runs as users run it, from encoder to decoder, on inputs that tend to break half-precision exports: noise, white, flat grey, black
and a photo, with a batch of 1 and with the largest. Polygraphy runs the graphs and collects the results.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from importlib.resources import files

import numpy as np
import onnx
import torch
from PIL import Image
from polygraphy.backend.base import BaseRunner
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.common import TensorMetadata
from polygraphy.comparator import Comparator
from polygraphy.logger import G_LOGGER

from export.graphs import GraphSpec
from picme_sdk.bundle.manifest import Check
from picme_sdk.errors import ExportError

IMAGE_LIMIT = 1 / 255
MIXTURE_LIMIT = 1e-4
PSNR_LIMITS = {"float16": 40.0, "int8": 30.0}
EQUAL_DB = 99.0  # stands for the infinite PSNR of equal pictures

Feed = dict[str, np.ndarray]


class TorchRunner(BaseRunner):  # type: ignore[misc]
    """A torch module as a polygraphy runner."""

    def __init__(self, spec: GraphSpec) -> None:
        super().__init__(name="torch")
        self.spec = spec

    def get_input_metadata_impl(self) -> TensorMetadata:
        metadata = TensorMetadata()
        for tensor in self.spec.inputs:
            shape = [-1 if size == "n" else size for size in tensor.shape]
            metadata.add(tensor.name, np.dtype(tensor.dtype), shape)
        return metadata

    def infer_impl(self, feed_dict: Feed) -> OrderedDict[str, np.ndarray]:
        given = [torch.from_numpy(feed_dict[tensor.name].copy()) for tensor in self.spec.inputs]
        arguments = (given[0], given[1:]) if self.spec.name == "decoder" else given
        start = time.perf_counter()
        with torch.no_grad():
            results = self.spec.module(*arguments)
        self.inference_time = time.perf_counter() - start
        results = results if isinstance(results, tuple) else (results,)
        return OrderedDict((t.name, r.numpy()) for t, r in zip(self.spec.outputs, results, strict=True))


def _run(runner: BaseRunner, feeds: list[Feed]) -> list[Feed]:
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
        results = Comparator.run([runner], data_loader=feeds)
        return [dict(iteration.items()) for iteration in results[runner.name]]


def _onnx(graph: onnx.ModelProto) -> BaseRunner:
    return OnnxrtRunner(SessionFromOnnx(graph.SerializeToString()), name="onnxruntime")


def hard_photos(size: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Named (image, mask) pairs, uint8 [1, s, s, 3] and [1, s, s, 1]."""
    random = np.random.default_rng(0)
    with Image.open(str(files("picme_sdk") / "samples" / "chelsea.jpg")) as photo:
        cat = np.asarray(photo.convert("RGB").resize((size, size), Image.Resampling.LANCZOS))
    pictures = {
        "random": random.integers(0, 256, (size, size, 3), np.uint8),
        "bright": np.full((size, size, 3), 255, np.uint8),
        "flat": np.full((size, size, 3), 128, np.uint8),
        "black": np.zeros((size, size, 3), np.uint8),
        "photo": cat,
    }
    mask = np.zeros((size, size, 1), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 255
    return {name: (picture[None], mask[None]) for name, picture in pictures.items()}


def latents(mixture: Feed, count: int) -> np.ndarray:
    """`count` samples of all primitives in turn, float32 [count, d]."""
    means, scales = mixture["means"][0], np.exp(mixture["log_scales"][0])
    noise = np.random.default_rng(1).standard_normal((count, means.shape[1]), np.float32)
    which = np.arange(count) % len(means)
    return np.asarray(means[which] + scales[which] * noise, np.float32)


class Chain:
    """The three graphs of one precision, or the torch modules, run one after the other."""

    def __init__(self, runners: dict[str, BaseRunner], skips: str) -> None:
        self.runners, self.skips = runners, skips

    @classmethod
    def of_torch(cls, specs: tuple[GraphSpec, ...]) -> Chain:
        return cls({spec.name: TorchRunner(spec) for spec in specs}, "float32")

    @classmethod
    def of_onnx(cls, graphs: dict[str, onnx.ModelProto], precision: str) -> Chain:
        return cls(
            {name: _onnx(graph) for name, graph in graphs.items()}, "float16" if precision == "float16" else "float32"
        )

    def encode(self, photos: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[list[Feed], list[Feed]]:
        encoded = _run(self.runners["encoder"], [{"image": image, "mask": mask} for image, mask in photos.values()])
        return encoded, _run(self.runners["mixture"], [{"context": e["context"]} for e in encoded])

    def decode(self, encoded: list[Feed], z: list[np.ndarray]) -> list[np.ndarray]:
        skips = [{k: v for k, v in e.items() if k.startswith("skip_")} for e in encoded]
        feeds = [{**s, "z": each} for s, each in zip(skips, z, strict=True)]
        return [result["image"] for result in _run(self.runners["decoder"], feeds)]


def _psnr(a: np.ndarray, b: np.ndarray, mask: np.ndarray) -> float:
    inside = np.broadcast_to(mask >= 128, a.shape)
    error = float(np.mean((a[inside].astype(float) - b[inside].astype(float)) ** 2))
    return EQUAL_DB if error == 0 else min(EQUAL_DB, 10 * float(np.log10(255**2 / error)))


def _require_finite(name: str, precision: str, labels: list[str], results: list[Feed]) -> None:
    for label, result in zip(labels, results, strict=True):
        for tensor, value in result.items():
            if not np.isfinite(value.astype(np.float32)).all():
                raise ExportError(
                    f"{name} in {precision}, input {label}: {tensor} is not finite", "finite numbers", "gate failed"
                )


def _gate(check: Check, passed: bool) -> Check:
    if not passed:
        relation = "at least" if check.measure == "psnr_db" else "at most"
        raise ExportError(
            f"{check.graph} ({check.compared}), input {check.input}: {check.measure} {check.value:.6g}",
            f"{relation} {check.limit:.6g}",
            "gate failed, no bundle was written",
        )
    return check


def verify(
    specs: tuple[GraphSpec, ...], graphs: dict[str, dict[str, onnx.ModelProto]], max_batch: int
) -> tuple[list[Check], str]:
    """Run every gate on {precision: {graph: model}}. Returns the measured numbers; the first gate that fails raises `ExportError`.

    INT8 is optional: if it fails its gate, it is removed from `graphs` instead, and the returned text says why.
    """
    photos = hard_photos(int(specs[0].inputs[0].shape[1]))
    labels, masks = list(photos), [mask for _, mask in photos.values()]
    torch_chain, plain = Chain.of_torch(specs), Chain.of_onnx(graphs["float32"], "float32")
    encoded_torch, mixture_torch = torch_chain.encode(photos)
    encoded, mixture = plain.encode(photos)
    _require_finite("encoder", "float32", labels, encoded)
    _require_finite("mixture", "float32", labels, mixture)
    checks: list[Check] = []
    refused = ""
    for graph, ours, theirs in (("encoder", encoded, encoded_torch), ("mixture", mixture, mixture_torch)):
        gaps = [max(float(np.abs(a[t] - b[t]).max()) for t in a) for a, b in zip(ours, theirs, strict=True)]
        worst = int(np.argmax(gaps))
        checks.append(
            _gate(
                Check(graph, "torch-float32", "max_abs", labels[worst], gaps[worst], MIXTURE_LIMIT),
                gaps[worst] <= MIXTURE_LIMIT,
            )
        )
    decoded: dict[int, list[np.ndarray]] = {}
    for batch in sorted({1, max_batch}):
        z = [latents(m, batch) for m in mixture]
        decoded[batch] = plain.decode(encoded, z)
        reference = torch_chain.decode(encoded_torch, z)
        gaps = [
            float(np.abs(a.astype(int) - b.astype(int)).max()) / 255
            for a, b in zip(decoded[batch], reference, strict=True)
        ]
        worst = int(np.argmax(gaps))
        label = f"{labels[worst]}, batch {batch}"
        checks.append(
            _gate(
                Check("decoder", "torch-float32", "max_abs", label, gaps[worst], IMAGE_LIMIT),
                gaps[worst] <= IMAGE_LIMIT,
            )
        )
    for precision in [p for p in graphs if p != "float32"]:
        chain = Chain.of_onnx({**graphs["float32"], **graphs[precision]}, precision)
        try:
            checks += _verify_precision(chain, precision, photos, labels, masks, mixture, decoded)
        except ExportError as error:
            if precision != "int8":
                raise
            del graphs[precision]
            refused = str(error)
    return checks, refused


def _verify_precision(
    chain: Chain,
    precision: str,
    photos: dict[str, tuple[np.ndarray, np.ndarray]],
    labels: list[str],
    masks: list[np.ndarray],
    mixture: list[Feed],
    decoded: dict[int, list[np.ndarray]],
) -> list[Check]:
    """The pictures of this precision against those of float32, for the same latents."""
    encoded, own_mixture = chain.encode(photos)
    _require_finite("encoder", precision, labels, encoded)
    _require_finite("mixture", precision, labels, own_mixture)
    checks, limit = [], PSNR_LIMITS[precision]
    for batch, expected in decoded.items():
        results = chain.decode(encoded, [latents(m, batch) for m in mixture])
        quality = [_psnr(a, b, mask) for a, b, mask in zip(results, expected, masks, strict=True)]
        worst = int(np.argmin(quality))
        label = f"{labels[worst]}, batch {batch}"
        checks.append(
            _gate(
                Check("decoder", f"float32-{precision}", "psnr_db", label, quality[worst], limit),
                quality[worst] >= limit,
            )
        )
    return checks
