"""The three graphs as thin modules: bytes at the borders, the network inside. Names and shapes here are the contract.

    encoder   image    uint8    [1, s, s, 3]    RGB
              mask     uint8    [1, s, s, 1]    128 or more = hole; what the image holds there is never looked at
           -> context  float32  [1, c]          z_m
              skip_i   float    [1, w, g, g]    already projected for the decoder; i = 0 is the coarsest grid
    mixture   context  float32  [1, c]
           -> log_weights [1, k], means [1, k, d], log_scales [1, k, d], all float32
    decoder   z        float32  [n, d]          n = 1 .. max_batch latents against one photo
              skip_i   float    [1, w, g, g]
           -> image    uint8    [n, s, s, 3]    RGB, to be composited inside the hole

`float` is float32, or float16 in the FP16 twins of encoder and decoder: only the skips change their type, so a host treats all
precisions alike. The mixture is so small that it stays in float32. TensorRT takes uint8 only right at the border, so Cast is the first
node after an input and the last before an output. There is no random operator in any graph.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picme_sdk import manifest
from training.model import Picme


class EncoderGraph(nn.Module):
    def __init__(self, model: Picme) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        # Clamping makes 0..127 exactly 0 and 128..255 exactly 1 without a comparison.
        dtype = next(self.model.parameters()).dtype
        hole = (mask.to(dtype).permute(0, 3, 1, 2) - 127).clamp(0, 1)
        picture = (image.to(dtype).permute(0, 3, 1, 2) / 127.5 - 1) * (1 - hole)
        context, skips = self.model.encode(picture, hole)
        return context.float(), *skips


class MixtureGraph(nn.Module):
    def __init__(self, model: Picme) -> None:
        super().__init__()
        self.model = model

    def forward(self, context: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model.mixture(context))


class DecoderGraph(nn.Module):
    """`Picme.decode` and the conversion to bytes, rearranged for speed; the numbers are the same.

    The network paints patches as channels. Turning them into pixels channel by channel moves single floats, which costs more than some
    convolutions. Here the weights are permuted so that patches are channels-last and whole runs of pixels move at once; the last patches are
    made one row of pixels at a time, so that the rows only have to be interleaved. The scaling to 0..255 (with the half that makes truncation
    round) is folded into the last weights.
    """

    def __init__(self, model: Picme) -> None:
        super().__init__()
        self.decoder = copy.deepcopy(model.decoder)
        self.dtype = model.decoder.spread.weight.dtype
        self.patch, grids = self.decoder.patch, [str(grid) for grid in self.decoder.grids]
        for grid in grids:
            last = grid == grids[-1]
            scale, middle = (127.5, 127.5 + 0.5) if last else (1.0, 0.0)
            order = _patch_order(self.patch, nested=not last)
            head = self.decoder.heads[grid]
            weight = head.weight.data[order, :, 0, 0].float()
            if grid != grids[0]:  # head and lift in one product
                lift = self.decoder.lifts[grid].weight.data[order].permute(0, 2, 3, 1).flatten(1)
                weight = torch.cat([weight, lift.float()], 1)
            bias = scale * head.bias.data[order].float() + middle
            rows = self.patch if last else 1
            for row, (w, b) in enumerate(zip((scale * weight).chunk(rows), bias.chunk(rows), strict=True)):
                self.register_buffer(f"weight_{grid}_{row}", w.to(self.dtype, copy=True))
                self.register_buffer(f"bias_{grid}_{row}", b.to(self.dtype, copy=True))
            if self.dtype == torch.float32:
                # The largest of one pixel is that pixel. But ONNX Runtime keeps what a pooling gives in the layout of its convolutions, and
                # only so joins the residual sum and its activation to them. A GPU would run it for nothing.
                self.decoder.stages[grid].insert(0, nn.MaxPool2d(1))

    def forward(self, z: Tensor, skips: list[Tensor]) -> Tensor:
        painted: Tensor | None = None
        for grid, x in zip(self.decoder.grids, self.decoder.features(skips, z.to(self.dtype)), strict=True):
            known = x.permute(0, 2, 3, 1)
            if painted is not None:
                known = torch.cat([known, _unfold(painted)], -1)
            if grid != self.decoder.grids[-1]:
                painted = self._product(known, grid, 0).reshape(-1, grid, grid, 3 * self.patch**2)
        rows = [
            self._product(known, grid, row).reshape(-1, grid, 1, 3 * grid * self.patch) for row in range(self.patch)
        ]
        side = grid * self.patch
        return torch.cat(rows, 2).clamp(0, 255).reshape(-1, side, side, 3).to(torch.uint8)

    def _product(self, known: Tensor, grid: int, row: int) -> Tensor:
        weight, bias = getattr(self, f"weight_{grid}_{row}"), getattr(self, f"bias_{grid}_{row}")
        return F.linear(known.reshape(-1, known.shape[-1]), weight, bias)


def _patch_order(patch: int, nested: bool) -> Tensor:
    """Where each channel (row, column, colour) of a patch is in the network's order (colour, row, column). Nested: quarter by quarter,
    because the next stage takes a patch apart into its quarters."""
    channels = torch.arange(3 * patch * patch).reshape(3, patch, patch)
    if not nested:
        return channels.permute(1, 2, 0).flatten()
    half = patch // 2
    return channels.reshape(3, 2, half, 2, half).permute(1, 3, 2, 4, 0).flatten()


def _unfold(patches: Tensor) -> Tensor:
    """[n, g, g, 4 * c] -> [n, 2 * g, 2 * g, c]: quarters become cells, moving runs of 2 * c values."""
    _, grid, _, channels = patches.shape
    rows = patches.reshape(-1, grid, grid, 2, channels // 2).permute(0, 1, 3, 2, 4)
    return rows.reshape(-1, 2 * grid, 2 * grid, channels // 4)


@dataclass(frozen=True)
class GraphSpec:
    """A module to export, an example input for it, and the names and shapes of its tensors."""

    name: str
    module: nn.Module
    inputs: tuple[manifest.Tensor, ...]
    outputs: tuple[manifest.Tensor, ...]

    def example(self, batch: int = 2) -> tuple[Tensor, ...]:
        def make(spec: manifest.Tensor) -> Tensor:
            shape = [batch if size == "n" else int(size) for size in spec.shape]
            return torch.zeros(shape, dtype=getattr(torch, spec.dtype))

        return tuple(make(spec) for spec in self.inputs)


def graph_specs(model: Picme) -> tuple[GraphSpec, ...]:
    """Encoder, mixture and decoder of a model (float32 or half), in the order in which they run."""
    config = model.config
    precise = "float16" if next(model.parameters()).dtype == torch.float16 else "float32"
    size, k, d = config.image_size, config.primitives, config.latent
    image = manifest.Tensor("image", "uint8", (1, size, size, 3))
    mask = manifest.Tensor("mask", "uint8", (1, size, size, 1))
    context = manifest.Tensor("context", "float32", (1, config.context))
    grids = zip(config.grids[::-1], config.widths[::-1], strict=True)
    skips = tuple(manifest.Tensor(f"skip_{i}", precise, (1, w, g, g)) for i, (g, w) in enumerate(grids))
    z = manifest.Tensor("z", "float32", ("n", d))
    mixture = (
        manifest.Tensor("log_weights", "float32", (1, k)),
        manifest.Tensor("means", "float32", (1, k, d)),
        manifest.Tensor("log_scales", "float32", (1, k, d)),
    )
    completed = manifest.Tensor("image", "uint8", ("n", size, size, 3))
    return (
        GraphSpec("encoder", EncoderGraph(model).eval(), (image, mask), (context, *skips)),
        GraphSpec("mixture", MixtureGraph(model).eval(), (context,), mixture),
        GraphSpec("decoder", DecoderGraph(model).eval(), (z, *skips), (completed,)),
    )
