import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picme_sdk import Completer
from picme_sdk.batch import Folder, PhotoReport, Sampling, photos_in, result_path, run_batch, watch
from picme_sdk.contract import IMAGE_FORMATS, IMAGE_SUFFIXES
from tests.conftest import read_image
from tests.vectors.make import photo as formula


@pytest.fixture(scope="module")
def completer(bundle_folder: Path):
    with Completer(bundle_folder, "cpu") as made:
        yield made


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.png", "a.jpg", "b c.png", "-x.png", "\u00fcml\u00e4ut.png"):
        Image.fromarray(formula(40, 30)).save(folder / name)
    (folder / "note.txt").write_text("not a photo")
    return folder


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    values = np.zeros((30, 40), np.uint8)
    values[10:20, 10:20] = 255
    Image.fromarray(values).save(tmp_path / "mask.png")
    return tmp_path / "mask.png"


def run(completer: Completer, photos: Path, out: Path, mask: Path | None, **sampling: int) -> dict[str, PhotoReport]:
    reports = run_batch(completer, photos_in(photos), Folder(out, mask), Sampling(**sampling), lambda report: None)
    return {report.photo: report for report in reports}


def test_every_photo_is_completed_and_reported(completer: Completer, photos: Path, mask: Path, tmp_path: Path) -> None:
    reports = run(completer, photos, tmp_path / "out", mask, n=2, seed=3)
    assert {r.state for r in reports.values()} == {"done"}
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {f"{name}-{i}.png" for name in reports for i in (1, 2)}, "a.jpg and a.png do not meet"
    made = read_image(tmp_path / "out" / "a.png-1.png")
    assert made.text["picme-token"] == reports["a.png"].results[0]["token"]
    hole = np.asarray(read_image(mask)) > 0
    assert np.array_equal(np.asarray(made)[~hole], formula(40, 30)[~hole])


@pytest.mark.parametrize("kind", IMAGE_FORMATS)
def test_a_folder_of_any_format_is_completed(completer: Completer, mask: Path, tmp_path: Path, kind: str) -> None:
    suffix = next(s for s in IMAGE_SUFFIXES if Image.registered_extensions()[s] == kind)
    (tmp_path / "photos").mkdir()
    Image.fromarray(formula(40, 30)).save(tmp_path / "photos" / f"a{suffix}", kind)
    reports = run(completer, tmp_path / "photos", tmp_path / "out", mask)
    assert [(name, r.state) for name, r in reports.items()] == [(f"a{suffix}", "done")]


def test_a_bad_file_does_not_stop_the_others(completer: Completer, photos: Path, mask: Path, tmp_path: Path) -> None:
    (photos / "broken.png").write_bytes(b"hello")
    Image.fromarray(formula(10, 10)).save(photos / "small.png")
    reports = run(completer, photos, tmp_path / "out", mask)
    assert {name for name, r in reports.items() if r.state == "failed"} == {"broken.png", "small.png"}
    assert "no picture" in reports["broken.png"].error
    assert "40x30 for a photo of 10x10" in reports["small.png"].error
    assert sum(r.state == "done" for r in reports.values()) == 5


def test_what_is_there_is_never_overwritten(completer: Completer, photos: Path, mask: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.png-1.png").write_text("precious")
    reports = run(completer, photos, out, mask)
    assert reports["a.png"].state == "skipped"
    assert (out / "a.png-1.png").read_text() == "precious"
    again = run(completer, photos, out, mask)
    assert {r.state for r in again.values()} == {"skipped"}, "a second run only does what is missing"


def test_masks_from_a_folder_by_name(completer: Completer, photos: Path, mask: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    masks.mkdir()
    shutil.copy(mask, masks / "a.png")
    reports = run(completer, photos, tmp_path / "out", masks)
    assert {name for name, r in reports.items() if r.state == "done"} == {"a.png", "a.jpg"}
    assert "no mask for b c.png" in reports["b c.png"].error


def test_alpha_is_the_mask_when_none_is_given(completer: Completer, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    alpha = np.full((30, 40), 255, np.uint8)
    alpha[5:15, 5:15] = 0
    Image.fromarray(np.dstack([formula(40, 30), alpha])).save(tmp_path / "photos" / "a.png")
    reports = run(completer, tmp_path / "photos", tmp_path / "out", None)
    assert reports["a.png"].state == "done"
    assert np.asarray(read_image(tmp_path / "out" / "a.png-1.png"))[..., 3].min() == 255


def test_very_long_names_stay_apart(tmp_path: Path) -> None:
    names = [Path("\u00e4" * 120 + f"{i}.png") for i in range(2)]
    paths = [result_path(tmp_path, name, 1) for name in names]
    assert paths[0] != paths[1]
    for path in paths:
        path.write_text("fits")


def test_a_read_only_folder_is_reported(
    completer: Completer, photos: Path, mask: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image.Image, "save", refuse)
    reports = run(completer, photos, tmp_path / "out", mask)
    assert {r.state for r in reports.values()} == {"failed"}
    assert "Permission denied" in reports["a.png"].error
    assert list((tmp_path / "out").iterdir()) == [], "no partial file"


def test_watching_gives_each_photo_once_when_it_is_complete(photos: Path) -> None:
    stop, seen = threading.Event(), []
    for photo in watch(photos, stop, every=0.01):
        seen.append(photo.name)
        if len(seen) == 5:
            shutil.copy(photos / "a.png", photos / "late.png")
        if photo.name == "late.png":
            stop.set()
    assert sorted(seen) == sorted({*seen})
    assert seen[-1] == "late.png"
