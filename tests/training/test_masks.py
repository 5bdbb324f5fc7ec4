from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training import masks
from training.config import MaskMix
from training.masks import MaskSource, hole_ratios

KINDS = ["center", "rectangles", "strokes"]


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
