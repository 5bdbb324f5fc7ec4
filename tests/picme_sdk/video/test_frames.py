from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from picme_sdk.errors import BadArgument, BadImage, BadMask
from picme_sdk.mixture.mixture import Mixture
from picme_sdk.pipeline import Pipeline, Region
from picme_sdk.pixels.crops import Crop
from picme_sdk.video.frames import MEMORY, Idea, complete_frames, glide
from picme_sdk.video.stability import Meter
from tests.vectors.make import photo as formula

WIDTH, HEIGHT = 60, 50


@pytest.fixture(scope="module")
def completer(bundle_folder: Path):
    with Completer(bundle_folder, "cpu") as made:
        yield made


def moving(i: int) -> np.ndarray:
    return np.ascontiguousarray(formula(WIDTH + 40, HEIGHT)[:, i : i + WIDTH])


def hole(left: int = 20, top: int = 15, side: int = 14) -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top : top + side, left : left + side] = 255
    return mask


def test_the_first_frame_is_what_complete_gives(completer: Completer) -> None:
    frame, mask = moving(0), hole()
    for primitive in (None, 2):
        first = next(complete_frames(completer, [frame], mask, primitive, seed=5, temperature=0.5))
        heaviest = completer.encode(frame, mask).primitives[0][0]
        chosen = heaviest if primitive is None else primitive
        alone = completer.complete(frame, mask, 1, 5, primitive=chosen, temperature=0.5)[0]
        assert np.array_equal(first, alone.image)


def test_only_the_hole_changes_and_frames_keep_their_kind(completer: Completer) -> None:
    frames = [moving(i) for i in range(3)]
    kinds = [
        frames,
        [f[..., 0] for f in frames],
        [f.astype(np.uint16) * 257 for f in frames],
        [f / 255 for f in frames],
    ]
    for given in kinds:
        made = list(complete_frames(completer, given, hole()))
        assert len(made) == 3
        for before, after in zip(given, made, strict=True):
            assert (after.dtype, after.shape) == (before.dtype, before.shape)
            assert np.array_equal(before[hole() == 0], after[hole() == 0])
            assert not np.array_equal(before, after)


def test_a_still_picture_stays_still(completer: Completer) -> None:
    frame, mask = moving(0), hole()
    made = list(complete_frames(completer, [frame] * 4, mask, seed=3))
    assert all(np.array_equal(made[0], other) for other in made[1:])
    alone = [completer.complete(frame, mask, 1, seed)[0].image for seed in (3, 4)]
    assert not np.array_equal(*alone), "which independent sampling does not"


def test_the_seed_chooses_the_noise_and_temperature_scales_it(completer: Completer) -> None:
    def last(seed: int, temperature: float) -> np.ndarray:
        return list(complete_frames(completer, [moving(0), moving(1)], hole(), seed=seed, temperature=temperature))[-1]

    assert not np.array_equal(last(1, 1.0), last(2, 1.0))
    assert np.array_equal(last(1, 1.0), last(1, 1.0))
    assert np.array_equal(last(1, 0), last(2, 0)), "at 0 there is no noise"


def test_frames_without_a_hole_come_back_as_they_are(completer: Completer) -> None:
    frames, empty = [moving(i) for i in range(4)], np.zeros((HEIGHT, WIDTH), np.uint8)
    made = list(complete_frames(completer, frames, [empty, hole(), empty, hole()]))
    assert made[0] is frames[0]
    assert made[2] is frames[2]
    assert not np.array_equal(made[3], frames[3])


def test_nothing_is_read_ahead(completer: Completer) -> None:
    given = []

    def frames() -> Iterator[np.ndarray]:
        for i in range(10):
            given.append(i)
            yield moving(i)

    made = complete_frames(completer, frames(), hole())
    assert given == []
    next(made)
    assert given == [0]
    next(made)
    assert given == [0, 1]


