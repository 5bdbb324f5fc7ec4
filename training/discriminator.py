"""The two discriminators of L_A: training only, never exported.

Both first `look` at a picture without learning anything, and then judge what they saw, cell by cell: what they saw of a
fake serves the generator's step and the discriminator's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.backbone import CHANNELS, Backbone
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
VIEW = 128  # pixels a side that the backbone is shown
HEAD_WIDTHS = {2: 32, 4: 32, 8: 64, 16: 64}  # of the heads on the backbone, by stride of the features


def hole_weights(mask: Tensor, grids: Sequence[int]) -> Tensor:
    """How much each score counts [b, cells], summing to 1 for a picture: as much of a cell as is hole.

    Outside the hole a completed picture *is* the photo: calling that fake would teach the discriminator nothing.
    """
    shares = [F.adaptive_avg_pool2d(mask, grid).flatten(1) for grid in grids]
    return torch.cat([share / share.sum(1, keepdim=True).clamp_min(1e-6) for share in shares], 1) / len(shares)


class PyramidJudge(nn.Module):
    """Learns all it knows: what it saw (the picture) + mask -> scores [b, cells] and the features on the way.

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
        start(self)

    def look(self, picture: Tensor, mask: Tensor) -> list[Tensor]:
        return [picture]

    def forward(self, seen: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        features = self.pyramid(F.pad(seen[0], (0, 0, 0, 0, 0, 1)) + F.pad(mask, (0, 0, 0, 0, 3, 0)))
        found = dict(zip(map(str, self.pyramid.grids), features, strict=True))
        return torch.cat([head(found[grid]).flatten(1) for grid, head in self.scores.items()], 1), features

    def weights(self, mask: Tensor) -> Tensor:
        return hole_weights(mask, [int(grid) for grid in self.scores])


class BackboneJudge(nn.Module):
    """Sees with a frozen network (`Backbone`) and learns only small heads, one for each of its four scales.

    What fur, eyes and noses look like need not be learnt from a few thousand pictures by a network that is itself only as
    old as the run, so the generator is told what is wrong from the first minutes on. A picture of more than `VIEW` pixels is seen
    twice, shrunk to that size and as a piece of that size around the hole, which costs half as much as the whole.
    """

    def __init__(self, size: int, backbone: Backbone) -> None:
        super().__init__()
        self._backbone = (backbone,)  # a tuple hides it from state_dict, parameters() and Adam: it never changes
        self.heads = nn.ModuleDict()
        for view in ("whole",) if size <= VIEW else ("whole", "piece"):
            for stride, width in HEAD_WIDTHS.items():
                self.heads[f"{view}{stride}"] = nn.Sequential(
                    # The finest map is larger than all others together; a coarser grid of scores is enough for it.
                    nn.Conv2d(CHANNELS[stride] + 1, width, 3, padding=1, stride=2 if stride == 2 else 1),
                    nn.LeakyReLU(SLOPE),
                    nn.Conv2d(width, width, 3, padding=1),
                    nn.LeakyReLU(SLOPE),
                    nn.Conv2d(width, 1, 1),
                )
        start(self)

    def look(self, picture: Tensor, mask: Tensor) -> list[Tensor]:
        return [features for view in self._views(picture, mask) for features in self._backbone[0](view)]

    def forward(self, seen: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        scores = []
        holes = [view for view in self._views(mask, mask) for _ in HEAD_WIDTHS]
        for head, features, hole in zip(self.heads.values(), seen, holes, strict=True):
            hole = F.adaptive_avg_pool2d(hole, features.shape[-1])
            scores.append(head(torch.cat([features, hole], 1)).flatten(1))
        return torch.cat(scores, 1), list(seen)

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
        pieces = [p[:, y : y + VIEW, x : x + VIEW] for p, y, x in zip(picture, tops, lefts, strict=True)]
        return [F.adaptive_avg_pool2d(picture, VIEW), torch.stack(pieces)]


Judge = PyramidJudge | BackboneJudge


def start(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, SLOPE)
            nn.init.zeros_(module.bias)
