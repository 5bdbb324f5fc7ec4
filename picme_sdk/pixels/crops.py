"""Crops: where the holes of a mask are, which square around each the model sees, and where its fill goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from picme_sdk.contract import MAX_HOLES, MAX_PIXELS
from picme_sdk.errors import BadMask
from picme_sdk.pixels.mask import Mask, bounds
from picme_sdk.pixels.photo import U8, Box, Patch, Photo
from picme_sdk.pixels.resize import from_square, to_square
from picme_sdk.pixels.seam import Seam

# Holes are grouped until there are no more than MAX_HOLES squares.
CELLS = 64  # holes are told apart on a grid of at most this many cells a side ...
MAX_ISLANDS, COARSER = 64, 4  # ... and if there are more islands than this, on a grid that is coarser by this factor


@dataclass(frozen=True)
class Crop:
    """One square that the model fills: where it is, what the encoder sees, and where a fill goes."""

    square: Box  # of the photo; may reach beyond it
    box: Box  # of the photo: the pixels that may change
    image: U8  # [s, s, 3]
    mask: U8  # [s, s], 255 = hole or outside the photo
    alpha: U8  # of `box`, 0 = keep
    seam: Seam

    def patch(self, square: U8) -> Patch:
        """A healed square [s, s, 3] -> pixels for the photo."""
        left, top, right, bottom = self.box
        size, side = len(square), self.square[2] - self.square[0]
        x, y = self.square[:2]
        if size == side:
            return Patch(self.box, square[top - y : bottom - y, left - x : right - x], self.alpha)
        scale = size / side
        part = (left - x) * scale, (top - y) * scale, (right - x) * scale, (bottom - y) * scale
        return Patch(self.box, from_square(square, part, right - left, bottom - top), self.alpha)


def find_crops(photo: Photo, mask: Mask, size: int, context: int | None) -> tuple[Crop, ...]:
    """The crops of a photo, the largest hole first, each scaled to the model's `size`."""
    boxes = hole_boxes(mask, photo.size, size, context)
    crops = [crop_at(photo, mask, box, square_around(box, photo.size, size, context), size) for box in boxes]
    return tuple(sorted(crops, key=lambda crop: -int(np.count_nonzero(crop.alpha))))


def _components(mask: Mask, photo: tuple[int, int]) -> list[Box]:
    """Boxes of the separate holes. They are told apart on a grid, and many of them on a coarser one, so that thousands cost no more than a few."""
    step = max(1, -(-max(photo) // CELLS))
    used = mask.values > 0
    if used.all():
        return [mask.box]
    left, top = mask.box[:2]
    cells = _coarser(used, step)
    islands = _islands(cells)
    if len(islands) > MAX_ISLANDS:
        step *= COARSER
        islands = _islands(_coarser(cells, COARSER))
    boxes = []
    for island in islands:
        x0, y0, x1, y1 = (step * cell for cell in island)
        inner = bounds(used[y0:y1, x0:x1])
        boxes.append((left + x0 + inner[0], top + y0 + inner[1], left + x0 + inner[2], top + y0 + inner[3]))
    return boxes


def _coarser(used: NDArray[np.bool_], step: int) -> NDArray[np.bool_]:
    """Cells of step x step pixels; a cell is used if any pixel of it is."""
    rows, columns = (np.arange(0, length, step) for length in used.shape)
    cells: NDArray[np.bool_] = np.logical_or.reduceat(np.logical_or.reduceat(used, rows, axis=0), columns, axis=1)
    return cells


def _islands(cells: NDArray[np.bool_]) -> list[Box]:
    """Boxes, in cells, of connected components, diagonals included. Row by row, a run of cells joins all that it touches in the row above."""
    changes = np.diff(np.pad(cells, ((0, 0), (1, 1))).view(np.int8), axis=1)
    rows, starts = (places.tolist() for places in np.nonzero(changes == 1))
    ends = np.nonzero(changes == -1)[1].tolist()
    boxes: list[Box] = []
    joined: list[int] = []  # run -> an earlier run of its island, or itself

    def first(run: int) -> int:
        while joined[run] != run:
            run = joined[run]
        return run

    above = 0  # the first run that this run or a later one may touch
    for run, (row, start, end) in enumerate(zip(rows, starts, ends, strict=True)):
        boxes.append((start, row, end, row + 1))
        joined.append(run)
        while (rows[above], ends[above]) < (row - 1, start):
            above += 1
        other = above
        while rows[other] < row and starts[other] <= end:
            one, two = sorted((first(run), first(other)))
            joined[two], boxes[one] = one, _union(boxes[one], boxes[two])
            other += 1
    return [box for run, box in enumerate(boxes) if joined[run] == run]


def _union(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def hole_boxes(mask: Mask, photo: tuple[int, int], size: int, context: int | None) -> list[Box]:
    """Boxes of the holes. Two are joined where one square shows them as well as two would, and the nearest ones while there are too many."""

    @cache  # most pairs stay the same after a join
    def side(box: Box) -> int:
        square = square_around(box, photo, size, context)
        return square[2] - square[0]

    boxes = sorted(_components(mask, photo))
    while len(boxes) > 1:
        pairs = (
            (side(_union(a, b)) / max(side(a), side(b)), i, j)
            for i, a in enumerate(boxes)
            for j, b in enumerate(boxes[:i])
        )
        growth, i, j = min(pairs)
        if growth > 1.25 and len(boxes) <= MAX_HOLES:
            break
        joined = _union(boxes[i], boxes[j])
        boxes = sorted([box for n, box in enumerate(boxes) if n not in (i, j)] + [joined])
    return boxes


def square_around(box: Box, photo: tuple[int, int], size: int, context: int | None) -> Box:
    """The square that the model sees around a box: twice the hole, at least its own resolution, inside the photo if it fits."""
    longest = max(box[2] - box[0], box[3] - box[1])
    side = max(2 * longest, size if context is None else context)
    fits = min(photo)
    if side > fits:  # a smaller square beats one that reaches beyond the photo
        side = max(fits, min(side, longest + longest // 2))
    left, top = ((low + high - side) // 2 for low, high in ((box[0], box[2]), (box[1], box[3])))
    left, top = (
        min(max(start, 0), length - side) if side <= length else (length - side) // 2
        for start, length in ((left, photo[0]), (top, photo[1]))
    )
    return left, top, left + side, top + side


def crop_at(photo: Photo, mask: Mask, box: Box, square: Box, size: int) -> Crop:
    """The crop of a hole's box, seen through a square of the photo that is scaled to the model's `size`."""
    width, height = photo.size
    inside = max(square[0], 0), max(square[1], 0), min(square[2], width), min(square[3], height)
    image, hidden = photo.crop(inside), mask.window(inside)
    side = square[2] - square[0]
    if inside != square:  # whatever lies beyond the photo is unknown, too
        if side * side > MAX_PIXELS:
            raise BadMask(
                f"a hole that needs a square of {side}x{side}",
                f"at most {MAX_PIXELS:,} pixels",
                "shrink the photo first",
            )
        at = slice(inside[1] - square[1], inside[3] - square[1]), slice(inside[0] - square[0], inside[2] - square[0])
        whole, covered = np.zeros((side, side, 3), np.uint8), np.full((side, side), 255, np.uint8)
        whole[at], covered[at] = image, hidden
        image, hidden = whole, covered
    unknown = hidden > 0
    if side != size:
        image, unknown = to_square(image, unknown, size)
    image = np.ascontiguousarray(image)
    mask_square = unknown.view(np.uint8) * np.uint8(255)
    return Crop(square, box, image, mask_square, mask.window(box), Seam.of(image, unknown))
