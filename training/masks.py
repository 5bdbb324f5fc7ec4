"""Training masks: a registry of the holes that users draw, and of those that the paper and PIC evaluate with.

A mask is a uint8 array [s, s], 1 = hole. Every kind is a function (size, random generator) -> mask without other state, so a seed
reproduces it. Lengths are in pixels of a 256-pixel picture and scale with the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from picme_sdk.errors import BadConfig
from picme_sdk.pixels.photo import open_image
from training.config import MaskMix

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:/&@-"


Mask = npt.NDArray[np.uint8]


def canvas(size: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("L", (size, size))
    return picture, ImageDraw.Draw(picture)


def pixels(picture: Image.Image) -> Mask:
    return np.asarray(picture, np.uint8).copy()


def center(size: int, random: Generator | None = None) -> Mask:
    """The middle square, half the side: the paper's centre mask."""
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 1
    return mask


def rectangles(size: int, random: Generator) -> Mask:
    """One to five rectangles, each side an eighth to a half of the picture's."""
    mask = np.zeros((size, size), np.uint8)
    for _ in range(random.integers(1, 6)):
        height, width = random.integers(size // 8, size // 2 + 1, 2)
        top, left = random.integers(0, size - height + 1), random.integers(0, size - width + 1)
        mask[top : top + height, left : left + width] = 1
    return mask


def _lines_and_dots(size: int, random: Generator, length: float, radius: tuple[float, float]) -> Mask:
    """16 to 64 marks: 60 % lines of 4 to 20 pixels, 20 % circles, 20 % ellipses."""
    picture, draw = canvas(size)
    for _ in range(random.integers(16, 65)):
        x, y, x2, y2 = (float(v) for v in random.uniform(0, size, 4))
        thick = max(1, round(float(random.uniform(4, 20)) * size / 256))
        kind = random.uniform()
        if kind < 0.6:
            draw.line([x, y, x + (x2 - x) * length, y + (y2 - y) * length], fill=1, width=thick)
        else:
            rx = float(random.uniform(*radius)) * size / 256
            ry = rx if kind < 0.8 else float(random.uniform(*radius)) * size / 256
            draw.ellipse([x - rx, y - ry, x + rx, y + ry], fill=1)
    return pixels(picture)


def strokes(size: int, random: Generator) -> Mask:
    """Short strokes and dots all over; about a fifth of the picture."""
    return _lines_and_dots(size, random, 1 / 3, (2, 12))


def pic_random(size: int, random: Generator) -> Mask:
    """PIC's random masks, for the paper's tables: the same marks, but lines run from point to point; about half of the picture."""
    return _lines_and_dots(size, random, 1.0, (4, 20))


def _outline(
    size: int, random: Generator, area: float, place: tuple[float, float] | None = None
) -> npt.NDArray[np.float64]:
    """A closed outline [n, 2] of about `area` (a share of the picture): a smooth blob, or a polygon of 3 to 9 corners.

    Objects in photos are neither circles nor stars: the radius varies by a few low frequencies, and the outline is stretched up to 2.5
    times and rotated. It lies inside the picture as far as its size allows, unless `place` gives its centre.
    """
    if random.uniform() < 0.65:
        angles = np.linspace(0, 2 * np.pi, 72, endpoint=False)
        waves = np.arange(1, 6)
        strength = random.normal(0, 0.22, 5) / waves**0.5
        radius = np.exp((strength * np.cos(waves * angles[:, None] + random.uniform(0, 2 * np.pi, 5))).sum(1))
    else:
        corners = int(random.integers(3, 10))
        angles = (np.arange(corners) + random.uniform(-0.35, 0.35, corners)) * 2 * np.pi / corners
        radius = random.uniform(0.6, 1.2, corners)
    points = np.stack([np.cos(angles), np.sin(angles)], 1) * radius[:, None]
    points[:, 0] *= np.exp(random.uniform(0, np.log(2.5)))
    turn = random.uniform(0, 2 * np.pi)
    points = points @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    x, y = points.T
    covered = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
    points = (points - points.mean(0)) * np.sqrt(area / max(covered, 1e-6)) * size
    if place is None:
        low, high = -points.min(0), size - points.max(0)
        place = tuple(random.uniform(np.minimum(low, high), np.maximum(low, high)))
    return np.asarray(points + np.array(place))


def _object_like(size: int, random: Generator, area: float, place: tuple[float, float] | None = None) -> Mask:
    """One filled outline, in half of the cases grown or shrunk by up to 6 pixels: nobody draws exactly around an object."""
    picture, draw = canvas(size)
    draw.polygon([tuple(point) for point in _outline(size, random, area, place).tolist()], fill=1)
    by = round(float(random.uniform(-6, 6)) * size / 256)
    if by and random.uniform() < 0.5:
        kernel = ImageFilter.MaxFilter if by > 0 else ImageFilter.MinFilter
        changed = picture.filter(kernel(2 * abs(by) + 1))
        picture = changed if changed.getbbox() else picture
    return pixels(picture)


def blob(size: int, random: Generator) -> Mask:
    """An object that a user wants removed: one blob or polygon of 3 to 35 % of the picture."""
    return _object_like(size, random, float(np.exp(random.uniform(np.log(0.03), np.log(0.35)))))


def several(size: int, random: Generator) -> Mask:
    """Two to five smaller objects."""
    masks = [_object_like(size, random, float(random.uniform(0.004, 0.06))) for _ in range(random.integers(2, 6))]
    return np.asarray(np.max(masks, axis=0), np.uint8)


def border(size: int, random: Generator) -> Mask:
    """A hole at the edge: an object cut by the frame, or a strip along one side."""
    if random.uniform() < 0.7:
        along = float(random.uniform(0, size))
        inside = float(random.uniform(-0.1, 0.15)) * size
        x, y = (along, inside) if random.uniform() < 0.5 else (inside, along)
        mask = _object_like(size, random, float(random.uniform(0.05, 0.35)), (x, y))
    else:
        mask = np.zeros((size, size), np.uint8)
        mask[: max(1, round(float(random.uniform(0.04, 0.3)) * size))] = 1
    return np.ascontiguousarray(np.rot90(mask, int(random.integers(4))))


def _path(size: int, random: Generator, step: float, bend: float, steps: int) -> list[tuple[float, float]]:
    """A freehand path: its direction drifts, and it turns back at the edges of the picture."""
    x, y = (float(v) for v in random.uniform(0.1 * size, 0.9 * size, 2))
    direction, drift = float(random.uniform(0, 2 * np.pi)), 0.0
    points = [(x, y)]
    for _ in range(steps):
        drift = 0.7 * drift + float(random.normal(0, bend))
        direction += drift
        x, y = x + step * np.cos(direction), y + step * np.sin(direction)
        if not (0 <= x < size and 0 <= y < size):
            x, y = min(max(x, 0.0), size - 1.0), min(max(y, 0.0), size - 1.0)
            direction += np.pi * 0.6
        points.append((x, y))
    return points


def scribble(size: int, random: Generator) -> Mask:
    """One to four thick freehand brush strokes, 8 to 36 pixels wide."""
    picture, draw = canvas(size)
    for _ in range(random.integers(1, 5)):
        thick = max(1, round(float(random.uniform(8, 36)) * size / 256))
        path = _path(size, random, size / 20, 0.35, int(random.integers(4, 24)))
        draw.line(path, fill=1, width=thick, joint="curve")
        for x, y in (path[0], path[-1]):
            draw.ellipse([x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2], fill=1)
    return pixels(picture)


def wires(size: int, random: Generator) -> Mask:
    """One to six long thin lines, 1 to 7 pixels wide: wires across the picture, scratches and hairs."""
    picture, draw = canvas(size)
    for _ in range(random.integers(1, 7)):
        thick = max(1, round(float(random.uniform(1, 7)) * size / 256))
        if random.uniform() < 0.5:  # from edge to edge, sagging a little
            (x, y), (x2, y2) = random.uniform(-0.1 * size, 1.1 * size, (2, 2)).tolist()
            if random.uniform() < 0.7:
                x, x2 = 0.0, float(size)
            t = np.linspace(0, 1, 33)
            sag = float(random.uniform(-0.15, 0.15)) * size * 4 * t * (1 - t)
            path = list(zip((x + (x2 - x) * t).tolist(), (y + (y2 - y) * t + sag).tolist(), strict=True))
        else:
            path = _path(size, random, size / 24, 0.12, int(random.integers(6, 40)))
        draw.line(path, fill=1, width=thick, joint="curve")
    return pixels(picture)


def text(size: int, random: Generator) -> Mask:
    """One to five lines of letters, 12 to 60 pixels high: watermarks, captions and dates."""
    picture, draw = canvas(size)
    for _ in range(random.integers(1, 6)):
        height = max(6.0, float(random.uniform(12, 60)) * size / 256)
        font = ImageFont.load_default(height)
        words = "".join(random.choice(list(LETTERS), int(random.integers(3, 25))))
        stroke = round(float(random.uniform(0, 2.4)) * size / 256)
        place = float(random.uniform(-0.2, 0.7)) * size, float(random.uniform(0, 0.9)) * size
        draw.text(place, words, fill=1, font=font, stroke_width=stroke)
    if random.uniform() < 0.4:
        picture = picture.rotate(float(random.uniform(-45, 45)))
    return pixels(picture)


Kind = Callable[[int, Generator], Mask]
KINDS: dict[str, Kind] = {
    "center": center,
    "rectangles": rectangles,
    "strokes": strokes,
    "pic_random": pic_random,
    "blob": blob,
    "several": several,
    "border": border,
    "scribble": scribble,
    "wires": wires,
    "text": text,
}
MAX_HOLE = 0.85  # share of the picture; a larger or an empty mask is drawn again


class MaskSource:
    """Draws masks of one size in the proportions of a `MaskMix`; `files` are the pictures of its `folder` kind."""

    def __init__(self, mix: MaskMix, size: int, files: Sequence[Path] = ()) -> None:
        self.size = size
        self.kinds: dict[str, Kind] = {**KINDS, "folder": self._from_folder}
        weights = np.array([getattr(mix, kind) for kind in self.kinds], float)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise BadConfig(f"mask weights {weights.tolist()}", "none negative, one positive", "correct [masks]")
        if mix.folder > 0 and not files:
            raise BadConfig("masks.folder without a folder", "a folder of masks", "give --masks DIR")
        self.weights = weights / weights.sum()
        self.files = files

    def draw(self, random: Generator) -> Mask:
        """The next mask: never empty, never more than `MAX_HOLE` of the picture (masks from a folder are used as they are)."""
        kind = list(self.kinds)[int(np.searchsorted(np.cumsum(self.weights)[:-1], random.uniform(), "right"))]
        mask = self.kinds[kind](self.size, random)
        while kind != "folder" and not 0 < mask.mean() <= MAX_HOLE:
            mask = self.kinds[kind](self.size, random)
        return mask

    def _from_folder(self, size: int, random: Generator) -> Mask:
        file = self.files[int(random.integers(len(self.files)))]
        light = open_image(file, "mask").convert("L").resize((size, size), Image.Resampling.BOX)
        return (np.asarray(light) >= 128).astype(np.uint8)


def hole_ratios(source: MaskSource, count: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
    """Area of `count` holes as shares of the picture, for the training log."""
    return np.array([source.draw(np.random.default_rng([seed, i])).mean() for i in range(count)])
