"""PNG files out, with the result's token and the photo's colour profile inside."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

from PIL import Image, PngImagePlugin

from picme_sdk.io import replacing

TOKEN_KEY = "picme-token"  # noqa: S105 (the name of a PNG text, no secret)


def write_png(image: Image.Image, target: IO[bytes] | Path, token: str | None = None, level: int | None = None) -> None:
    """Encode an image. PNG has no CMYK: such an image becomes RGB, without the profile that no longer fits.

    level  of compression, 0 to 9; None is Pillow's choice
    """
    if image.mode == "CMYK":
        image = image.convert("RGB")
        image.info.pop("icc_profile", None)
    text = PngImagePlugin.PngInfo()
    if token:
        text.add_text(TOKEN_KEY, token)
    options: dict[str, Any] = {} if level is None else {"compress_level": level}
    image.save(target, "PNG", pnginfo=text, icc_profile=image.info.get("icc_profile"), **options)


def png_bytes(image: Image.Image, token: str | None = None, level: int | None = None) -> bytes:
    """A PNG file as bytes."""
    stream = io.BytesIO()
    write_png(image, stream, token, level)
    return stream.getvalue()


def save_png(image: Image.Image, path: Path, token: str | None = None) -> None:
    """Write a PNG file, whole or not at all. The caller has checked that the name is free."""
    with replacing(path) as temporary:
        write_png(image, temporary, token)


def read_token(file: IO[bytes] | Path) -> str:
    """The token inside a PNG file, "" where there is none."""
    with Image.open(file, formats=("PNG",)) as picture:
        return str(picture.info.get(TOKEN_KEY, ""))
