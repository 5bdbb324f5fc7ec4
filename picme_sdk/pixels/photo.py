"""Photos in and out: a path, bytes, a PIL image or an array goes in; the same kind and size comes out.

A photo is never converted as a whole: `crop` reads only the square around a hole, and `compose` copies the photo once and changes only
pixels inside the hole, in the photo's own mode and depth. So every other pixel is bit-identical, and the cost depends on the hole, not on the photo.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from picme_sdk.contract import IMAGE_FORMATS, MAX_PIXELS
from picme_sdk.errors import BadImage, ImageTooLarge, UnknownImageFormat
from picme_sdk.pixels.png import png_bytes

U8 = NDArray[np.uint8]
ImageLike = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Image.Image, NDArray[Any]]
Box = tuple[int, int, int, int]  # left, top, right, bottom

# The mode in which a Pillow mode is processed; palettes can't hold new colours, so they become RGB or RGBA first.
MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "RGBX": "RGB", "RGBa": "RGBA", "La": "LA", "YCbCr": "RGB", "HSV": "RGB", "LAB": "RGB", "I;16B": "I;16", "I;16N": "I;16"}  # fmt: skip
WORKING = ("L", "LA", "RGB", "RGBA", "CMYK", "I;16")


@dataclass(frozen=True)
class Patch:
    """New pixels for a box of the photo: rgb uint8 [h, w, 3], alpha uint8 [h, w] (0 = leave the pixel alone)."""

    box: Box
    rgb: U8
    alpha: U8


@dataclass(frozen=True)
class Photo:
    """A photo as it was given. It is not copied: do not change it while it is in use."""

    pixels: Image.Image | NDArray[Any]  # upright
    finish: Callable[[Image.Image], Any] | None  # Pillow image -> what the user gets; None for arrays
    opaque: bool = False  # the hole was drawn by erasing, so results are opaque inside it

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        if isinstance(self.pixels, Image.Image):
            return self.pixels.size
        return self.pixels.shape[1], self.pixels.shape[0]

    def crop(self, box: Box) -> U8:
        """RGB uint8 [h, w, 3] of a box."""
        if isinstance(self.pixels, Image.Image):
            part = self.pixels.crop(box)
            if part.mode == "I;16":
                return _array_rgb(np.asarray(part))
            return np.asarray(part.convert("RGB"))
        return _array_rgb(self.pixels[box[1] : box[3], box[0] : box[2]])

    def alpha(self) -> U8 | None:
        """The alpha channel, uint8, where there is one."""
        if isinstance(self.pixels, Image.Image):
            return np.asarray(self.pixels.getchannel("A")) if self.pixels.mode in ("LA", "RGBA") else None
        if self.pixels.ndim == 3 and self.pixels.shape[2] in (2, 4):
            return _to_u8(self.pixels[..., -1])
        return None

    def compose(self, patches: Sequence[Patch]) -> Any:
        """A new photo of the same kind with the patches in place."""
        if isinstance(self.pixels, Image.Image):
            result = self.pixels.copy()
            for patch in patches:
                part = np.asarray(result.crop(patch.box)).copy()
                _blend_into(part, patch, self.pixels.mode, self.opaque)
                result.paste(_from_array(part, self.pixels.mode), patch.box[:2])
            return self.finish(result) if self.finish else result
        changed = self.pixels.copy()
        for patch in patches:
            left, top, right, bottom = patch.box
            _blend_into(changed[top:bottom, left:right], patch, None, self.opaque)
        return changed


def _from_array(part: NDArray[Any], mode: str) -> Image.Image:
    image = Image.fromarray(part)
    return image if image.mode == mode else Image.frombytes(mode, image.size, np.ascontiguousarray(part).tobytes())


def _to_u8(values: NDArray[Any]) -> U8:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "u":
        return (values >> 8).astype(np.uint8)
    return np.rint(values * 255.0).astype(np.uint8)


def _array_rgb(part: NDArray[Any]) -> U8:
    eight = _to_u8(part)
    if eight.ndim == 2:
        eight = eight[..., None]
    colour = eight[..., :3] if eight.shape[2] >= 3 else np.repeat(eight[..., :1], 3, axis=2)
    return np.ascontiguousarray(colour)


def _fill(rgb: U8, like: NDArray[Any], mode: str | None) -> NDArray[Any]:
    """Fill colours in the channels and depth of `like` (without its alpha)."""
    channels = 1 if like.ndim == 2 else like.shape[2]
    if mode == "CMYK":
        return np.asarray(Image.fromarray(rgb).convert("CMYK"))
    colour: NDArray[Any] = rgb if channels >= 3 else np.asarray(Image.fromarray(rgb).convert("L"))[..., None]
    if like.dtype == np.uint8:
        return colour
    if like.dtype.kind == "u":
        deep: NDArray[Any] = colour.astype(like.dtype) * like.dtype.type(257)
        return deep
    return (colour / 255.0).astype(like.dtype)


def _blend_into(part: NDArray[Any], patch: Patch, mode: str | None, opaque: bool) -> None:
    """Change `part` where alpha > 0 and not a single bit elsewhere."""
    fill = _fill(patch.rgb, part, mode)
    target = part[..., None] if part.ndim == 2 else part[..., : fill.shape[2]]
    if patch.alpha.min() == 255:
        target[...] = fill
        hole: Any = ...
    elif not ((patch.alpha != 0) & (patch.alpha != 255)).any():
        hole = patch.alpha > 0
        np.copyto(target, fill, where=hole[..., None], casting="unsafe")
    else:
        hole = patch.alpha > 0
        weight = patch.alpha[..., None] / 255.0
        mixed = target * (1 - weight) + fill * weight
        mixed = np.rint(mixed) if part.dtype.kind == "u" else mixed
        np.copyto(target, mixed.astype(part.dtype), where=hole[..., None])
    if opaque and part.ndim == 3 and part.shape[2] in (2, 4) and mode != "CMYK":
        opaque_value: Any = np.iinfo(part.dtype).max if part.dtype.kind == "u" else 1
        part[..., -1][hole] = opaque_value


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise BadImage(f"a photo of {width}x{height}", "at least one pixel", "check the photo")
    if width * height > MAX_PIXELS:
        raise ImageTooLarge(f"a photo of {width}x{height}", f"at most {MAX_PIXELS:,} pixels", "crop or shrink it first")


def open_image(source: str | os.PathLike[str] | bytes, what: str) -> Image.Image:
    """Decode a file or bytes with Pillow; its size is checked before anything is allocated."""
    shown = f"{len(source):,} bytes" if isinstance(source, bytes) else str(source)
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as stream:
            image = Image.open(stream, formats=IMAGE_FORMATS)
            _check_size(*image.size)
            image.load()
    except BadImage:
        raise
    except FileNotFoundError as error:
        raise BadImage(f"{what} {shown} does not exist", "a picture file", "check the path") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLarge(f"{what} {shown}", f"at most {MAX_PIXELS:,} pixels", "crop or shrink it first") from error
    except UnidentifiedImageError as error:
        raise UnknownImageFormat(
            f"{what} {shown} is no picture", f"one of {', '.join(IMAGE_FORMATS)}", "convert it first"
        ) from error
    except Exception as error:
        raise _damaged(f"{what} {shown}", error) from error
    return image


def _damaged(what: str, error: Exception) -> BadImage:
    """One error for the many exceptions that Pillow's decoders raise on damaged data."""
    reason = f"{type(error).__name__}: {error}"[:120]
    return BadImage(f"{what} can't be read ({reason})", "an undamaged picture", "check the file")


