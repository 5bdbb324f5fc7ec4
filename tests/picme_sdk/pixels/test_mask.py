"""Masks of every kind."""

import numpy as np
import pytest
from PIL import Image

from picme_sdk.errors import BadMask
from picme_sdk.pixels.mask import load_mask
from picme_sdk.pixels.photo import load
from tests.vectors import make

PHOTO = load(make.photo(40, 30))
BASE = np.zeros((30, 40), bool)
BASE[5:15, 10:25] = True


def png(array: np.ndarray) -> bytes:
    import io

    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


FORMS = {
    "bool": BASE,
    "0/1": BASE.astype(np.uint8),
    "0/255": BASE.astype(np.uint8) * 255,
    "int64": BASE.astype(np.int64) * 255,
    "16 bit": BASE.astype(np.uint16) * 65535,
    "float": BASE.astype(np.float32),
    "one channel": BASE[..., None],
    "grey RGB": np.repeat(BASE.astype(np.uint8)[..., None] * 255, 3, 2),
    "RGBA paint": np.dstack([np.full((30, 40, 3), 200, np.uint8), BASE.astype(np.uint8) * 255]),
    "Fortran order": np.asfortranarray(BASE),
    "negative strides": np.ascontiguousarray(BASE[::-1])[::-1],
    "PIL 1": Image.fromarray(BASE),
    "PIL L": Image.fromarray(BASE.astype(np.uint8) * 255),
    "PIL P": Image.fromarray(BASE.astype(np.uint8) * 255).convert("P"),
    "PIL RGBA": Image.fromarray(np.dstack([np.zeros((30, 40, 3), np.uint8), BASE.astype(np.uint8) * 255])),
    "bytes": png(BASE.astype(np.uint8) * 255),
    "noisy, as from JPEG": BASE.astype(np.uint8) * 250 + 4,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_masks_of_every_form_mean_the_same(form: object) -> None:
    mask = load_mask(form, PHOTO)
    assert mask.box == (10, 5, 25, 15)
    assert (mask.values == 255).all()


def test_a_mask_may_be_a_path(tmp_path) -> None:
    Image.fromarray(BASE).save(tmp_path / "mask.png")
    assert load_mask(tmp_path / "mask.png", PHOTO).box == (10, 5, 25, 15)


def test_transparent_pixels_are_the_hole_when_no_mask_is_given() -> None:
    alpha = np.where(BASE, 0, 255).astype(np.uint8)
    assert load_mask(None, load(np.dstack([make.photo(40, 30), alpha]))).box == (10, 5, 25, 15)


BAD = {
    "empty": (np.zeros((30, 40)), "empty mask"),
    "full": (np.ones((30, 40)), "invert the mask"),
    "inverted": (~np.pad(np.ones((1, 1), bool), ((0, 29), (0, 39))), "invert the mask"),
    "other size": (np.ones((40, 30)), "30x40 for a photo of 40x30"),
    "coloured": (np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8), "coloured"),
    "four dimensions": (np.ones((1, 30, 40, 1)), "shape"),
    "not finite": (np.full((30, 40), np.nan), "not finite"),
    "beyond 1": (np.full((30, 40), 7.0), "outside 0..1"),
    "complex": (np.ones((30, 40), complex), "complex"),
    "no picture": (b"hello", "no picture"),
    "missing": ("nowhere.png", "does not exist"),
    "a number": (7, "type int"),
    "none without alpha": (None, "without alpha"),
}


@pytest.mark.parametrize(("mask", "says"), BAD.values(), ids=BAD.keys())
def test_masks_that_cannot_be_are_refused(mask: object, says: str) -> None:
    with pytest.raises(BadMask, match=says):
        load_mask(mask, PHOTO)
