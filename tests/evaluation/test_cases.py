import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.cases import KINDS, MAX_HOLE, Cases
from evaluation.faces import write_faces
from picme_sdk.errors import BadArgument


@pytest.mark.parametrize("kind", KINDS)
def test_cases_repeat_and_fewer_are_the_first_of_all(faces: Path, kind: str) -> None:
    all_cases, few = list(Cases(faces, 32, seed=3).of(kind)), list(Cases(faces, 32, 5, 3).of(kind))
    assert len(all_cases) == 40
    for a, b in zip(few, all_cases, strict=False):
        assert (a.name, a.seed, a.kind) == (b.name, b.seed, kind)
        assert np.array_equal(a.mask, b.mask)
        assert set(np.unique(a.mask)) == {0, 255}
        assert 0 < (a.mask > 0).mean() <= MAX_HOLE
    assert len({case.seed for case in all_cases}) == 40


def test_another_seed_gives_other_masks(faces: Path) -> None:
    a, b = (next(Cases(faces, 32, 1, seed).of("random")) for seed in (0, 1))
    assert not np.array_equal(a.mask, b.mask)


def test_an_unreadable_picture_is_left_out_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_faces(tmp_path, 4, 32)
    (tmp_path / "face_00002.png").write_bytes(b"no picture")
    with caplog.at_level(logging.WARNING):
        names = [case.name for case in Cases(tmp_path, 32).of("center")]
    assert sorted(names) == ["face_00000.png", "face_00001.png", "face_00003.png"]
    assert "face_00002.png" in caplog.text


def test_equal_names_are_refused(tmp_path: Path) -> None:
    write_faces(tmp_path / "a", 1, 32)
    write_faces(tmp_path / "b", 1, 32)
    with pytest.raises(BadArgument, match="occur twice"):
        Cases(tmp_path, 32)


def test_masks_come_from_a_folder(faces: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    half = np.zeros((10, 10), np.uint8)
    half[:5] = 255
    Image.fromarray(half).save(folder / "half.png")
    case = next(Cases(faces, 32, 1).of(str(folder)))
    assert case.kind == "mine"
    assert case.mask[:16].all()
    assert not case.mask[16:].any()
    Image.fromarray(np.zeros((10, 10), np.uint8)).save(folder / "empty.png")
    with pytest.raises(BadArgument, match=r"empty\.png"):
        next(Cases(faces, 32, 1).of(str(folder)))


def test_unknown_kinds_are_refused(faces: Path) -> None:
    with pytest.raises(BadArgument, match="rectangles"):
        next(Cases(faces, 32, 1).of("middle"))
