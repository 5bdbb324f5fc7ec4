"""Between the photo's pixels and the model's square.

Pillow's filters, in an order that does not depend on Pillow's version; the C++ twin computes the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from picme_sdk.pixels.photo import U8


def to_square(image: U8, unknown: NDArray[np.bool_], size: int) -> tuple[U8, NDArray[np.bool_]]:
    """A square of the photo and its unknown pixels, scaled to the model's `size`.

    The same filter serves both: a pixel of the model's square is unknown if any pixel that contributes to it is.
    """
    scaled = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))
    touched = Image.fromarray(np.where(unknown, np.float32(1), np.float32(0)))
    return scaled, np.asarray(touched.resize((size, size), Image.Resampling.BILINEAR)) > 1e-6


def from_square(square: U8, part: tuple[float, float, float, float], width: int, height: int) -> U8:
    """A part (left, top, right, bottom) of the model's square, scaled to `width` x `height` pixels of the photo."""
    left, top, right, bottom = part
    # Columns, then rows, in two calls: in one call the order depends on Pillow's version.
    wide = Image.fromarray(square).resize((width, len(square)), Image.Resampling.BICUBIC, box=(left, 0, right, len(square)))  # fmt: skip
    return np.asarray(wide.resize((width, height), Image.Resampling.BICUBIC, box=(0, top, width, bottom)))
