import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from training import masks
from training.config import MaskMix
from training.masks import KINDS, MAX_HOLE, MaskSource, hole_ratios


def only(kind: str, size: int = 64, files: tuple[Path, ...] = ()) -> MaskSource:
    return MaskSource(MaskMix(**{"center": 0.0, kind: 1.0}), size, files)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [32, 256])
def test_masks_are_zero_and_one_and_repeat_with_their_seed(kind: str, size: int) -> None:
    source = only(kind, size)
    mask = source.draw(np.random.default_rng(4))
    assert mask.shape == (size, size)
    assert mask.dtype == np.uint8
    assert set(np.unique(mask)) == {0, 1}
    assert np.array_equal(mask, source.draw(np.random.default_rng(4)))
    if kind != "center":
        assert not np.array_equal(mask, source.draw(np.random.default_rng(5)))


def test_center_is_a_quarter_of_the_picture() -> None:
    assert masks.center(256).mean() == 0.25
    assert masks.center(256)[64:192, 64:192].all()


def test_every_weight_of_a_configuration_has_its_kind() -> None:
    """A weight without a function would be ignored without a word."""
    assert {field.name for field in dataclasses.fields(MaskMix)} == {*KINDS, "folder"}


# kind: smallest and largest mean area that the kind may have, and pieces that it hangs together in.
AREAS = {
    "center": (0.25, 0.25),
    "rectangles": (0.15, 0.35),
    "strokes": (0.15, 0.27),
    "pic_random": (0.4, 0.6),
    "blob": (0.09, 0.18),
    "several": (0.06, 0.15),
    "border": (0.06, 0.2),
    "scribble": (0.08, 0.2),
    "wires": (0.02, 0.08),
    "text": (0.04, 0.15),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_covers_what_it_says(kind: str) -> None:
    low, high = AREAS[kind]
    ratios = hole_ratios(only(kind), 150)
    assert low <= ratios.mean() <= high
    assert ratios.min() > 0
    assert ratios.max() <= MAX_HOLE


def touches_border(mask: np.ndarray) -> bool:
    return bool(mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())


def test_border_holes_leave_the_picture_on_every_side() -> None:
    drawn = [masks.border(64, np.random.default_rng(i)) for i in range(60)]
    assert all(touches_border(mask) for mask in drawn)
    for turned in range(4):
        assert any(np.rot90(mask, turned)[0].any() for mask in drawn)


def test_blobs_are_of_3_to_35_percent_and_mostly_inside() -> None:
    drawn = [masks.blob(128, np.random.default_rng(i)) for i in range(120)]
    areas = np.array([mask.mean() for mask in drawn])
    assert areas.min() > 0.01  # shrunk by up to six pixels
    assert areas.max() < 0.5  # grown
    assert np.mean([touches_border(mask) for mask in drawn]) < 0.35
    assert np.quantile(areas, 0.9) > 3 * np.quantile(areas, 0.1)


def thickness(mask: np.ndarray) -> int:
    """How often a mask can be eroded by a pixel on every side before nothing is left."""
    times = 0
    while mask.any():
        padded = np.pad(mask, 1)
        mask = np.minimum.reduce([padded[y : y + len(mask), x : x + len(mask)] for y in range(3) for x in range(3)])
        times += 1
    return times


def test_wires_are_thin_and_scribbles_thick() -> None:
    thin = [thickness(masks.wires(256, np.random.default_rng(i))) for i in range(30)]
    thick = [thickness(masks.scribble(256, np.random.default_rng(i))) for i in range(30)]
    assert np.median(thin) <= 5
    assert np.median(thick) >= 8


def test_several_holes_are_several() -> None:
    counts = [cv2.connectedComponents(masks.several(128, np.random.default_rng(i)))[0] - 1 for i in range(40)]
    assert np.mean(counts) > 1.8


def test_hole_ratio_does_not_depend_on_the_size() -> None:
    small, large = (hole_ratios(only("strokes", size), 100).mean() for size in (64, 256))
    assert abs(small - large) < 0.05
    assert 0.05 < small < 0.6


def test_kinds_are_mixed_by_weight() -> None:
    source = MaskSource(MaskMix(center=3, rectangles=1), 32)
    drawn = [source.draw(np.random.default_rng(i)) for i in range(400)]
    share = np.mean([np.array_equal(mask, masks.center(32)) for mask in drawn])
    assert abs(share - 0.75) < 0.07


def test_masks_from_a_folder_light_is_hole(tmp_path: Path) -> None:
    picture = np.zeros((20, 20), np.uint8)
    picture[:10] = 255
    Image.fromarray(picture).save(tmp_path / "half.png")
    mask = only("folder", 40, (tmp_path / "half.png",)).draw(np.random.default_rng(0))
    assert mask[:20].all()
    assert not mask[20:].any()


@pytest.mark.parametrize(
    ("mix", "says"),
    [(MaskMix(center=0), "one positive"), (MaskMix(center=-1, strokes=2), "negative"), (MaskMix(folder=1), "--masks")],
)
def test_impossible_mixes_are_refused(mix: MaskMix, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MaskSource(mix, 32)
