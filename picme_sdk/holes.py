"""What follows from a mask: where the holes are, which square around each the model sees, and how a fill is put back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from picme_sdk.contract import MAX_HOLES, MAX_PIXELS
from picme_sdk.errors import BadMask, NumericalError
from picme_sdk.imaging import U8, Box, Patch, Photo
from picme_sdk.masks import Mask, bounds

CELLS = 64  # holes are told apart on a grid of at most this many cells a side ...
MOST_ISLANDS, COARSER = 64, 4  # ... and more than so many on one that is this much coarser
SEAM = 4  # pixels of the model's square over which a fill is led to its neighbours outside
BRIGHT = 64  # no model paints pure black up to the edge of what is so bright
SHARE_BITS, HALF_SHARE = 6, np.int16(32)  # shares are 64ths, so that all of it fits in 16-bit integers


@dataclass(frozen=True)
class Hole:
    """One square that the model fills: where it is, what the encoder sees, and how to put a fill back."""

    square: Box  # of the photo, maybe reaching beyond it
    box: Box  # of the photo: the pixels that may change
    image: U8  # [s, s, 3]
    mask: U8  # [s, s], 255 = hole or outside the photo
    alpha: U8  # of `box`, 0 = keep
    ring: NDArray[np.intp]  # flat indices into the square: values (a channel of a pixel) just inside the hole ...
    anchor: NDArray[np.intp]  # ... the visible value nearest to each ...
    truth: NDArray[np.int16]  # ... what it is in the photo ...
    share: NDArray[np.int16]  # ... and how much of its error they take over, in 64ths

    def heal(self, squares: U8) -> None:
        """Lead decoded squares [n, s, s, 3] to the photo along the hole's edge, in place.

        The decoder also paints what is visible around the hole. Where that differs from the photo, the fill would show a seam: pixels
        just inside the edge take over their neighbour's difference, fading out inwards.

        For the same reason a square that is wholly black beside bright pixels was not painted: it is what numbers that are not finite
        become as 8 bits. That is a `NumericalError`.
        """
        flat = squares.reshape(len(squares), -1)
        painted = flat.take(self.anchor, axis=1)
        black = flat[~painted.any(axis=1)]
        if self.truth.max(initial=0) >= BRIGHT and not black.any(axis=1).all():
            raise NumericalError(
                "a decoded picture that is not finite", "finite numbers", "lower the temperature, or use float32"
            )
        moved = (self.truth - painted) * self.share
        moved = ((moved + HALF_SHARE) >> SHARE_BITS) + flat.take(self.ring, axis=1)
        healed = moved.clip(0, 255).astype(np.uint8)
        for square, values in zip(flat, healed, strict=True):
            square[self.ring] = values

    def patch(self, square: U8) -> Patch:
        """A healed square [s, s, 3] -> pixels for the photo."""
        left, top, right, bottom = self.box
        size, side = len(square), self.square[2] - self.square[0]
        if size == side:
            x, y = left - self.square[0], top - self.square[1]
            return Patch(self.box, square[y : y + bottom - top, x : x + right - left], self.alpha)
        scale = size / side
        x, y = self.square[:2]
        # Columns, then rows, in two calls: which of them Pillow does first in one call depends on its version.
        columns = (left - x) * scale, 0, (right - x) * scale, size
        rows = 0, (top - y) * scale, right - left, (bottom - y) * scale
        wide = Image.fromarray(square).resize((right - left, size), Image.Resampling.BICUBIC, box=columns)
        resized = wide.resize((right - left, bottom - top), Image.Resampling.BICUBIC, box=rows)
        return Patch(self.box, np.asarray(resized), self.alpha)


def find_holes(photo: Photo, mask: Mask, size: int, context: int | None) -> tuple[Hole, ...]:
    """Holes of a photo, largest first, each with its square scaled to the model's `size`."""
    boxes = hole_boxes(mask, photo.size, size, context)
    holes = [hole_at(photo, mask, box, square_around(box, photo.size, size, context), size) for box in boxes]
    return tuple(sorted(holes, key=lambda hole: -int(np.count_nonzero(hole.alpha))))


