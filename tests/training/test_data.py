import logging
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.faces import SMILE, face
from picme_sdk.errors import DataError
from training.config import MaskMix
from training.data import (
    PRESETS,
    Pictures,
    TrainingStream,
    find_all,
    find_images,
    find_preset,
    jittered,
    random_crop,
    spread,
)
from training.masks import MaskSource


def picture(path: Path, size: int = 40, shade: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (shade, shade, shade)).save(path)
    return path


def stream(faces: Path, seed: int = 0) -> TrainingStream:
    return TrainingStream(Pictures(find_images(faces), 32), MaskSource(MaskMix(1, 1, 1), 32), seed)


def test_folders_are_read_recursively(tmp_path: Path) -> None:
    files = [picture(tmp_path / "b.PNG"), picture(tmp_path / "deep" / "er" / "a.png")]
    (tmp_path / "note.txt").write_text("not a picture")
    assert find_images(tmp_path) == sorted(files)


def test_file_lists_are_relative_to_themselves(tmp_path: Path) -> None:
    file = picture(tmp_path / "in" / "a.png")
    (tmp_path / "list.txt").write_text("# training pictures\n\nin/a.png\n")
    assert find_images(tmp_path / "list.txt") == [file]


def test_several_folders_count_as_often_as_they_say(tmp_path: Path) -> None:
    a, b = picture(tmp_path / "a" / "a.png"), picture(tmp_path / "b*2" / "b.png")
    assert find_all([str(tmp_path / "a")]) == [a]
    assert find_all([f"{tmp_path / 'a'}*3", f"{tmp_path / 'b*2'}*1"]) == [a, a, a, b]


def test_a_sixteen_bit_picture_keeps_its_brightness(tmp_path: Path) -> None:
    Image.fromarray(np.full((40, 40), 0x8000, np.uint16)).save(tmp_path / "a.png")
    got, _ = Pictures(find_images(tmp_path), 32)[0]
    assert (got == 128).all()


@pytest.mark.parametrize(("side", "expected"), [(32, 32), (34, 34), (100, 36)])
def test_larger_squares_are_kept_for_crops_but_never_enlarged(tmp_path: Path, side: int, expected: int) -> None:
    picture(tmp_path / "a.png", side)
    assert Pictures(find_images(tmp_path), 32, larger=True)[0][0].shape == (expected, expected, 3)
    stream = TrainingStream(Pictures(find_images(tmp_path), 32, larger=True), MaskSource(MaskMix(), 32), 0, 0.7)
    assert stream.batch(0, 3).image.shape == (3, 3, 32, 32)


def test_photometric_jitter_is_slight_and_repeats() -> None:
    grey = np.broadcast_to(np.linspace(0, 255, 64).astype(np.uint8)[:, None], (64, 64, 3))[..., :1].repeat(3, 2)
    changed = [jittered(grey, np.random.default_rng(i)).astype(int) for i in range(60)]
    apart = np.array([np.abs(each - grey).mean() for each in changed])
    assert 3 < apart.mean() < 25
    assert apart.max() < 70
    assert np.array_equal(changed[3], jittered(grey, np.random.default_rng(3)))
    assert all(each.shape == grey.shape for each in changed)


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: None])
def test_nothing_to_read_says_what_was_looked_for(tmp_path: Path, make) -> None:
    make(tmp_path / "pets")
    with pytest.raises(DataError, match=r"pets.*expected"):
        find_images(tmp_path / "pets")


def test_bad_pictures_are_skipped_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(tmp_path / "a.png", 12)
    (tmp_path / "b.png").write_bytes(picture(tmp_path / "c.png", shade=7).read_bytes()[:60])
    pictures = Pictures(find_images(tmp_path), 32)
    with caplog.at_level(logging.WARNING):
        for index in range(3):
            got, file = pictures[index]
            assert file.name == "c.png"
            assert (got == 7).all()
    assert "a.png (1 skipped so far): 12x12 pixels" in caplog.text
    assert "b.png (2 skipped so far)" in caplog.text
    assert len(caplog.records) == 2, "each is named once"


