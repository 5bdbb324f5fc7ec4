"""From a photo and a mask to a result, as `Completer` does it, with noise in place of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from picme_sdk.pixels.crops import find_crops
from picme_sdk.pixels.mask import MaskLike, load_mask
from picme_sdk.pixels.photo import ImageLike, load

SIDE = 16  # of the square that the model would see


def fill(photo: ImageLike, mask: MaskLike, context: int | None = None) -> Any:
    """The filled photo; `AssertionError` if a pixel outside the hole is not bit-identical."""
    loaded = load(photo)
    kept = load_mask(mask, loaded)
    patches = []
    for crop in find_crops(loaded, kept, SIDE, context):
        squares = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)
        crop.seam.heal(squares)
        patches.append(crop.patch(squares[0]))
    result = loaded.compose(patches)
    before = np.asarray(loaded.pixels)
    after = np.asarray(load(result).pixels)
    width, height = loaded.size
    outside = kept.window((0, 0, width, height)) == 0
    same_kind = not isinstance(result, bytes) or load(result).pixels.mode == loaded.pixels.mode  # PNG has no CMYK
    if same_kind and not np.array_equal(before[outside], after[outside], equal_nan=before.dtype.kind == "f"):
        raise AssertionError("a pixel outside the hole changed")
    return result


def centre(width: int, height: int) -> Image.Image:
    """A mask of a photo's size with a hole in its middle, soft along one edge."""
    mask = np.zeros((height, width), np.uint8)
    mask[height // 3 : 1 + height // 2, width // 3 : 1 + width // 2] = 255
    mask[height // 3, width // 3 : width // 2] = 120
    return Image.fromarray(mask)
