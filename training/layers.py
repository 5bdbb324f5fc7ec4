"""The layers that the network and the discriminator are built from: residual blocks, attention, the pyramid of grids, Gaussian heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1  # of the leaky ReLUs


class Gaussian(NamedTuple):
    """A diagonal Gaussian; `log_scale` is the logarithm of the standard deviation."""

    mean: Tensor
    log_scale: Tensor


SURE = -2.0  # before `bounded`: a standard deviation of 0.06


def bounded(raw: Tensor) -> Tensor:
    """Log-scales between -4 and 2: without a lower bound a variance collapses to zero and L_BM diverges."""
    return 3.0 * torch.tanh(raw / 3.0) - 1.0


def start_at_zero(layer: nn.Module) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


class Block(nn.Module):
    """Residual block. The activation comes last so that a runtime fuses convolution, sum and activation into one kernel (ONNX
    Runtime fuses a plain ReLU only)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        with torch.no_grad():  # no norm layers: start near the identity instead
            self.second.weight.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(F.leaky_relu(self.first(x), SLOPE)))


class Attention(nn.Module):
    """Self-attention over all cells of a grid, so that distant parts of the picture inform each other. Starts as the identity."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.ask = nn.Conv2d(width, 3 * width, 1)
        self.answer = nn.Conv2d(width, width, 1)
        start_at_zero(self.answer)

    def forward(self, x: Tensor) -> Tensor:
        _, width, height, side = x.shape
        each = width // self.heads
        query, key, value = self.ask(x).reshape(-1, 3, self.heads, each, height * side).unbind(1)
        weights = torch.softmax(query.transpose(2, 3) @ key * each**-0.5, -1)
        answer: Tensor = self.answer((value @ weights.transpose(2, 3)).reshape(-1, width, height, side))
        return x + answer


class Pyramid(nn.Module):
    """Features of a picture on successively halved grids, finest first. The picture enters at every grid."""

    def __init__(
        self,
        channels: int,
        patch: int,
        size: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        attention: int = 0,
    ) -> None:
        super().__init__()
        self.grids = [size // patch >> i for i in range(len(widths))]
        self.stems, self.downs, self.stages = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for i, (grid, width, count) in enumerate(zip(self.grids, widths, blocks, strict=True)):
            self.stems[str(grid)] = nn.Conv2d(channels, width, patch, stride=patch)
            if i:
                self.downs[str(grid)] = nn.Conv2d(widths[i - 1], width, 3, stride=2, padding=1)
            stage = nn.Sequential(*(Block(width) for _ in range(count)))
            self.stages[str(grid)] = stage.append(Attention(width)) if grid == attention else stage

    def forward(self, picture: Tensor) -> list[Tensor]:
        entries: list[Tensor] = []
        for grid in map(str, self.grids):
            if entries:
                picture = F.avg_pool2d(picture, 2)
            entries.append(self.stems[grid](picture))
        return self.climb(entries)

    def climb(self, entries: Sequence[Tensor]) -> list[Tensor]:
        """Features from the outputs of the stems at every grid."""
        features: list[Tensor] = []
        for grid, x in zip(map(str, self.grids), entries, strict=True):
            if features:
                x = x + self.downs[grid](features[-1])
            features.append(self.stages[grid](F.leaky_relu(x, SLOPE)))
        return features


def pull_push(colours: Tensor, visible: Tensor) -> Tensor:
    """The holes of a coarse picture filled from their surroundings (Gortler et al., 1996).

    `colours` [b, 3, g, g] are the visible colours of each cell, weighted by `visible` [b, 1, g, g], the visible share of the cell. Both are
    averaged down to a grid of 2 or 3; on the way back, a cell keeps its own colour as far as it is visible. Returns colours [b, 3, g, g].
    """
    if colours.shape[-1] <= 3:
        average = colours.mean((2, 3), keepdim=True) / visible.mean((2, 3), keepdim=True).clamp_min(1e-3)
        return average.expand_as(colours)
    coarse = pull_push(F.avg_pool2d(colours, 2), F.avg_pool2d(visible, 2))
    coarse = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
    surroundings = 0.05  # weight of the coarser grid, as a visible share
    return (colours + surroundings * coarse) / (visible + surroundings)


class GaussianHead(nn.Module):
    """Coarsest feature map -> one Gaussian for the whole picture."""

    def __init__(self, width: int, grid: int, dimensions: int, sure: bool = False) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width, 32, 1)
        self.out = nn.Linear(32 * grid * grid, 2 * dimensions)
        if sure:  # a code that starts as noise is ignored, and stays noise: start with little of it
            with torch.no_grad():
                self.out.bias[dimensions:].fill_(SURE)

    def forward(self, coarse: Tensor) -> Gaussian:
        mean, log_scale = self.out(F.leaky_relu(self.squeeze(coarse), SLOPE).flatten(1)).chunk(2, 1)
        return Gaussian(mean, bounded(log_scale))
