"""Training masks: centre square, random rectangles, free-form strokes, and masks from a folder.

A mask is a uint8 array [s, s], 1 = hole. Each is a pure function of its random generator, so a seed repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from picme_sdk.pixels.photo import open_image
from training.config import MaskMix


def center(size: int) -> np.ndarray:
    """The middle square, half the side: the paper's centre mask."""
    mask = np.zeros((size, size), np.uint8)
    mask[size // 4 : size - size // 4, size // 4 : size - size // 4] = 1
    return mask


def rectangles(size: int, random: Generator) -> np.ndarray:
    """One to five rectangles, each side an eighth to a half of the picture's."""
    mask = np.zeros((size, size), np.uint8)
    for _ in range(random.integers(1, 6)):
        height, width = random.integers(size // 8, size // 2 + 1, 2)
        top, left = random.integers(0, size - height + 1), random.integers(0, size - width + 1)
        mask[top : top + height, left : left + width] = 1
    return mask


def strokes(size: int, random: Generator) -> np.ndarray:
    """16 to 64 strokes: 60 % lines, 20 % circles, 20 % ellipses, 4 to 20 pixels thick on a picture of 256."""
    canvas = Image.new("L", (size, size))
    draw = ImageDraw.Draw(canvas)
    for _ in range(random.integers(16, 65)):
        x, y, x2, y2 = (float(v) for v in random.uniform(0, size, 4))
        thick = max(1, round(float(random.uniform(4, 20)) * size / 256))
        kind = random.uniform()
        if kind < 0.6:
            # Short pieces, or sixteen lines across the picture would leave nothing to see.
            draw.line([x, y, x + (x2 - x) / 3, y + (y2 - y) / 3], fill=1, width=thick)
        else:
            rx = float(random.uniform(2, 12)) * size / 256
            ry = rx if kind < 0.8 else float(random.uniform(2, 12)) * size / 256
            draw.ellipse([x - rx, y - ry, x + rx, y + ry], fill=1)
    return np.asarray(canvas, np.uint8).copy()


class MaskSource:
    """Draws masks of one size in the proportions of a `MaskMix`; `files` are the pictures of its `folder` kind."""

    def __init__(self, mix: MaskMix, size: int, files: Sequence[Path] = ()) -> None:
        self.size = size
        self.kinds = ("center", "rectangles", "strokes", "folder")
        weights = np.array([getattr(mix, kind) for kind in self.kinds], float)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise ValueError(
                f"mask weights {weights.tolist()} | expected none negative and one positive | mend [masks]"
            )
        if mix.folder > 0 and not files:
            raise ValueError("masks.folder has weight but no folder | expected a folder of masks | give --masks DIR")
        self.edges = np.cumsum(weights / weights.sum())
        self.files = files

    def draw(self, random: Generator) -> np.ndarray:
        kind = self.kinds[min(int(np.searchsorted(self.edges, random.uniform(), "right")), 3)]
        if kind == "center":
            return center(self.size)
        if kind == "rectangles":
            return rectangles(self.size, random)
        if kind == "strokes":
            return strokes(self.size, random)
        file = self.files[random.integers(len(self.files))]
        light = open_image(file, "mask").convert("L").resize((self.size, self.size), Image.Resampling.BOX)
        return (np.asarray(light) >= 128).astype(np.uint8)


def hole_ratios(source: MaskSource, count: int = 200, seed: int = 0) -> np.ndarray:
    """Hole area of `count` masks, as shares of the picture: what the training log reports."""
    return np.array([source.draw(np.random.default_rng([seed, i])).mean() for i in range(count)])
