"""Temporal stability: how much the filled pixels change from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from picme_sdk.completer import Completer
from picme_sdk.pixels.mask import FAINT
from picme_sdk.pixels.photo import U8

COMPARED, EVERY = 16, 8  # this many pairs of frames are also sampled independently, one pair in EVERY frames

Where = NDArray[np.bool_]


@dataclass(frozen=True)
class Stability:
    """Mean absolute change from one frame to the next, in levels of 255, over pixels that are hole in both. None: there are no such pixels."""

    pinned: float | None  # of the completed video
    independent: float | None  # each frame sampled by itself, on `compared` pairs
    source: float | None  # of the source itself, under the hole
    pairs: int
    compared: int


class Meter:
    """Measures `Stability`: `add` the frames of a video in order, each with its mask and its completion."""

    def __init__(self, completer: Completer) -> None:
        self.completer = completer
        self.frames = 0
        self.changes: dict[str, list[float]] = {"pinned": [], "independent": [], "source": []}
        self.before: tuple[U8, Where, U8] | None = None
        self.independent: U8 | None = None  # the previous frame, sampled by itself

    def add(self, source: U8, mask: U8, completed: U8) -> None:
        hole = mask > FAINT
        both = hole & self.before[1] if self.before else hole & False
        independent = self._sample(source, mask) if hole.any() else None
        if self.before and both.any():
            self._note("source", self.before[0], source, both)
            self._note("pinned", self.before[2], completed, both)
            if self.independent is not None and independent is not None:
                self._note("independent", self.independent, independent, both)
        self.before, self.independent = (source, hole, completed), independent
        self.frames += 1

    def _sample(self, source: U8, mask: U8) -> U8 | None:
        if self.frames % EVERY > 1 or len(self.changes["independent"]) == COMPARED:
            return None
        image: U8 = self.completer.complete(source, mask, 1, seed=self.frames, strategy="categorical")[0].image
        return image

    def _note(self, what: str, before: U8, after: U8, where: Where) -> None:
        gap = np.abs(after[where].astype(np.int16) - before[where])
        self.changes[what].append(float(gap.mean()))

    def stability(self) -> Stability:
        means = {what: float(np.mean(values)) if values else None for what, values in self.changes.items()}
        return Stability(**means, pairs=len(self.changes["pinned"]), compared=len(self.changes["independent"]))
