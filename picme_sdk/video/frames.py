"""Frames of a video without flicker: one idea and one noise for the whole clip, each frame encoded anew.

Three things would make a fill jump from frame to frame, and each is held:

noise      drawn once per hole
idea       the primitive's mean and scale follow the video by an exponential moving average; a frame's primitive is the one nearest to it
square     what the model sees rests until the hole nears its border, then moves with it, so a fill sticks to the scene
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picme_sdk.completer import Completer
from picme_sdk.errors import BadImage, BadMask, PicmeError
from picme_sdk.mixture.mixture import F64, Mixture
from picme_sdk.mixture.recipe import check_arguments, check_number, f32, noise
from picme_sdk.pixels.crops import crop_at, hole_boxes, square_around
from picme_sdk.pixels.mask import FAINT, Mask, load_mask, mask_values
from picme_sdk.pixels.photo import Box, Patch, Photo, load

SMOOTHING = 0.8  # share of the past in mean and scale: half of a change is followed after three frames
MARGIN = 0.125  # of the square, kept visible around a hole
SLACK = 1.25  # a square may be larger or smaller than the hole needs by this factor
MEMORY = 50  # a hole that disappears for at most this many frames comes back with its fill


def complete_frames(
    completer: Completer,
    frames: Iterable[NDArray[Any]],
    masks: NDArray[Any] | Iterable[NDArray[Any]],
    primitive: int | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    smoothing: float = SMOOTHING,
) -> Iterator[NDArray[Any]]:
    """The frames with their holes filled, one at a time; nothing is read ahead.

    frames       arrays as `Completer.encode` takes them. A frame whose mask is empty is returned as it is.
    masks        one array for all frames, or one for each; 255 (or True, or 1.0) = hole
    primitive    the idea to follow; None takes the heaviest of the frame where a hole first appears
    seed         of the noise, which is drawn once per hole
    temperature  scales the noise; 0 shows the idea's mean
    smoothing    0 to 1: share of the past in the idea's mean and scale. 0 follows every frame, 1 keeps the first frame's.

    The first frame is `completer.complete(frame, mask, 1, seed, primitive=..., temperature=...)` with that idea. Later frames keep its
    noise, and their primitive is the one nearest to the idea so far. A hole continues an earlier one if their boxes overlap; any
    other is a new hole with its own noise. A frame of another size starts anew. Call once per shot: an idea does not know about cuts.
    """
    check_arguments(1, seed, "categorical", primitive, temperature, completer.manifest.primitives)
    check_number("smoothing", smoothing, 1.0)
    return Follower(completer, primitive, seed, f32(temperature), smoothing).run(frames, masks)


@dataclass
class Track:
    """One hole through time."""

    number: int  # of its noise
    last_frame: int  # number of the latest frame with this hole
    box: Box
    square: Box
    idea: Idea | None = None


@dataclass
class Idea:
    """A primitive through time."""

    mean: F64
    scale: F64

    def follow(self, mixture: Mixture, smoothing: float) -> None:
        """Move towards the nearest primitive by the measure of `Mixture.distance`: a model may number its primitives differently in every frame."""
        gaps = (mixture.means - self.mean) ** 2 / np.maximum(mixture.scales**2 + self.scale**2, 1e-300)
        nearest = int(np.argmin(gaps.mean(1)))
        self.mean = smoothing * self.mean + (1 - smoothing) * mixture.means[nearest]
        self.scale = smoothing * self.scale + (1 - smoothing) * mixture.scales[nearest]


class Follower:
    """The holes of a video, each with its noise, idea and square."""

    def __init__(
        self, completer: Completer, primitive: int | None, seed: int, temperature: float, smoothing: float
    ) -> None:
        self.completer, self.primitive, self.seed = completer, primitive, seed
        self.temperature, self.smoothing = temperature, smoothing
        self.tracks: list[Track] = []
        self.size: tuple[int, int] | None = None
        self.numbered = 0  # holes so far

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
                completed = self._complete(number, frame, mask)
            except PicmeError as error:
                raise type(error)(f"frame {number}: {error.given}", error.expected, error.cure) from error
            yield completed

    def _complete(self, number: int, frame: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
        photo = load(frame)
        if photo.size != self.size:  # another size is another picture
            self.size, self.tracks, self.numbered = photo.size, [], 0
        values = mask_values(mask, photo)
        if values.shape == frame.shape[:2] and values.max() <= FAINT:
            return frame
        hole = load_mask(values, photo)
        patches = [self._fill(photo, hole, track) for track in self._tracks(number, photo, hole)]
        completed: NDArray[Any] = photo.compose(patches)
        return completed

    def _tracks(self, number: int, photo: Photo, mask: Mask) -> list[Track]:
        """The holes of this frame, largest first, each on its track."""
        size = self.completer.manifest.image_size
        boxes = hole_boxes(mask, photo.size, size, None)
        boxes.sort(key=lambda box: -int(np.count_nonzero(mask.window(box))))
        self.tracks = [track for track in self.tracks if number - track.last_frame <= MEMORY]
        free, present = self.tracks.copy(), []
        for box in boxes:
            ideal = square_around(box, photo.size, size, None)
            meeting = [track for track in free if _overlap(track.box, box)]
            if meeting:
                track = max(meeting, key=lambda track: _overlap(track.box, box))
                free.remove(track)
                track.last_frame, track.box, track.square = number, box, glide(track.square, ideal, box, photo.size)
            else:
                track = Track(self.numbered, number, box, ideal)
                self.numbered += 1
                self.tracks.append(track)
            present.append(track)
        return present

    def _fill(self, photo: Photo, mask: Mask, track: Track) -> Patch:
        pipeline = self.completer.pipeline
        region = pipeline.encode(crop_at(photo, mask, track.box, track.square, pipeline.manifest.image_size))
        idea = self._idea(track, region.mixture)
        drawn = noise(self.seed, 0, len(idea.mean), track.number, self.temperature)
        z = (idea.mean + idea.scale * drawn).astype(np.float32)
        return region.crop.patch(pipeline.decode(region, z[None])[0])

    def _idea(self, track: Track, mixture: Mixture) -> Idea:
        if track.idea is None:
            first = mixture.order()[0] if self.primitive is None else self.primitive
            track.idea = Idea(mixture.means[first], mixture.scales[first])
        else:
            track.idea.follow(mixture, self.smoothing)
        return track.idea


def _overlap(a: Box, b: Box) -> int:
    """Pixels that two boxes share."""
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def glide(before: Box, ideal: Box, box: Box, photo: tuple[int, int]) -> Box:
    """The square nearest to the previous one that still suits the hole: it rests, or moves as little as the hole does."""
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
