"""The three graphs as thin modules: bytes at the borders, the network inside. Names and shapes here are the contract.

    encoder   image    uint8    [1, s, s, 3]    RGB
              mask     uint8    [1, s, s, 1]    128 or more = hole; the image is never read there
           -> context  float32  [1, c]          the code z_m, under its name in the bundle format
              skip_i   float    [1, w, g, g]    already projected for the decoder; i = 0 is the coarsest grid. With a pixel path one more:
                                                [1, p, g * g, 3 * p], its patches, by row of pixels in a patch
              finite   uint8    [1]             1 if every value of the other outputs is finite, so that no host must read them to know
    mixture   context  float32  [1, c]
           -> log_weights [1, k], means [1, k, d], log_scales [1, k, d], all float32
    decoder   z        float32  [n, d]          n = 1 .. max_batch latents against one photo
              skip_i   float    [1, w, g, g]
           -> image    uint8    [n, s, s, 3]    RGB, to be composited inside the hole

`float` is float32, or float16 in the FP16 versions of encoder and decoder: only the skips change their type, so a host treats all
precisions alike. The mixture is so small that it stays in float32. TensorRT accepts uint8 only at inputs and outputs, so Cast is the first
node after an input and the last before an output. There is no random operator in any graph.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picme_sdk.bundle import manifest
from training.layers import SLOPE, pull_push
from training.model import Picme, PixelPath

MAX_SUM = 3e38  # just below the largest float32


class EncoderGraph(nn.Module):
    """`Picme.encode` and the conversion from bytes, rearranged for speed; the numbers are the same.

    Averaging the picture down for every grid took a fifth of the time in ONNX Runtime, whose pooling is slow on few channels. Here one
    convolution computes cells of the averaged picture, half a patch a side, with all values of a cell in the channels of one position. Further
    convolutions halve the grid of cells, and each stem reads 2x2 cells instead of a patch of pixels. All of it stays in the memory layout of
    convolutions. The scaling to -1..1 is folded into the convolutions that read the bytes.
    """

    def __init__(self, model: Picme) -> None:
        super().__init__()
        self.model = model
        first, *others = (cast(nn.Conv2d, stem) for stem in model.encoder.stems.values())
        half = model.config.patch // 2
        each_pixel = torch.eye(4 * half**2).reshape(-1, 4, half, half)
        # A patch of pixels -> the cell of 2x2-pixel averages.
        averages = F.interpolate(each_pixel, scale_factor=2.0) / 4
        none = torch.zeros(len(averages))
        self.stem = _convolution(*_on_bytes(first.weight.data, _bias(first).data), first)
        self.cells = _convolution(*_on_bytes(averages, none), first)
        self.halve = _convolution(_on_cells(averages), none, first)
        self.stems = nn.ModuleList(
            _convolution(_on_cells(stem.weight.data), _bias(stem).data, first) for stem in others
        )
        self.pixels = None if model.pixel_path is None else PixelGraph(model.pixel_path)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        # Clamping makes 0..127 exactly 0 and 128..255 exactly 1 without a comparison.
        dtype = self.stem.weight.dtype
        hole = (mask.to(dtype).permute(0, 3, 1, 2) - 127).clamp(0, 1)
        picture = torch.cat([image.to(dtype).permute(0, 3, 1, 2) * (1 - hole), 255 * hole], 1)
        entries = [self.stem(picture)]
        cells: Tensor | None = None
        for stem in self.stems:
            cells = self.cells(picture) if cells is None else self.halve(cells)
            entries.append(stem(cells))
        features = self.model.encoder.climb(entries)
        code, skips = self.model.read(features)
        painted = () if self.pixels is None else (self.pixels(picture, features),)
        outputs = code.mean.float(), *skips, *painted
        # A sum keeps infinities and NaN, and is cheaper than testing every value. Concatenated, because INT8 would quantise additions.
        sums = [output.float().sum(list(range(1, output.ndim))) for output in outputs]
        total = torch.cat(sums).sum(0, keepdim=True)
        return *outputs, (total.abs() < MAX_SUM).to(torch.uint8)


class PixelGraph(nn.Module):
    """`PixelPath` on bytes: the hole is filled in the picture itself, and one convolution with a stride of a patch reads three patches a side, so
    that no pixels are shuffled. Its output has the order and scale in which the decoder adds it."""

    def __init__(self, path: PixelPath) -> None:
        super().__init__()
        self.path, self.patch = path, path.patch
        wide, dtype = path.look.weight.shape[0], path.look.weight.dtype
        patches = path.look.weight.data.float().reshape(wide, 4, self.patch, self.patch, 3, 3)
        weight = patches.permute(0, 1, 4, 2, 5, 3).reshape(wide, 4, 3 * self.patch, 3 * self.patch)
        # The guess fills the hole, so a colour is b / 127.5 - 1 everywhere except in the padding, where it is 0: a fifth channel marks the inside.
        inside = -weight[:, :3].sum(1, keepdim=True)
        weight = torch.cat([weight[:, :3] / 127.5, weight[:, 3:] / 255, inside], 1)
        self.look = nn.Conv2d(5, wide, 3 * self.patch, self.patch, self.patch, dtype=dtype)
        self.look.weight.data.copy_(weight)
        _bias(self.look).data.copy_(_bias(path.look).data)
        order = _patch_order(self.patch, nested=False)
        self.paint = copy.deepcopy(path.paint)
        self.paint.weight.data.copy_(127.5 * path.paint.weight.data[order].float())
        _bias(self.paint).data.copy_(127.5 * _bias(path.paint).data[order].float())

    def forward(self, picture: Tensor, features: list[Tensor]) -> Tensor:
        averages = F.avg_pool2d(picture, self.patch)
        guess = pull_push(averages[:, :3], 1 - averages[:, 3:] / 255)
        hole = picture[:, 3:] / 255
        filled = picture[:, :3] + hole * F.interpolate(guess, scale_factor=float(self.patch))
        x = self.look(torch.cat([filled, picture[:, 3:], torch.ones_like(hole)], 1))
        x = self.path.block(F.leaky_relu(x + self.path.hint(features), SLOPE))
        painted: Tensor = self.paint(x)
        _, channels, grid, _ = painted.shape
        rows = painted.reshape(1, self.patch, channels // self.patch, grid * grid)
        return rows.permute(0, 1, 3, 2).contiguous()


def _convolution(weight: Tensor, bias: Tensor, like: nn.Conv2d) -> nn.Conv2d:
    """A convolution whose stride is its kernel, in the precision of another."""
    outputs, inputs, kernel, _ = weight.shape
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=kernel, dtype=like.weight.dtype)
    convolution.weight.data.copy_(weight)
    _bias(convolution).data.copy_(bias)
    return convolution


def _bias(layer: nn.Conv2d | nn.Linear) -> Tensor:
    """The bias of a layer that has one."""
    if layer.bias is None:
        raise TypeError(f"{layer} has no bias")
    return layer.bias


def _on_bytes(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weights for colours in -1..1 (0 in the hole) and the mask h -> weights for bytes b (0 in the hole) and 255 h.

    A colour is b / 127.5 - (1 - h). The mask has the range of the bytes, so that 8-bit integers can hold both.
    """
    weight, bias = weight.float(), bias.float()
    colours, hole = weight[:, :3], weight[:, 3:]
    total = colours.sum(1, keepdim=True)
    return torch.cat([colours / 127.5, (hole + total) / 255], 1), bias - total.sum((1, 2, 3))