def test_no_readable_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="at least one readable"):
        Pictures(find_images(tmp_path), 32)[0]


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_any_mode_becomes_a_centred_rgb_square(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    Image.new("RGB", (64, 40), (9, 99, 199)).convert(mode).save(tmp_path / f"a.{suffix}")
    got, _ = Pictures(find_images(tmp_path), 32)[0]
    assert got.shape == (32, 32, 3)
    assert got.dtype == np.uint8


def test_an_item_depends_on_seed_and_number_only(faces: Path) -> None:
    whole = stream(faces).batch(0, 90)
    parts = [stream(faces).batch(start, 30) for start in (0, 30, 60)]
    assert torch.equal(whole.image, torch.cat([p.image for p in parts]))
    assert torch.equal(whole.mask, torch.cat([p.mask for p in parts]))
    assert whole.files == sum((p.files for p in parts), ())
    assert not torch.equal(whole.image, stream(faces, seed=1).batch(0, 90).image)


def test_an_epoch_shows_every_picture_once_in_a_new_order(faces: Path) -> None:
    files = stream(faces).batch(0, 80).files
    assert sorted(files[:40]) == sorted(files[40:]) == find_images(faces)
    assert files[:40] != files[40:]


def test_batches_are_in_range(faces: Path) -> None:
    batch = stream(faces).batch(0, 8)
    assert batch.image.shape == (8, 3, 32, 32)
    assert -1 <= batch.image.min() < batch.image.max() <= 1
    assert set(batch.mask.unique().tolist()) == {0, 1}


def test_crops_are_half_of_the_time_squares_of_the_picture() -> None:
    """On a picture whose colours are its coordinates, a crop shows where it was taken."""
    places = np.linspace(0, 255, 64)
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[..., 0], picture[..., 1] = places[:, None], places
    whole, spans = 0, []
    for seed in range(200):
        crop = random_crop(picture, 64, 0.6, np.random.default_rng(seed)).astype(int)
        assert crop.shape == picture.shape
        if np.array_equal(crop, picture):
            whole += 1
            continue
        high, wide = (int(np.ptp(crop[..., axis])) for axis in (0, 1))
        assert abs(high - wide) <= 4, "a square stays a square"
        spans.append(high / 255)
    assert 70 <= whole <= 130
    assert 0.58 <= min(spans) < 0.65
    assert 0.95 < max(spans) <= 1


def test_crops_repeat_and_leave_the_rest_as_it_was(faces: Path) -> None:
    def near(min_crop: float) -> TrainingStream:
        return TrainingStream(Pictures(find_images(faces), 32), MaskSource(MaskMix(1, 1, 1), 32), 0, min_crop)

    plain, near_twice = near(1.0).batch(0, 20), [near(0.6).batch(0, 20) for _ in range(2)]
    assert torch.equal(near_twice[0].image, near_twice[1].image)
    assert not torch.equal(near_twice[0].image, plain.image)
    assert torch.equal(near_twice[0].mask, plain.mask)
    assert near_twice[0].files == plain.files


LAYOUTS = {  # preset: (training file, validation file)
    "celeba-hq": ("train/0.jpg", "val/1.jpg"),
    "paris-streetview": ("paris_train_original/0.JPG", "paris_eval_gt/1.JPG"),
    "places2": ("data_large/a/abbey/00000001.jpg", "val_large/Places365_val_00000001.jpg"),
    "imagenet": ("train/n01440764/n01440764_10026.JPEG", "val/ILSVRC2012_val_00000001.JPEG"),
}


@pytest.mark.parametrize("preset", LAYOUTS)
def test_presets_read_the_usual_layouts(tmp_path: Path, preset: str) -> None:
    files = [tmp_path / name for name in LAYOUTS[preset]]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40)).save(file, "JPEG")
    assert find_preset(preset, tmp_path) == [files[0]]
    assert find_preset(preset, tmp_path, "valid") == [files[1]]


def test_ffhq_splits_by_number(tmp_path: Path) -> None:
    for number in range(7):
        picture(tmp_path / "images1024x1024" / "00000" / f"{number:05d}.png")
    assert [f.stem for f in find_preset("ffhq", tmp_path)] == [f"{n:05d}" for n in range(6)]
    assert [f.stem for f in find_preset("ffhq", tmp_path, "valid")] == ["00006"]


def test_wrong_preset_or_layout_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected one of"):
        find_preset("faces", tmp_path)
    with pytest.raises(DataError, match="paris_train_original"):
        find_preset("paris-streetview", tmp_path)
    assert set(LAYOUTS) | {"ffhq"} == set(PRESETS)


def test_drawn_faces_repeat_and_smile_as_often_as_stated() -> None:
    assert np.array_equal(face(5, 32), face(5, 32))
    # The middle of a frown is higher than its ends: compare the redness of the two rows where either would be.
    smiles = 0
    for seed in range(200):
        pixels = np.asarray(face(seed, 32), float)
        red = pixels[..., 0] - pixels[..., 1]
        smiles += red[22, 15:17].mean() > red[20, 15:17].mean()
    assert abs(smiles / 200 - SMILE) < 0.1


@pytest.mark.parametrize("count", [1, 2, 7, 40, 200])
def test_spread_visits_each_once_and_neighbours_far_apart(count: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    if count >= 40:
        assert min(abs(a - b) for a, b in pairwise(order)) > count / 4
