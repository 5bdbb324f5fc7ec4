"""The seam: how a fill is led to the photo along the hole's edge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from picme_sdk.errors import NumericalError
from picme_sdk.pixels.mask import bounds
from picme_sdk.pixels.photo import U8

WIDTH = 4  # pixels of the model's square over which a fill is led to its neighbours outside
BRIGHT = 64  # next to a value this large, no model paints a wholly black square
SHARE_BITS, HALF_SHARE = 6, np.int16(32)  # shares are 64ths, so that all of it fits in 16-bit integers


@dataclass(frozen=True)
class Seam:
    """The edge of a hole in the model's square, as flat indices of values (one channel of one pixel)."""

    ring: NDArray[np.intp]  # values just inside the hole ...
    anchor: NDArray[np.intp]  # ... the visible value nearest to each ...
    truth: NDArray[np.int16]  # ... what that value is in the photo ...
    share: NDArray[np.int16]  # ... and how much of its error they take over, in 64ths

    @classmethod
    def of(cls, image: U8, unknown: NDArray[np.bool_]) -> Seam:
        """The seam of a square [s, s, 3] whose pixels are partly unknown [s, s]."""
        ring, anchor, share = _edge(np.packbits(unknown).tobytes(), len(unknown))
        return cls(ring, anchor, image.reshape(-1)[anchor].astype(np.int16), share)

    def heal(self, squares: U8) -> None:
        """Lead decoded squares [n, s, s, 3] to the photo along the hole's edge, in place.

        The decoder also paints the visible surroundings of the hole. Where these differ from the photo, the fill would show a seam: pixels just
        inside the edge take over their neighbour's difference, fading out inwards.

        For the same reason a square that is wholly black next to bright pixels was not painted at all: it is what numbers that are not finite
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


@lru_cache(maxsize=8)  # the frames of a video and the photos of a batch often share a mask
def _edge(mask: bytes, side: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int16]]:
    """Values of hole pixels within WIDTH of the edge, a visible value near each, and a share that falls to 0 inwards. `mask` holds one bit per pixel.

    Grows from the visible pixels along the edge, one ring at a time, to the right, left, down and up; a pixel belongs to the first that reaches it.
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
    front = front[(y >= 0) & (y < len(unknown)) & (x >= 0) & (x < len(unknown))]  # pixels beyond the square are unknown
    owner, free = np.full(hole.size, -1, np.intp), hole.reshape(-1)
    owner[front] = front
    rings: list[NDArray[np.intp]] = []
    for _ in range(WIDTH):
        reached = []
        for offset in (1, -1, wide, -wide):
            next_to = front + offset
            fresh = free[next_to]
            pixels = next_to[fresh]
            owner[pixels] = owner[front[fresh]]
            free[pixels] = False
            reached.append(pixels)
        front = np.concatenate(reached)
        rings.append(front)
    ring = np.concatenate(rings)
    shares = [round((1 << SHARE_BITS) * (1 - step / (WIDTH + 1))) for step in range(1, WIDTH + 1)]
    share = np.repeat(np.array(shares, np.int16), [len(r) for r in rings])

    def values(index: NDArray[np.intp]) -> NDArray[np.intp]:
        pixel = (index // wide + (top - 2)) * side + index % wide + (left - 2)
        return (3 * pixel[:, None] + np.arange(3)).reshape(-1)

    return values(ring), values(owner[ring]), np.repeat(share, 3)