def _on_cells(weight: Tensor) -> Tensor:
    """Weights for a patch of pixels [o, c, p, p] -> for its four cells [o, c * (p / 2)^2, 2, 2]."""
    outputs, channels, patch, _ = weight.shape
    half = patch // 2
    return weight.reshape(outputs, channels, 2, half, 2, half).permute(0, 1, 3, 5, 2, 4).reshape(outputs, -1, 2, 2)


class MixtureGraph(nn.Module):
    """`Picme.mixture`."""

    def __init__(self, model: Picme) -> None:
        super().__init__()
        self.model = model

    def forward(self, context: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model.mixture(context))


class DecoderGraph(nn.Module):
    """`Picme.decode` and the conversion to bytes, rearranged for speed; the numbers are the same.

    The network paints patches as channels. Rearranging them to pixels channel by channel moves single floats, which costs more than some
    convolutions. Here the weights are permuted so that patches are channels-last and whole runs of pixels move at once; the last patches are
    computed one row of pixels at a time, so that the rows only have to be interleaved. The scaling to 0..255 (with the half that turns truncation
    into rounding) is folded into the last weights. Everything that depends on the latent alone is computed in one matrix product.
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
            head = cast(nn.Conv2d, self.decoder.heads[grid])
            weight = head.weight.data[order, :, 0, 0].float()
            if grid != grids[0]:  # head and lift in one product
                lift = cast(nn.Conv2d, self.decoder.lifts[grid]).weight.data[order].permute(0, 2, 3, 1).flatten(1)
                weight = torch.cat([weight, lift.float()], 1)
            bias = scale * _bias(head).data[order].float() + middle
            rows = self.patch if last else 1
            for row, (w, b) in enumerate(zip((scale * weight).chunk(rows), bias.chunk(rows), strict=True)):
                self.register_buffer(f"weight_{grid}_{row}", w.to(self.dtype, copy=True))
                self.register_buffer(f"bias_{grid}_{row}", b.to(self.dtype, copy=True))
            if self.dtype == torch.float32:
                # Max-pooling over one pixel changes nothing. But ONNX Runtime keeps the output of a pooling in the layout of its
                # convolutions, and only then fuses the residual sum and its activation with them. On a GPU it would be wasted work.
                cast(nn.Sequential, self.decoder.stages[grid]).insert(0, nn.MaxPool2d(1))
        parts = [cast(nn.Linear, part) for part in (self.decoder.place, *self.decoder.films.values())]
        at_zero = self.decoder.steer(torch.zeros(1, parts[0].in_features, dtype=self.dtype))
        self.sizes = [each.shape[1] for each in at_zero]
        self.steering = nn.Linear(parts[0].in_features, sum(self.sizes), dtype=self.dtype)
        self.steering.weight.data = torch.cat([part.weight.data for part in parts])
        self.steering.bias.data = torch.cat(at_zero, 1)[0].detach()

    def forward(self, z: Tensor, skips: list[Tensor]) -> Tensor:
        painted: Tensor | None = None
        stages = len(self.decoder.grids)
        skips, pixels = skips[:stages], skips[stages:]
        steering = self.steering(z.to(self.dtype)).split(self.sizes, 1)
        for grid, x in zip(self.decoder.grids, self.decoder.features(skips, steering), strict=True):
            values = x.permute(0, 2, 3, 1)
            if painted is not None:
                values = torch.cat([values, _unfold(painted)], -1)
            if grid != self.decoder.grids[-1]:
                painted = self._product(values, grid, 0).reshape(-1, grid, grid, 3 * self.patch**2)
        rows = [self._product(values, grid, row) for row in range(self.patch)]
        if pixels:
            rows = [row.reshape(-1, grid * grid, 3 * self.patch) + pixels[0][:, i] for i, row in enumerate(rows)]
        rows = [row.reshape(-1, grid, 1, 3 * grid * self.patch) for row in rows]
        side = grid * self.patch
        return torch.cat(rows, 2).clamp(0, 255).reshape(-1, side, side, 3).to(torch.uint8)

    def _product(self, values: Tensor, grid: int, row: int) -> Tensor:
        weight, bias = getattr(self, f"weight_{grid}_{row}"), getattr(self, f"bias_{grid}_{row}")
        return F.linear(values.reshape(-1, values.shape[-1]), weight, bias)


def _patch_order(patch: int, nested: bool) -> Tensor:
    """Where each channel (row, column, colour) of a patch is in the network's order (colour, row, column). Nested: quarter by quarter,
    because the next stage divides a patch into its quarters."""
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
    context = manifest.Tensor("context", "float32", (1, config.code))
    grids = zip(config.grids[::-1], config.widths[::-1], strict=True)
    shapes = [(1, width, grid, grid) for grid, width in grids]
    if config.pixel_path_width:
        shapes.append((1, config.patch, config.grids[0] ** 2, 3 * config.patch))
    skips = tuple(manifest.Tensor(f"skip_{i}", precise, shape) for i, shape in enumerate(shapes))
    z = manifest.Tensor("z", "float32", ("n", d))
    mixture = (
        manifest.Tensor("log_weights", "float32", (1, k)),
        manifest.Tensor("means", "float32", (1, k, d)),
        manifest.Tensor("log_scales", "float32", (1, k, d)),
    )
    finite = manifest.Tensor("finite", "uint8", (1,))
    completed = manifest.Tensor("image", "uint8", ("n", size, size, 3))
    return (
        GraphSpec("encoder", EncoderGraph(model).eval(), (image, mask), (context, *skips, finite)),
        GraphSpec("mixture", MixtureGraph(model).eval(), (context,), mixture),
        GraphSpec("decoder", DecoderGraph(model).eval(), (z, *skips), (completed,)),
    )
