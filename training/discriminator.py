"""The discriminator of L_A: training only, never exported."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model import SLOPE, Pyramid

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
    """Judges neighbourhoods: picture + mask -> scores [b, cells] and the features on the way.

    Two grids give scores, one for structure (the coarsest) and one for texture (four times finer): a blurred or gridded fill
    of the right colours is no longer half right. Nothing bounds its slope but `losses.slope_penalty`: under spectral norm it
    learnt to tell blurred fur from real too slowly. The same pyramid as the encoder's, so `grow` works on it too.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        coarsest = 8 if size >= 64 else 4
        grids = [grid for grid in sorted(GRID_WIDTHS, reverse=True) if coarsest <= grid <= size // PATCH]
        widths = [GRID_WIDTHS[grid] for grid in grids]
        self.pyramid = Pyramid(4, PATCH, size, widths, [int(grid == coarsest) for grid in grids])
        self.scores = nn.ModuleDict(
            {
                str(grid): nn.Conv2d(GRID_WIDTHS[grid], 1, 3, padding=1)
                for grid in grids
                if grid in (coarsest, 4 * coarsest)
            }
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, SLOPE)
                nn.init.zeros_(module.bias)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        features = self.pyramid(F.pad(image, (0, 0, 0, 0, 0, 1)) + F.pad(mask, (0, 0, 0, 0, 3, 0)))
        found = dict(zip(map(str, self.pyramid.grids), features, strict=True))
        return torch.cat([head(found[grid]).flatten(1) for grid, head in self.scores.items()], 1), features

    def weights(self, mask: Tensor) -> Tensor:
        """How much each score counts [b, cells], summing to 1 for a picture: as much of a cell as is hole.

        Outside the hole a completed picture *is* the photo: calling that fake would teach the discriminator nothing.
        """
        shares = [F.adaptive_avg_pool2d(mask, int(grid)).flatten(1) for grid in self.scores]
        return torch.cat([share / share.sum(1, keepdim=True).clamp_min(1e-6) for share in shares], 1) / len(shares)