def _components(mask: Mask, photo: tuple[int, int]) -> list[Box]:
    """Boxes of the separate holes. They are told apart on a grid, and many on a coarser one, so thousands of islands cost no more than a few."""
    step = max(1, -(-max(photo) // CELLS))
    used = mask.values > 0
    if used.all():
        return [mask.box]
    left, top = mask.box[:2]
    cells = _coarser(used, step)
    islands = _islands(cells)
    if len(islands) > MOST_ISLANDS:
        step *= COARSER
        islands = _islands(_coarser(cells, COARSER))
    found = []
    for island in islands:
        x0, y0, x1, y1 = (step * cell for cell in island)
        inner = bounds(used[y0:y1, x0:x1])
        found.append((left + x0 + inner[0], top + y0 + inner[1], left + x0 + inner[2], top + y0 + inner[3]))
    return found


def _coarser(used: NDArray[np.bool_], step: int) -> NDArray[np.bool_]:
    """Cells of step x step, each used if any of it is."""
    rows, columns = (np.arange(0, length, step) for length in used.shape)
    cells: NDArray[np.bool_] = np.logical_or.reduceat(np.logical_or.reduceat(used, rows, axis=0), columns, axis=1)
    return cells


def _islands(cells: NDArray[np.bool_]) -> list[Box]:
    """Boxes, in cells, of what hangs together, diagonals included. Row by row, a run of cells joins all that it touches in the row above."""
    changes = np.diff(np.pad(cells, ((0, 0), (1, 1))).view(np.int8), axis=1)
    rows, starts = (places.tolist() for places in np.nonzero(changes == 1))
    ends = np.nonzero(changes == -1)[1].tolist()
    boxes: list[Box] = []
    joined: list[int] = []  # run -> an earlier run of its island, or itself

    def first(run: int) -> int:
        while joined[run] != run:
            run = joined[run]
        return run

    above = 0  # the first run that this one or a later one may touch
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
    """Boxes of the holes. Those that one square sees as well as two would are joined, and the nearest ones while there are too many."""

    @cache  # most pairs are the same after every join
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


def hole_at(photo: Photo, mask: Mask, box: Box, square: Box, size: int) -> Hole:
    """The hole of a box, seen through a square of the photo that is scaled to the model's `size`."""
    width, height = photo.size
    inside = max(square[0], 0), max(square[1], 0), min(square[2], width), min(square[3], height)
    image, seen = photo.crop(inside), mask.window(inside)
    side = square[2] - square[0]
    if inside != square:  # what lies beyond the photo is unknown too
        if side * side > MAX_PIXELS:
            raise BadMask(
                f"a hole that needs a square of {side}x{side}",
                f"at most {MAX_PIXELS:,} pixels",
                "shrink the photo first",
            )
        at = slice(inside[1] - square[1], inside[3] - square[1]), slice(inside[0] - square[0], inside[2] - square[0])
        whole, covered = np.zeros((side, side, 3), np.uint8), np.full((side, side), 255, np.uint8)
        whole[at], covered[at] = image, seen
        image, seen = whole, covered
    if side != size:
        # The same filter for both: a pixel of the model's square is hole if any pixel that it was made from is.
        image = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))
        touched = Image.fromarray(np.where(seen > 0, np.float32(1), np.float32(0)))
        unknown = np.asarray(touched.resize((size, size), Image.Resampling.BILINEAR)) > 1e-6
    else:
        unknown = seen > 0
    ring, anchor, share = _seam(np.packbits(unknown).tobytes(), size)
    image = np.ascontiguousarray(image)
    truth = image.reshape(-1)[anchor].astype(np.int16)
    hidden = unknown.view(np.uint8) * np.uint8(255)
    return Hole(square, box, image, hidden, mask.window(box), ring, anchor, truth, share)


@lru_cache(maxsize=8)  # the frames of a video and the photos of a batch often share their mask
def _seam(mask: bytes, side: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int16]]:
    """Values of hole pixels within SEAM of the edge, a visible one near each, and a share that falls to 0 inwards. `mask` holds a bit a pixel.

    Grows from the visible pixels along the edge, a ring at a time: right, left, down, up, first come first served.
    """
    unknown = np.unpackbits(np.frombuffer(mask, np.uint8), count=side * side).reshape(side, side).astype(np.bool_)
    left, top, right, bottom = bounds(unknown)
    wide = right - left + 4  # two pixels of margin, so that no step leaves the array
    hole = np.zeros((bottom - top + 4, wide), np.bool_)
    hole[2:-2, 2:-2] = unknown[top:bottom, left:right]
    beside = np.zeros_like(hole)
    beside[1:-1, 1:-1] = hole[1:-1, 2:] | hole[1:-1, :-2] | hole[2:, 1:-1] | hole[:-2, 1:-1]
    front = np.flatnonzero(beside & ~hole)
    y, x = front // wide + (top - 2), front % wide + (left - 2)
    front = front[
        (y >= 0) & (y < len(unknown)) & (x >= 0) & (x < len(unknown))
    ]  # what lies beyond the square is no anchor
    owner, free = np.full(hole.size, -1, np.intp), hole.reshape(-1)
    owner[front] = front
    rings: list[NDArray[np.intp]] = []
    for _ in range(SEAM):
        reached = []
        for offset in (1, -1, wide, -wide):
            next_to = front + offset
            fresh = free[next_to]
            found = next_to[fresh]
            owner[found] = owner[front[fresh]]
            free[found] = False
            reached.append(found)
        front = np.concatenate(reached)
        rings.append(front)
    ring = np.concatenate(rings)
    shares = [round((1 << SHARE_BITS) * (1 - step / (SEAM + 1))) for step in range(1, SEAM + 1)]
    share = np.repeat(np.array(shares, np.int16), [len(r) for r in rings])

    def values(index: NDArray[np.intp]) -> NDArray[np.intp]:
        pixel = (index // wide + (top - 2)) * side + index % wide + (left - 2)
        return (3 * pixel[:, None] + np.arange(3)).reshape(-1)

    return values(ring), values(owner[ring]), np.repeat(share, 3)
