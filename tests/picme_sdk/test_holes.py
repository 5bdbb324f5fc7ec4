"""Masks, squares and compositing."""

import base64
import json
import time

import numpy as np
import pytest
from PIL import Image

from picme_sdk.errors import BadMask
from picme_sdk.holes import MOST_HOLES, find_holes, load_mask
from picme_sdk.imaging import load
from tests.conftest import ROOT
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


def test_published_vectors_are_reproduced() -> None:
    published = json.loads((ROOT / "tests/vectors/holes.json").read_text())
    assert json.loads(json.dumps(make.hole_vectors())) == published


def holes_of(width: int, height: int, rectangles: list[tuple[int, int, int, int]], size: int = 32):
    mask = np.zeros((height, width), bool)
    for left, top, right, bottom in rectangles:
        mask[top:bottom, left:right] = True
    photo = load(make.photo(width, height))
    return find_holes(photo, load_mask(mask, photo), size, None)


@pytest.mark.parametrize("photo", [(1, 5000), (5000, 1), (3, 3), (31, 37), (8191, 17), (33, 200)])
def test_squares_of_odd_photos(photo: tuple[int, int]) -> None:
    width, height = photo
    (hole,) = holes_of(width, height, [(0, 0, 1, 1)])
    assert hole.image.shape == (32, 32, 3)
    assert hole.mask.any()
    left, top, right, bottom = hole.square
    assert right - left == bottom - top
    assert left <= hole.box[0] < hole.box[2] <= right


def test_a_square_is_twice_the_hole_and_inside_the_photo() -> None:
    (hole,) = holes_of(400, 300, [(0, 100, 60, 140)])
    assert hole.square == (0, 60, 120, 180)


def test_what_the_model_sees_never_mixes_with_the_hole() -> None:
    """Change the photo inside the hole in any way: the visible part of the model's square must not notice."""
    for size in (17, 32, 48):  # enlarged, equal, reduced
        mask = np.zeros((96, 96), bool)
        mask[40:56, 40:60] = True
        pixels = make.photo(96, 96)
        seen = []
        for fill in (0, 255):
            changed = pixels.copy()
            changed[mask] = fill
            photo = load(changed)
            (hole,) = find_holes(photo, load_mask(mask, photo), size, None)
            seen.append(hole.image[hole.mask == 0])
        assert np.array_equal(*seen)


def test_a_square_far_beyond_the_photo_is_refused_before_memory_is_taken() -> None:
    mask = np.zeros((100, 50_000), bool)
    mask[50, 1000:49_000] = True
    photo = load(np.zeros((100, 50_000), np.uint8))
    with pytest.raises(BadMask, match="72000x72000"):
        find_holes(photo, load_mask(mask, photo), 32, None)


def test_far_holes_are_apart_near_ones_together() -> None:
    assert len(holes_of(1000, 1000, [(10, 10, 40, 40), (900, 900, 950, 950)])) == 2
    assert len(holes_of(1000, 1000, [(10, 10, 40, 40), (45, 10, 70, 40)])) == 1
    largest, _ = holes_of(1000, 1000, [(10, 10, 40, 40), (900, 900, 990, 990)])
    assert largest.box == (900, 900, 990, 990)


def test_five_thousand_islands_take_bounded_time_and_squares() -> None:
    random = np.random.default_rng(0)
    mask = np.zeros((3000, 3000), bool)
    mask[random.integers(0, 3000, 5000), random.integers(0, 3000, 5000)] = True
    photo = load(np.zeros((3000, 3000, 3), np.uint8))
    start = time.perf_counter()
    holes = find_holes(photo, load_mask(mask, photo), 32, None)
    assert time.perf_counter() - start < 5
    assert len(holes) <= MOST_HOLES
    covered = np.zeros_like(mask)
    for hole in holes:
        left, top, right, bottom = hole.box
        covered[top:bottom, left:right] |= hole.alpha > 0
    assert np.array_equal(covered, mask), "every island belongs to a square"


def test_healing_removes_an_offset_at_the_edge_and_leaves_the_middle() -> None:
    (hole,) = holes_of(32, 32, [(8, 8, 24, 24)])
    square = np.clip(hole.image.astype(int) - 20, 0, 255).astype(np.uint8)[None]
    before = square.copy()
    hole.heal(square)
    outside = hole.mask == 0
    assert np.array_equal(square[0][outside], before[0][outside]), "nothing outside the hole"
    assert np.array_equal(square[0, 13:19, 13:19], before[0, 13:19, 13:19]), "nor in its middle"
    edge = (hole.image[8, 9:23].astype(int) - square[0, 8, 9:23]).mean()
    assert abs(edge) < 8, "20 without healing"


def test_vectors_hold_what_they_say() -> None:
    """The composed pictures differ from their photos inside the hole only."""
    for case in json.loads((ROOT / "tests/vectors/holes.json").read_text()):
        width, height = case["photo"]
        composed = np.frombuffer(base64.b64decode(case["composed"]), np.uint8).reshape(height, width, 3)
        hole = np.zeros((height, width), bool)
        for left, top, right, bottom, _ in case["rectangles"]:
            hole[top:bottom, left:right] = True
        assert np.array_equal(composed[~hole], make.photo(width, height)[~hole])
        assert not np.array_equal(composed[hole], make.photo(width, height)[hole])
