"""Regression tests for the defects that fuzzing found and that are fixed. The inputs are in the corpora too, where any `PicmeError` passes."""

import io

import numpy as np
import pytest
from PIL import Image

from fuzz import fuzz_http, fuzz_manifest
from fuzz.fill import centre, fill
from picme_sdk.bundle.manifest import parse_manifest
from picme_sdk.errors import BadBundle, BadMask
from picme_sdk.pixels import crops as holes
from picme_sdk.pixels.mask import load_mask
from picme_sdk.pixels.photo import load
from picme_sdk.pixels.png import save_png
from tests.conftest import ROOT, read_image

CORPUS = ROOT / "fuzz" / "corpus"


def test_bytes_of_a_cmyk_photo_come_back_as_an_rgb_png(tmp_path) -> None:
    photo = (CORPUS / "image" / "cmyk.jpg").read_bytes()
    before = np.asarray(Image.open(io.BytesIO(photo)).convert("RGB"))
    mask = centre(8, 8)
    after = Image.open(io.BytesIO(fill(photo, mask)))
    assert (after.format, after.mode) == ("PNG", "RGB")
    kept = np.asarray(mask) == 0
    assert np.array_equal(np.asarray(after)[kept], before[kept])
    save_png(Image.new("CMYK", (3, 3)), tmp_path / "cmyk.png")
    assert read_image(tmp_path / "cmyk.png").mode == "RGB"


def test_a_mask_that_can_not_be_made_grey_is_refused() -> None:
    with pytest.raises(BadMask, match="mode LAB"):
        load_mask((CORPUS / "image" / "lab.tiff").read_bytes(), load(np.zeros((5, 6, 3), np.uint8)))


def test_half_a_character_in_a_manifest_is_refused() -> None:
    data = (CORPUS / "manifest" / "half-character.json").read_bytes()
    with pytest.raises(BadBundle, match="licence"):
        parse_manifest(data)
    parse_manifest(fuzz_manifest.resealed(data.replace(rb"\ud800", b"CC0-1.0")))


@pytest.mark.parametrize("name", ["query-no-utf8", "query-no-utf8-slash"])
def test_a_query_that_is_no_ascii_is_refused(name: str) -> None:
    status, body = fuzz_http.ask((CORPUS / "http" / name).read_bytes(), "none")
    assert status == 400
    assert b"query" in body


def test_many_islands_cost_little_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares were recomputed for every pair at every join: two hundred thousand of them, which took a second."""
    mask = np.zeros((512, 512), np.uint8)
    for y in range(0, 512, 64):
        for x in range(0, 512, 64):
            mask[y : y + 6, x : x + 6] = 255
    calls, whole = [], holes.square_around
    monkeypatch.setattr(holes, "square_around", lambda *given: calls.append(given) or whole(*given))
    photo = load(np.zeros((512, 512, 3), np.uint8))
    assert len(holes.find_crops(photo, load_mask(mask, photo), 16, None)) == 1
    assert len(calls) < 10_000
