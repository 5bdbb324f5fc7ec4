"""Pictures of the studio: base64 in, PNG out. A picture's kind and size are read from its header before anything is decoded."""

from __future__ import annotations

import base64
import binascii
import io

from PIL import Image, UnidentifiedImageError

from picme_sdk.contract import BROWSER_FORMATS, MAX_HTTP_PIXELS, MEDIA_TYPES
from picme_sdk.errors import BadArgument, BadImage, ImageTooLarge
from picme_sdk.pixels.mask import MaskLike, load_mask
from picme_sdk.pixels.photo import Box, Photo, load
from picme_sdk.pixels.png import png_bytes
from picme_sdk.scene import Completion

EFFORT = 1  # of PNG compression: 6 is three times slower for a file a quarter smaller
PREVIEW = 1024  # longest side of a preview, pixels


def from_text(text: object, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error) as error:
        raise BadArgument(f"a {what} that is no base64", "a picture file as base64", "encode its bytes") from error


def to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def check_picture(data: bytes, what: str) -> str:
    """The media type of a picture, from its header alone: nothing is decoded before its kind and size are known."""
    try:
        with Image.open(io.BytesIO(data), formats=BROWSER_FORMATS) as image:
            width, height = image.size
            kind = MEDIA_TYPES.get(image.format or "", "image/jpeg")  # JPEG has several names
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(what) from error
    except UnidentifiedImageError as error:
        raise BadImage(
            f"a {what} of {len(data):,} bytes is no such picture", f"one of {', '.join(BROWSER_FORMATS)}", "convert it"
        ) from error
    except Exception as error:  # Pillow's parsers raise many exceptions on damaged data
        raise BadImage(f"a {what} that can't be read", "an undamaged picture", "check the file") from error
    if width * height > MAX_HTTP_PIXELS:
        raise _too_large(f"{what} of {width}x{height}")
    return kind


def _too_large(what: str) -> ImageTooLarge:
    return ImageTooLarge(f"a {what}", f"at most {MAX_HTTP_PIXELS:,} pixels", "crop or shrink it first")


def read_photo(text: str) -> Image.Image:
    """A photo, upright, in a mode that PNG can hold."""
    data = from_text(text, "photo")
    check_picture(data, "photo")
    pixels = load(data).pixels
    if not isinstance(pixels, Image.Image):
        raise TypeError("a photo from bytes holds a Pillow image")
    if pixels.mode == "CMYK":
        pixels = pixels.convert("RGB")
        pixels.info.pop("icc_profile", None)
    return pixels


def read_hole(photo: Image.Image, text: str | None) -> tuple[Image.Image | None, Box]:
    """A mask of the photo's size (None if its transparent pixels are the hole), and the box around the hole."""
    painted: MaskLike = None
    if text is not None:
        painted = from_text(text, "mask")
        check_picture(painted, "mask")
    hole = load_mask(painted, load(photo))
    if painted is None:
        return None, hole.box
    whole = Image.new("L", photo.size)
    whole.paste(Image.fromarray(hole.values), hole.box[:2])
    return whole, hole.box


def png(result: Completion) -> bytes:
    """A result as a PNG file with its token inside."""
    return png_bytes(result.image, result.token, EFFORT)


def preview(result: Completion, box: Box) -> bytes:
    """The part of a result in a box, as a small PNG."""
    image: Image.Image = result.image
    if image.mode in ("LA", "RGBA"):
        part = image.crop(box).convert("RGBA")
    else:
        part = Image.fromarray(Photo(image, None).crop(box))
    part.thumbnail((PREVIEW, PREVIEW))
    part.info["icc_profile"] = image.info.get("icc_profile") if part.mode == image.mode else None
    return png_bytes(part, level=EFFORT)