def test_one_mask_for_each_frame(completer: Completer) -> None:
    frames = [moving(0)] * 3
    made = list(complete_frames(completer, frames, [hole(20), hole(21), hole(22)]))
    for i, after in enumerate(made):
        assert np.array_equal(after[hole(20 + i) == 0], frames[i][hole(20 + i) == 0])
    assert len(list(complete_frames(completer, frames, repeat(hole())))) == 3, "more masks than frames are fine"
    with pytest.raises(BadMask, match="2 masks for more frames"):
        list(complete_frames(completer, frames, [hole(), hole()]))


def test_an_idea_follows_the_nearest_primitive() -> None:
    means, scales = np.array([[0.0, 0.0], [4.0, 4.0], [-4.0, 4.0]]), np.ones((3, 2))
    idea = Idea(np.array([3.0, 3.0]), np.array([0.5, 0.5]))
    idea.follow(Mixture(np.log(np.ones(3) / 3), means, np.log(scales)), 0.8)
    assert np.allclose(idea.mean, 3.2)
    assert np.allclose(idea.scale, 0.6)


def test_primitives_may_change_their_numbers(completer: Completer, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [moving(i) for i in range(4)]
    plain = list(complete_frames(completer, frames, hole(), seed=2))
    encode, calls = Pipeline.encode, []

    def renumbered(self: Pipeline, crop: Crop) -> Region:
        calls.append(crop)
        made = encode(self, crop)
        turn = np.roll(np.arange(made.mixture.size), len(calls) - 1)
        old = made.mixture
        return replace(made, mixture=Mixture(old.log_weights[turn], old.means[turn], old.log_scales[turn]))

    monkeypatch.setattr(Pipeline, "encode", renumbered)
    made = list(complete_frames(completer, frames, hole(), seed=2))
    assert len(calls) == 4
    for before, after in zip(plain, made, strict=True):
        assert np.array_equal(before, after)


def test_smoothing_says_how_much_of_the_past_stays(completer: Completer, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, calls = Pipeline.encode, []

    def drifting(self: Pipeline, crop: Crop) -> Region:
        calls.append(crop)
        made = encode(self, crop)
        return replace(made, mixture=replace(made.mixture, means=made.mixture.means + 0.3 * (len(calls) - 1)))

    monkeypatch.setattr(Pipeline, "encode", drifting)

    def change(smoothing: float) -> float:
        calls.clear()
        first, second = complete_frames(completer, [moving(0)] * 2, hole(), temperature=0, smoothing=smoothing)
        return float(np.abs(first.astype(int) - second).mean())

    assert change(1) == 0
    assert 0 < change(0.5) < change(0)


def test_a_hole_that_comes_back_has_its_fill_and_another_has_its_own_noise(completer: Completer) -> None:
    frame, near, far, empty = moving(0), hole(3, 3, 8), hole(45, 38, 8), np.zeros((HEIGHT, WIDTH), np.uint8)
    masks = [near, far, *[empty] * 5, near]
    made = list(complete_frames(completer, [frame] * len(masks), masks, seed=1))
    assert np.array_equal(made[-1], made[0])
    assert not np.array_equal(made[1], next(complete_frames(completer, [frame], far, seed=1)))
    long_gone = [near, far, *[empty] * MEMORY, near]
    late = list(complete_frames(completer, [frame] * len(long_gone), long_gone, seed=1))[-1]
    assert not np.array_equal(late, made[0]), "it is remembered for a while only"


def test_two_holes_are_filled_at_once(completer: Completer) -> None:
    frame, both = moving(0), hole(3, 3, 8) | hole(45, 38, 8)
    first = next(complete_frames(completer, [frame], both, primitive=1, seed=4))
    assert np.array_equal(first, completer.complete(frame, both, 1, 4, primitive=1)[0].image)


def test_another_size_starts_anew(completer: Completer) -> None:
    small = formula(40, 40)
    mask = np.zeros((40, 40), np.uint8)
    mask[10:20, 10:20] = 255
    made = list(complete_frames(completer, [moving(0), small], [hole(), mask], primitive=0, seed=3))
    assert np.array_equal(made[1], next(complete_frames(completer, [small], mask, primitive=0, seed=3)))


def test_the_square_rests_and_then_moves_with_the_hole() -> None:
    photo, square = (640, 480), (100, 100, 220, 220)
    moves, sides = [], []
    for step in range(300):
        box = (140 + step, 140 + step // 2, 180 + step, 180 + step // 2)
        wanted = 80 + step % 7  # a hole that breathes
        left, top = (box[0] + box[2] - wanted) // 2, (box[1] + box[3] - wanted) // 2
        after = glide(square, (left, top, left + wanted, top + wanted), box, photo)
        moves.append(max(abs(after[0] - square[0]), abs(after[1] - square[1])))
        sides.append(after[2] - after[0])
        assert after[0] <= box[0]
        assert after[1] <= box[1]
        assert after[2] >= box[2]
        assert after[3] >= box[3]
        assert min(after) >= 0
        assert after[2] <= photo[0]
        assert after[3] <= photo[1]
        square = after
    assert moves[1:10] == [0] * 9, "it rests"
    assert max(moves[1:]) <= 1, "and never jumps"
    assert len(set(sides[10:])) == 1


def test_a_hole_too_large_for_a_square_in_the_photo(completer: Completer) -> None:
    wide = np.zeros((HEIGHT, WIDTH), np.uint8)
    wide[10:40, 2:58] = 255
    made = list(complete_frames(completer, [moving(i) for i in range(3)], wide))
    assert all(np.array_equal(after[wide == 0], moving(i)[wide == 0]) for i, after in enumerate(made))


@pytest.mark.parametrize(
    "wrong", [{"seed": -1}, {"primitive": 99}, {"temperature": -1}, {"smoothing": 1.5}, {"smoothing": float("nan")}]
)
def test_arguments_are_checked_before_the_first_frame(completer: Completer, wrong: dict[str, float]) -> None:
    with pytest.raises(BadArgument, match=next(iter(wrong))):
        complete_frames(completer, [], hole(), **wrong)


def test_errors_tell_the_frame(completer: Completer) -> None:
    with pytest.raises(BadMask, match="frame 1: a mask of 60x50 for a photo of 30x30"):
        list(complete_frames(completer, [moving(0), formula(30, 30)], hole()))
    with pytest.raises(BadMask, match="frame 0: a mask that is hole on 100%"):
        list(complete_frames(completer, [moving(0)], np.full((HEIGHT, WIDTH), 255, np.uint8)))
    with pytest.raises(BadImage, match="frame 0 of type str"):
        list(complete_frames(completer, ["a.png"], hole()))  # type: ignore[list-item]


def test_the_meter_measures_what_changes_in_the_hole(completer: Completer) -> None:
    meter, mask = Meter(completer), hole()
    inside = mask > 0
    for level in (0, 10, 30):
        source, made = np.full((HEIGHT, WIDTH, 3), 100, np.uint8), np.full((HEIGHT, WIDTH, 3), 50, np.uint8)
        made[inside] += np.uint8(level)
        made[~inside] = level  # what changes outside does not count
        source[inside] += np.uint8(level // 10)
        meter.add(source, mask, made)
    found = meter.stability()
    assert (found.pinned, found.source, found.pairs) == (15.0, 1.5, 2)
    assert found.compared == 1
    assert found.independent is not None
    assert found.independent > 0
    shifted = Meter(completer)
    for left, level in ((10, 50), (20, 60)):
        made = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        made[hole(left) > 0] = level
        shifted.add(made, hole(left), made)
    assert shifted.stability().pinned == 10, "only what is hole in both frames counts"
    empty = Meter(completer)
    empty.add(moving(0), np.zeros((HEIGHT, WIDTH), np.uint8), moving(0))
    assert (empty.stability().pinned, empty.stability().pairs) == (None, 0)


def test_pinned_frames_change_less_than_independent_ones(completer: Completer) -> None:
    frames, masks = [moving(i) for i in range(10)], [hole(20 + i // 2) for i in range(10)]
    meter = Meter(completer)
    for frame, mask, made in zip(frames, masks, complete_frames(completer, frames, masks), strict=True):
        meter.add(frame, mask, made)
    found = meter.stability()
    assert found.pinned is not None
    assert found.independent is not None
    assert found.pinned < found.independent
