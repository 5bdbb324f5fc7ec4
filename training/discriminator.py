"""The two discriminators of L_A: training only, never exported.

A discriminator has two parts. `inputs` has no parameters to train: the picture itself, or the features of a frozen network. `forward`
scores these inputs cell by cell. The inputs of a fake are computed once and serve the generator's step and the discriminator's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.backbone import CHANNELS, Backbone
from training.layers import SLOPE, Pyramid, start_at_zero

PATCH = 2
# Channels by side of the grid, so that the discriminator of a larger picture contains that of a smaller one.
GRID_WIDTHS = {128: 24, 64: 32, 32: 64, 16: 128, 8: 192, 4: 192}
VIEW = 128  # side of the pictures that the backbone gets, pixels
HEAD_WIDTHS = {2: 32, 4: 32, 8: 64, 16: 64}  # channels of the heads on the backbone, by stride of the features


def hole_weights(mask: Tensor, grids: Sequence[int]) -> Tensor:
    """Weights of the scores [b, cells], summing to 1 per picture: proportional to the share of a cell that is hole.

    Outside the hole a completed picture *is* the photo: calling that fake would teach the discriminator nothing.
    """
    shares = [F.adaptive_avg_pool2d(mask, grid).flatten(1) for grid in grids]
    return torch.cat([share / share.sum(1, keepdim=True).clamp_min(1e-6) for share in shares], 1) / len(shares)


class PyramidDiscriminator(nn.Module):
    """Trained from scratch: picture + mask -> scores [b, cells] and the features on the way.

    Two grids have scores, one for structure (the coarsest) and one for texture (four times finer): a blurred or gridded fill
    of the right colours is no longer half right. Only `losses.gradient_penalty` bounds its gradient: under spectral norm it
    learnt too slowly to tell blurred fur from real fur. It is the encoder's pyramid, so `grow` works on it too.
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
        initialise(self)

    def inputs(self, picture: Tensor, mask: Tensor) -> list[Tensor]:
        return [picture]

    def forward(self, inputs: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        features: list[Tensor] = self.pyramid(F.pad(inputs[0], (0, 0, 0, 0, 0, 1)) + F.pad(mask, (0, 0, 0, 0, 3, 0)))
        by_grid = dict(zip(map(str, self.pyramid.grids), features, strict=True))
        return torch.cat([head(by_grid[grid]).flatten(1) for grid, head in self.scores.items()], 1), features

    def weights(self, mask: Tensor) -> Tensor:
        return hole_weights(mask, [int(grid) for grid in self.scores])


class BackboneDiscriminator(nn.Module):
    """Small trained heads on the features of a frozen network (`Backbone`), one for each of its four scales.

    The frozen network already knows what fur, eyes and noses look like, so the generator gets useful gradients from the first
    minutes on. A picture of more than `VIEW` pixels enters twice, shrunk to that size and as a crop of that size around the hole, which
    costs half as much as the whole picture.
    """

    def __init__(self, size: int, backbone: Backbone) -> None:
        super().__init__()
        self._backbone = (backbone,)  # inside a tuple, so that state_dict, parameters() and Adam leave it alone
        self.heads = nn.ModuleDict()
        for view in ("whole",) if size <= VIEW else ("whole", "piece"):
            for stride, width in HEAD_WIDTHS.items():
                self.heads[f"{view}{stride}"] = nn.Sequential(
                    # The finest map is larger than all others together, so its scores are on a coarser grid.
                    nn.Conv2d(CHANNELS[stride] + 1, width, 3, padding=1, stride=2 if stride == 2 else 1),
                    nn.LeakyReLU(SLOPE),
                    nn.Conv2d(width, width, 3, padding=1),
                    nn.LeakyReLU(SLOPE),
                    nn.Conv2d(width, 1, 1),
                )
        initialise(self)

    def inputs(self, picture: Tensor, mask: Tensor) -> list[Tensor]:
        return [features for view in self._views(picture, mask) for features in self._backbone[0](view)]

    def forward(self, inputs: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        scores = []
        holes = [view for view in self._views(mask, mask) for _ in HEAD_WIDTHS]
        for head, features, hole in zip(self.heads.values(), inputs, holes, strict=True):
            hole = F.adaptive_avg_pool2d(hole, features.shape[-1])
            scores.append(head(torch.cat([features, hole], 1)).flatten(1))
        return torch.cat(scores, 1), list(inputs)

    def weights(self, mask: Tensor) -> Tensor:
        each = [
            hole_weights(view, [view.shape[-1] // max(stride, 4) for stride in HEAD_WIDTHS])
            for view in self._views(mask, mask)
        ]
        return torch.cat(each, 1) / len(each)

    def _views(self, picture: Tensor, mask: Tensor) -> list[Tensor]:
        size = picture.shape[-1]
        if size <= VIEW:
            return [picture]
        places = torch.arange(size, device=mask.device, dtype=mask.dtype)
        area = mask.sum((1, 2, 3)).clamp_min(1)
        middles = [((mask.sum(axes) * places).sum(1) / area) for axes in ((1, 3), (1, 2))]  # of the hole: rows, columns
        tops, lefts = ((m - VIEW / 2).round().long().clamp(0, size - VIEW).tolist() for m in middles)
        crops = [p[:, y : y + VIEW, x : x + VIEW] for p, y, x in zip(picture, tops, lefts, strict=True)]
        return [F.adaptive_avg_pool2d(picture, VIEW), torch.stack(crops)]


Discriminator = PyramidDiscriminator | BackboneDiscriminator


def initialise(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            start_at_zero(module)
            nn.init.kaiming_normal_(module.weight, SLOPE)
