"""Writes the tiny bundle that the tests of every runtime share (Python, C++, browser): python tests/data/make_tiny.py

A model of 32x32 pixels, 4 primitives and 16 latent dimensions, untrained but for fixed seeds, in float32 and FP16. It is committed, so those tests need
neither torch nor an export. Run this again when the format of bundles or the contract of the graphs changes. tests/data/tiny_format_1 is what it wrote
before format 2, and never changes: every reader must accept it.

Its engines are placeholders, which no TensorRT would load: the tests ask which engines are chosen and refused, and that happens before.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import nn  # noqa: E402

from export import to_trt  # noqa: E402
from export.write import entry, write_bundle  # noqa: E402
from picme_sdk.bundle.manifest import EngineFile, Manifest  # noqa: E402
from picme_sdk.contract import GRAPHS  # noqa: E402
from training.config import TrainConfig, load  # noqa: E402
from training.model import Picme  # noqa: E402

OUT = HERE / "tiny"
HIDDEN = 24  # of the mixture head, which has 512 units elsewhere


def model_and_config() -> tuple[Picme, TrainConfig]:
    torch.manual_seed(0)
    config = load(ROOT / "training" / "configs" / "tiny32.toml")
    config = replace(config, name="tiny", model=replace(config.model, widths=(8, 12), context=8))
    model = Picme(config.model)
    head = model.mixture_head
    outputs = config.model.primitives * config.model.latent
    head.trunk = nn.Linear(config.model.context, HIDDEN)
    head.alpha, head.mu, head.sigma = (nn.Linear(HIDDEN, size) for size in (config.model.primitives, outputs, outputs))
    with torch.no_grad():  # as after training: primitives of different weight, in different places
        head.alpha.weight.zero_()
        head.alpha.bias.copy_(torch.tensor([1.0, 0.5, 0.0, -0.5]))
        nn.init.normal_(head.mu.bias)
    return model.eval(), config


def placeholders(manifest: Manifest, contents: dict[str, bytes]) -> tuple[EngineFile, ...]:
    engines = []
    for name in GRAPHS:
        source = manifest.graph(name, "float16")
        file, data = f"engines/{name}.engine", f"a placeholder for the {name}'s engine\n".encode() * 8
        contents[file] = data
        engines.append(
            EngineFile(
                graph=name, precision=source.precision, **entry(file, data), inputs=source.inputs, outputs=source.outputs,
                builder="tensorrt_rtx", version="1.2.0.54", target="ampere+", source=source.sha256, profiles=((1, 6, 16),),
            )
        )  # fmt: skip
    return tuple(engines)


def main() -> None:
    model, config = model_and_config()
    to_trt.load_weights = lambda path: (model, config, {})  # the only way in: a checkpoint can't hold the small head
    options = to_trt.arguments(["--ckpt", "tiny", "--builder", "none", "--licence", "CC0-1.0"])
    manifest, contents = to_trt.Export(options).from_checkpoint()
    manifest = replace(manifest, engines=placeholders(manifest, contents))
    write_bundle(OUT, manifest, contents, {"report.md": b"A tiny bundle for tests.\n"}, force=True)


if __name__ == "__main__":
    main()
