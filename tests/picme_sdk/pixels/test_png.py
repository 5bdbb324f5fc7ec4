"""PNG files out."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from picme_sdk.pixels.png import png_bytes, read_token, save_png


def test_a_token_is_written_and_read(tmp_path: Path) -> None:
    picture = Image.linear_gradient("L")
    save_png(picture, tmp_path / "a.png", "a-token")
    assert read_token(tmp_path / "a.png") == "a-token"
    assert read_token(io.BytesIO(png_bytes(picture, "b-token", 1))) == "b-token"
    assert read_token(io.BytesIO(png_bytes(picture))) == ""


@pytest.mark.parametrize("level", [None, 0, 1, 9])
def test_pixels_and_profile_survive_at_every_level(level: int | None) -> None:
    picture = Image.linear_gradient("L").convert("RGB")
    picture.info["icc_profile"] = b"profile"
    with Image.open(io.BytesIO(png_bytes(picture, level=level))) as read:
        assert read.tobytes() == picture.tobytes()
        assert read.info["icc_profile"] == b"profile"
    assert len(png_bytes(picture, level=0)) > len(png_bytes(picture, level=9))


def test_cmyk_becomes_rgb_without_its_profile() -> None:
    picture = Image.new("CMYK", (3, 2), (0, 255, 0, 0))
    picture.info["icc_profile"] = b"for print"
    with Image.open(io.BytesIO(png_bytes(picture))) as read:
        assert (read.mode, read.size) == ("RGB", (3, 2))
        assert "icc_profile" not in read.info
    assert picture.info["icc_profile"] == b"for print", "the given picture is not changed"
