"""The discriminator of L_A: training only, never exported."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from training.model import Pyramid

PATCH = 2
GRID_WIDTHS = {
    128: 24,
    64: 32,
    32: 64,
    16: 128,
    8: 192,
    4: 192,
}  # channels by grid, so that a larger one contains a smaller


class Discriminator(nn.Module):
    """Judges neighbourhoods: picture + mask -> a map of scores and the features on the way. Spectral norm throughout.

    The same pyramid as the encoder's, so `grow` works on it too.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        coarsest = 8 if size >= 64 else 4
        grids = [grid for grid in sorted(GRID_WIDTHS, reverse=True) if coarsest <= grid <= size // PATCH]
        widths = [GRID_WIDTHS[grid] for grid in grids]
        self.pyramid = Pyramid(4, PATCH, size, widths, [int(grid == coarsest) for grid in grids])
        self.score = nn.Conv2d(widths[-1], 1, 3, padding=1)
        for module in list(self.modules()):
            if isinstance(module, nn.Conv2d):
                spectral_norm(module)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        features = self.pyramid(F.pad(image, (0, 0, 0, 0, 0, 1)) + F.pad(mask, (0, 0, 0, 0, 3, 0)))
        return self.score(features[-1]), features
