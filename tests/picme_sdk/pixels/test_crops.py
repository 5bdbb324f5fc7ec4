"""Squares around holes, and compositing."""

import base64
import json
import time

import numpy as np
import pytest

from picme_sdk.contract import MAX_HOLES
from picme_sdk.errors import BadMask
from picme_sdk.pixels.crops import _islands, find_crops
from picme_sdk.pixels.mask import load_mask
from picme_sdk.pixels.photo import load
from tests.conftest import ROOT
from tests.vectors import make


def test_published_vectors_are_reproduced() -> None:
    published = json.loads((ROOT / "tests/vectors/holes.json").read_text())
    assert json.loads(json.dumps(make.hole_vectors())) == published


def holes_of(width: int, height: int, rectangles: list[tuple[int, int, int, int]], size: int = 32):
    mask = np.zeros((height, width), bool)
    for left, top, right, bottom in rectangles:
        mask[top:bottom, left:right] = True
    photo = load(make.photo(width, height))
    return find_crops(photo, load_mask(mask, photo), size, None)


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
            (hole,) = find_crops(photo, load_mask(mask, photo), size, None)
            seen.append(hole.image[hole.mask == 0])
        assert np.array_equal(*seen)


def test_a_square_far_beyond_the_photo_is_refused_before_memory_is_taken() -> None:
    mask = np.zeros((100, 50_000), bool)
    mask[50, 1000:49_000] = True
    photo = load(np.zeros((100, 50_000), np.uint8))
    with pytest.raises(BadMask, match="72000x72000"):
        find_crops(photo, load_mask(mask, photo), 32, None)


def test_far_holes_are_apart_near_ones_together() -> None:
    assert len(holes_of(1000, 1000, [(10, 10, 40, 40), (900, 900, 950, 950)])) == 2
    assert len(holes_of(1000, 1000, [(10, 10, 40, 40), (45, 10, 70, 40)])) == 1
    largest, _ = holes_of(1000, 1000, [(10, 10, 40, 40), (900, 900, 990, 990)])
    assert largest.box == (900, 900, 990, 990)


def test_holes_in_a_chain_are_apart() -> None:
    """Corner to corner with a gap of two holes between them: one square around all would show each at an eighth of its size."""
    chain = [(375 * i, 375 * i, 375 * i + 125, 375 * i + 125) for i in range(8)]
    holes = holes_of(3000, 3000, chain)
    assert sorted(hole.box for hole in holes) == chain


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.7])
def test_islands_are_those_of_a_flood(share: float) -> None:
    random = np.random.default_rng(0)
    for _ in range(30):
        cells = random.random((random.integers(1, 30), random.integers(1, 30))) < share
        assert sorted(_islands(cells)) == sorted(flooded(cells))


def flooded(cells: np.ndarray) -> list[tuple[int, int, int, int]]:
    """The same, cell by cell."""
    todo, found = {(int(y), int(x)) for y, x in np.argwhere(cells)}, []
    while todo:
        island, edge = [], [todo.pop()]
        while edge:
            y, x = edge.pop()
            island.append((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & todo
            todo -= near
            edge.extend(near)
        ys, xs = zip(*island, strict=True)
        found.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return found


def test_five_thousand_islands_take_bounded_time_and_squares() -> None:
    random = np.random.default_rng(0)
    mask = np.zeros((3000, 3000), bool)
    mask[random.integers(0, 3000, 5000), random.integers(0, 3000, 5000)] = True
    photo = load(np.zeros((3000, 3000, 3), np.uint8))
    start = time.perf_counter()
    holes = find_crops(photo, load_mask(mask, photo), 32, None)
    assert time.perf_counter() - start < 5
    assert len(holes) <= MAX_HOLES
    covered = np.zeros_like(mask)
    for hole in holes:
        left, top, right, bottom = hole.box
        covered[top:bottom, left:right] |= hole.alpha > 0
    assert np.array_equal(covered, mask), "every island belongs to a square"


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