def decoded(image: Image.Image, what: str) -> Image.Image:
    """The image with its pixels in memory: Pillow reads the file of an opened image only when its pixels are needed."""
    _check_size(*image.size)
    try:
        image.load()
    except Exception as error:
        raise _damaged(f"a {what}", error) from error
    return image


def _upright(image: Image.Image) -> Image.Image:
    """As a viewer shows it, in a mode that can hold new colours; the colour profile stays."""
    try:
        turned = ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF: the picture is taken as it is stored
        turned = image
    mode = MODES.get(turned.mode, turned.mode)
    if mode == "RGB" and "transparency" in turned.info:
        mode = "RGBA"
    if mode not in WORKING:
        raise BadImage(
            f"a picture of mode {turned.mode}", f"one of {', '.join((*WORKING, *MODES))}", "convert it to RGB"
        )
    if not isinstance(turned.info.get("icc_profile", b""), bytes):  # a TIFF file may hold anything there
        turned = turned.copy()
        del turned.info["icc_profile"]
    try:
        upright = turned if turned.mode == mode else turned.convert(mode)
        Photo(upright, None).crop((0, 0, 1, 1))
    except Exception as error:  # an invalid transparency
        raise _damaged("a photo", error) from error
    return upright


def _check_array(pixels: NDArray[Any]) -> NDArray[Any]:
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 2, 3, 4)):
        raise BadImage(f"an array of shape {pixels.shape}", "[h, w] or [h, w, 1 to 4]", "pass one photo, channels last")
    _check_size(pixels.shape[1], pixels.shape[0])
    if not pixels.dtype.isnative:
        pixels = pixels.astype(pixels.dtype.newbyteorder("="))
    if pixels.dtype.kind == "f":
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise BadImage(
                f"a {pixels.dtype} array outside 0..1 or not finite", "values from 0 to 1", "scale it, or pass uint8"
            )
    elif pixels.dtype not in (np.uint8, np.uint16):
        raise BadImage(f"an array of {pixels.dtype}", "uint8, uint16, or float in 0..1", "convert it first")
    return pixels


def load(image: ImageLike) -> Photo:
    """Accept a photo of any supported kind; `BadImage` says what is wrong with it otherwise."""
    if isinstance(image, np.ndarray):
        return Photo(_check_array(np.asarray(image)), None)  # subclasses, such as np.matrix, index differently
    if isinstance(image, Image.Image):
        return Photo(_upright(decoded(image, "photo")), lambda result: result)
    if isinstance(image, (bytes, bytearray, memoryview)):
        return Photo(_upright(open_image(bytes(image), "photo")), png_bytes)
    if isinstance(image, (str, os.PathLike)):
        return Photo(_upright(open_image(image, "photo")), lambda result: result)
    raise BadImage(
        f"a photo of type {type(image).__name__}", "a path, bytes, PIL image or numpy array", "convert it first"
    )
