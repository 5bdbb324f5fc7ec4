"""Frames of a video without flicker: one idea and one noise for the whole clip, each frame encoded anew.

complete_frames   frames and masks in, completed frames out; no video library needed
Meter             how much the filled pixels change from frame to frame

Three things would make a fill jump from frame to frame, and each is held:

noise      drawn once a hole
idea       the primitive's mean and scale follow the video by an exponential moving average; a frame's primitive is the one nearest to it
square     what the model sees stays where it is until the hole nears its border, then moves with it, so a fill sticks to the scene
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picme_sdk import sampling
from picme_sdk.completer import Completer
from picme_sdk.errors import BadImage, BadMask, PicmeError
from picme_sdk.holes import hole_at, hole_boxes, square_around
from picme_sdk.imaging import U8, Box, Photo, load
from picme_sdk.masks import FAINT, Mask, load_mask, mask_values
from picme_sdk.sampling import F64, Mixture
from picme_sdk.token import f32

SMOOTHING = 0.8  # share of the past in mean and scale: half of a change is followed after three frames
MARGIN = 0.125  # of the square, kept visible around a hole
SLACK = 1.25  # a square may be so much larger or smaller than the hole asks for
MEMORY = 50  # frames that a hole may be gone and still come back with its fill
COMPARED, EVERY = 16, 8  # pairs of frames that are also sampled independently, one in so many

Where = NDArray[np.bool_]


def complete_frames(
    completer: Completer,
    frames: Iterable[NDArray[Any]],
    masks: NDArray[Any] | Iterable[NDArray[Any]],
    primitive: int | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    smoothing: float = SMOOTHING,
) -> Iterator[NDArray[Any]]:
    """The frames with their holes filled, one by one as they are asked for; nothing is read ahead.

    frames       arrays as `Completer.encode` takes them. A frame whose mask is empty is given back as it is.
    masks        one array for all frames, or one for each; 255 (or True, or 1.0) = hole
    primitive    the idea to follow; None takes the heaviest of the frame where a hole first appears
    seed         of the noise, which is drawn once for each hole
    temperature  scales the noise; 0 shows the idea's mean
    smoothing    0 to 1: share of the past in the idea's mean and scale. 0 follows every frame, 1 keeps the first frame's.

    The first frame is `completer.complete(frame, mask, 1, seed, primitive=..., temperature=...)` with that idea. Later frames keep its
    noise, and their primitive is the one nearest to where the idea was. A hole is the same as an earlier one where their boxes meet;
    another is a new hole with its own noise. A frame of another size starts anew. Call once for each shot: an idea does not know of cuts.
    """
    sampling.check_arguments(1, seed, "categorical", primitive, temperature, completer.manifest.primitives)
    sampling.check_number("smoothing", smoothing, 1.0)
    return _Follower(completer, primitive, seed, f32(temperature), smoothing).run(frames, masks)


@dataclass
class _Track:
    """One hole through time."""

    number: int  # of its noise
    seen: int  # the last frame that had it
    box: Box
    square: Box
    idea: _Idea | None = None


@dataclass
class _Idea:
    """A primitive through time."""

    mean: F64
    scale: F64

    def follow(self, mixture: Mixture, smoothing: float) -> None:
        """Go towards the nearest primitive, measured as `Mixture.distance` does: a model may number its ideas anew in every frame."""
        gaps = (mixture.means - self.mean) ** 2 / np.maximum(mixture.scales**2 + self.scale**2, 1e-300)
        nearest = int(np.argmin(gaps.mean(1)))
        self.mean = smoothing * self.mean + (1 - smoothing) * mixture.means[nearest]
        self.scale = smoothing * self.scale + (1 - smoothing) * mixture.scales[nearest]


class _Follower:
    def __init__(
        self, completer: Completer, primitive: int | None, seed: int, temperature: float, smoothing: float
    ) -> None:
        self.completer, self.primitive, self.seed = completer, primitive, seed
        self.temperature, self.smoothing = temperature, smoothing
        self.tracks: list[_Track] = []
        self.size: tuple[int, int] | None = None
        self.made = 0

    def run(
        self, frames: Iterable[NDArray[Any]], masks: NDArray[Any] | Iterable[NDArray[Any]]
    ) -> Iterator[NDArray[Any]]:
        paired = repeat(masks) if isinstance(masks, np.ndarray) else chain(masks, repeat(None))
        for number, (frame, mask) in enumerate(zip(frames, paired, strict=False)):
            if mask is None:
                raise BadMask(f"{number} masks for more frames", "one for all, or one for each frame", "add the others")
            if not isinstance(frame, np.ndarray):
                raise BadImage(f"frame {number} of type {type(frame).__name__}", "a numpy array", "convert it first")
            try:
                made = self._complete(number, frame, mask)
            except PicmeError as error:
                raise type(error)(f"frame {number}: {error.given}", error.expected, error.cure) from error
            yield made

    def _complete(self, number: int, frame: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
        photo = load(frame)
        if photo.size != self.size:  # another size is another picture
            self.size, self.tracks, self.made = photo.size, [], 0
        values = mask_values(mask, photo)
        if values.shape == frame.shape[:2] and values.max() <= FAINT:
            return frame
        found = load_mask(values, photo)
        patches = [self._fill(photo, found, track) for track in self._tracks(number, photo, found)]
        completed: NDArray[Any] = photo.compose(patches)
        return completed

    def _tracks(self, number: int, photo: Photo, mask: Mask) -> list[_Track]:
        """The holes of this frame, largest first, each on its track."""
        size = self.completer.manifest.image_size
        boxes = hole_boxes(mask, photo.size, size, None)
        boxes.sort(key=lambda box: -int(np.count_nonzero(mask.window(box))))
        self.tracks = [track for track in self.tracks if number - track.seen <= MEMORY]
        free, present = self.tracks.copy(), []
        for box in boxes:
            ideal = square_around(box, photo.size, size, None)
            meeting = [track for track in free if _overlap(track.box, box)]
            if meeting:
                track = max(meeting, key=lambda track: _overlap(track.box, box))
                free.remove(track)
                track.seen, track.box, track.square = number, box, _glide(track.square, ideal, box, photo.size)
            else:
                track = _Track(self.made, number, box, ideal)
                self.made += 1
                self.tracks.append(track)
            present.append(track)
        return present

    def _fill(self, photo: Photo, mask: Mask, track: _Track) -> Any:
        hole = hole_at(photo, mask, track.box, track.square, self.completer.manifest.image_size)
        region = self.completer._region(hole)
        idea = self._idea(track, region.mixture)
        noise = self.temperature * sampling.normals(self.seed, 0, len(idea.mean), track.number).astype(np.float64)
        z = (idea.mean + idea.scale * noise).astype(np.float32)
        square = self.completer._backend.run("decoder", {"z": z[None], **region.skips})["image"]
        hole.heal(square)
        return hole.patch(square[0])

    def _idea(self, track: _Track, mixture: Mixture) -> _Idea:
        if track.idea is None:
            first = mixture.order()[0] if self.primitive is None else self.primitive
            track.idea = _Idea(mixture.means[first], mixture.scales[first])
        else:
            track.idea.follow(mixture, self.smoothing)
        return track.idea


def _overlap(a: Box, b: Box) -> int:
    """Pixels that two boxes share."""
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def _glide(before: Box, ideal: Box, box: Box, photo: tuple[int, int]) -> Box:
    """The square nearest to the one before that still suits the hole: so it rests, or moves as little as the hole does."""
    wanted, fits = ideal[2] - ideal[0], min(photo)
    side = min(max(before[2] - before[0], int(wanted / SLACK)), int(wanted * SLACK), fits) if wanted <= fits else wanted
    edge = max(0, min(int(MARGIN * side), (side - max(box[2] - box[0], box[3] - box[1])) // 2))
    starts = []
    for axis in (0, 1):
        low, high = box[axis + 2] + edge - side, box[axis] - edge
        start = (before[axis] + before[axis + 2] - side) // 2
        start = min(max(start, low), high)
        starts.append(min(max(start, 0), photo[axis] - side) if side <= photo[axis] else (photo[axis] - side) // 2)
    return starts[0], starts[1], starts[0] + side, starts[1] + side


@dataclass(frozen=True)
class Stability:
    """Mean absolute change from a frame to the next, in levels of 255, of pixels that are hole in both. None: no such pixels."""

    pinned: float | None  # as written
    independent: float | None  # each frame sampled for itself, on `compared` pairs
    source: float | None  # of the source itself, under the hole
    pairs: int
    compared: int


class Meter:
    """Measures `Stability`: `add` the frames of a video in order, each with its mask and what was made of it."""

    def __init__(self, completer: Completer) -> None:
        self.completer = completer
        self.frames = 0
        self.changes: dict[str, list[float]] = {"pinned": [], "independent": [], "source": []}
        self.before: tuple[U8, Where, U8] | None = None
        self.alone: U8 | None = None  # the frame before, sampled for itself

    def add(self, source: U8, mask: U8, made: U8) -> None:
        hole = mask > FAINT
        both = hole & self.before[1] if self.before else hole & False
        alone = self._sample(source, mask) if hole.any() else None
        if self.before and both.any():
            self._note("source", self.before[0], source, both)
            self._note("pinned", self.before[2], made, both)
            if self.alone is not None and alone is not None:
                self._note("independent", self.alone, alone, both)
        self.before, self.alone = (source, hole, made), alone
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
