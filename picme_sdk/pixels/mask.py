"""Masks of every kind -> one: which pixels of a photo are hole.

A mask has the photo's size; 255 (or True, or 1.0) is hole, 0 is kept. Values between are a soft edge: the fill is blended in by that share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from picme_sdk.errors import BadMask, PicmeError
from picme_sdk.pixels.photo import U8, Box, Photo, decoded, open_image

MaskLike = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Image.Image, NDArray[Any], None]

FAINT = 8  # compressed masks are a little noisy: values up to this count as kept, values from 255 - this as hole
MAX_HOLE_SHARE = 0.95  # a hole larger than this share of the photo means an inverted mask

_CLEANED = np.array([0 if v <= FAINT else 255 if v >= 255 - FAINT else v for v in range(256)], np.uint8)


@dataclass(frozen=True)
class Mask:
    """A mask without its empty margins, so that later steps cost what the hole costs, however large the photo is."""

    box: Box
    values: U8  # of the box, 0 = kept, 255 = hole

    def window(self, region: Box) -> U8:
        """The mask's values in a region of the photo."""
        left, top, right, bottom = region
        values = np.zeros((bottom - top, right - left), np.uint8)
        x0, y0, x1, y1 = (
            max(left, self.box[0]),
            max(top, self.box[1]),
            min(right, self.box[2]),
            min(bottom, self.box[3]),
        )
        if x0 < x1 and y0 < y1:
            own = self.values[y0 - self.box[1] : y1 - self.box[1], x0 - self.box[0] : x1 - self.box[0]]
            values[y0 - top : y1 - top, x0 - left : x1 - left] = own
        return values


def load_mask(mask: MaskLike, photo: Photo) -> Mask:
    """Accept a mask of any supported kind. None takes the photo's transparent pixels as the hole."""
    width, height = photo.size
    values = mask_values(mask, photo)
    if values.shape != (height, width):
        raise BadMask(
            f"a mask of {values.shape[1]}x{values.shape[0]} for a photo of {width}x{height}",
            "equal sizes",
            "resize the mask",
        )
    box = bounds(values > FAINT)
    if not box[2]:
        raise BadMask(
            "an empty mask", "some pixels of 255 (or True): they are the hole", "draw the hole, or invert the mask"
        )
    part = _CLEANED.take(values[box[1] : box[3], box[0] : box[2]])
    share = np.count_nonzero(part) / values.size
    if share > MAX_HOLE_SHARE:
        raise BadMask(
            f"a mask that is hole on {share:.0%} of the photo", "255 = hole, 0 = keep", "invert the mask: 255 - mask"
        )
    return Mask(box, part)


def mask_values(mask: MaskLike, photo: Photo) -> U8:
    """The values of a mask of any supported kind, faint ones included; their size is not checked."""
    if mask is None:
        alpha = photo.alpha()
        if alpha is None:
            raise BadMask(
                "no mask, and a photo without alpha", "a mask, or transparent pixels as the hole", "pass a mask"
            )
        return (255 - alpha).astype(np.uint8)
    if isinstance(mask, np.ndarray):
        return _from_array(np.asarray(mask))
    try:
        if isinstance(mask, (bytes, bytearray, memoryview)):
            image = open_image(bytes(mask), "mask")
        elif isinstance(mask, (str, os.PathLike)):
            image = open_image(mask, "mask")
        elif isinstance(mask, Image.Image):
            image = decoded(mask, "mask")
        else:
            raise BadMask(
                f"a mask of type {type(mask).__name__}", "a path, bytes, PIL image, array or None", "convert it first"
            )
    except BadMask:
        raise
    except PicmeError as error:
        raise BadMask(error.given, error.expected, error.cure) from error
    if image.mode in ("1", "I;16"):
        return _from_array(np.asarray(image))
    try:
        # A mask painted on a transparent layer: if anything is transparent, the opaque pixels are the hole.
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            image = image.convert("RGBA")
            alpha = np.asarray(image.getchannel("A"))
            if alpha.min() < 255:
                return _from_array(alpha)
        grey = image.convert("L")
    except (ValueError, TypeError) as error:  # Pillow can't convert every mode, nor every transparency, to grey
        raise BadMask(f"a mask of mode {image.mode}", "a grey one", "convert it to L first") from error
    return _from_array(np.asarray(grey))


def _from_array(mask: NDArray[Any]) -> U8:
    if mask.ndim == 3 and mask.shape[2] == 4 and mask.dtype == np.uint8 and mask[..., 3].min(initial=255) < 255:
        mask = mask[..., 3]
    elif mask.ndim == 3 and mask.shape[2] in (1, 3, 4):
        if mask.shape[2] > 1 and not (
            np.array_equal(mask[..., 0], mask[..., 1]) and np.array_equal(mask[..., 0], mask[..., 2])
        ):
            raise BadMask("a coloured mask", "grey: 255 = hole, 0 = keep", "convert it to one channel")
        mask = mask[..., 0]
    if mask.ndim != 2:
        raise BadMask(f"a mask of shape {mask.shape}", "[h, w] or [h, w, 1]", "pass one channel")
    if mask.dtype == np.bool_:
        return np.where(mask, np.uint8(255), np.uint8(0))
    if mask.dtype.kind == "f":
        if not np.isfinite(mask).all() or (mask.size and (mask.min() < 0 or mask.max() > 1)):
            raise BadMask("a float mask outside 0..1 or not finite", "0 = keep, 1 = hole", "scale it")
        scaled: U8 = np.rint(mask * 255).astype(np.uint8)
        return scaled
    if mask.dtype.kind not in "ui" or (mask.size and (mask.min() < 0 or mask.max() > 65535)):
        raise BadMask(f"a mask of {mask.dtype}", "bool, 0/1, 0..255, 16 bit, or float in 0..1", "convert it")
    top = int(mask.max(initial=0))
    if top <= 1:
        return mask.astype(np.uint8) * np.uint8(255)
    return (mask >> 8 if top > 255 else mask).astype(np.uint8)


def bounds(used: NDArray[np.bool_]) -> Box:
    """The smallest box around the used pixels; all zeros where there are none."""
    ys = np.flatnonzero(used.any(1))
    if not len(ys):
        return 0, 0, 0, 0
    top, bottom = int(ys[0]), int(ys[-1]) + 1
    xs = np.flatnonzero(used[top:bottom].any(0))
    return int(xs[0]), top, int(xs[-1]) + 1, bottom
