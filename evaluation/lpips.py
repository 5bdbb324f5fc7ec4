"""LPIPS with AlexNet (Zhang et al., 2018, version 0.1): a distance between pictures that agrees with people better than pixel errors do.

The user provides the weights, which are not in the repository: a safetensors file with AlexNet's `features.N.weight|bias` (torchvision's names)
and the five heads `lin0` .. `lin4`. The same network provides the features of the Frechet distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from picme_sdk.errors import BadArgument

# Convolutions by their number in torchvision's AlexNet: inputs, outputs, kernel, stride, padding. A pooling precedes the 2nd and 3rd.
LAYERS = {0: (3, 64, 11, 4, 2), 3: (64, 192, 5, 1, 2), 6: (192, 384, 3, 1, 1), 8: (384, 256, 3, 1, 1), 10: (256, 256, 3, 1, 1)}  # fmt: skip
POOLED = (3, 6)
MIN_SIDE = 32  # pixels that AlexNet needs


class Activations(NamedTuple):
    """The network's activations for n pictures."""

    maps: list[Tensor]  # after each of the five ReLUs [n, c, h, w], channels scaled to length one
    features: Tensor  # the last ones, unscaled, averaged over positions [n, 256], for the Frechet distance

    def pick(self, numbers: Sequence[int]) -> Activations:
        return Activations([layer[list(numbers)] for layer in self.maps], self.features[list(numbers)])


class Lpips(nn.Module):
    """Pictures are float [n, 3, h, w] in 0..1. `embed` is the expensive part; distances between activations are cheap."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.ModuleDict({str(i): nn.Conv2d(a, b, k, s, p) for i, (a, b, k, s, p) in LAYERS.items()})
        for number, (_, outputs, *_rest) in enumerate(LAYERS.values()):
            self.register_buffer(f"lin{number}", torch.zeros(outputs))
        # ImageNet's mean and standard deviation, for pictures in -1..1.
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188]).reshape(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450]).reshape(3, 1, 1), persistent=False)

    @torch.no_grad()
    def embed(self, pictures: Tensor) -> Activations:
        x = (2 * pictures - 1 - self.shift) / self.scale
        maps = []
        for name, layer in self.features.items():
            if int(name) in POOLED:
                x = F.max_pool2d(x, 3, 2)
            x = F.relu(layer(x))
            maps.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
        return Activations(maps, x.mean((2, 3)))

    def layers(self, a: Activations, b: Activations) -> list[Tensor]:
        """The distance at each position [n, h, w] of the five layers; a single picture is compared with all."""
        heads = (getattr(self, f"lin{number}").reshape(-1, 1, 1) for number in range(len(LAYERS)))
        return [(head * (x - y).square()).sum(1) for head, x, y in zip(heads, a.maps, b.maps, strict=True)]

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return whole(self.layers(self.embed(a), self.embed(b)))


def whole(layers: list[Tensor]) -> Tensor:
    """LPIPS [n]: the mean over positions, summed over layers."""
    return torch.stack([layer.mean((1, 2)) for layer in layers]).sum(0)


def inside(layers: list[Tensor], hole: Tensor) -> Tensor:
    """LPIPS [n] inside the hole [h, w] (1 = hole): each layer is enlarged to the picture and averaged over the hole."""
    large = (F.interpolate(layer[:, None], hole.shape, mode="bilinear", align_corners=False)[:, 0] for layer in layers)
    return torch.stack([(layer * hole).sum((1, 2)) / hole.sum() for layer in large]).sum(0)


def load_lpips(path: Path) -> Lpips:
    network = Lpips()
    try:
        network.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BadArgument(
            f"{path}: {reason}",
            "a safetensors file with features.N.weight, features.N.bias and lin0 to lin4",
            "see docs/train/evaluation.md",
        ) from error
    return network.eval().requires_grad_(False)
