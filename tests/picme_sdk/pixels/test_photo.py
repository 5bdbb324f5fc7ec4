"""Photos of every kind: the same kind, size and depth out, and not a bit changed outside the hole."""

import io
import resource
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from picme_sdk import Completer
from picme_sdk.contract import MAX_PIXELS
from picme_sdk.errors import BadImage, ImageTooLarge, PicmeError
from picme_sdk.pixels.photo import load
from tests.conftest import read_image
from tests.vectors.make import photo as formula

MASK = np.zeros((36, 50), bool)
MASK[10:26, 15:35] = True


@pytest.fixture(scope="module")
def completer(bundle_folder: Path):
    with Completer(bundle_folder, "cpu") as made:
        yield made


def result(completer: Completer, image: Any, mask: Any = MASK) -> Any:
    return completer.complete(image, mask, n=1, seed=3)[0].image


RGB = formula(50, 36)
DEEP = RGB.astype(np.uint16) * 257 + 3
ARRAYS = {
    "RGB": RGB,
    "RGBA": np.dstack([RGB, RGB[..., 0]]),
    "grey": RGB[..., 0],
    "grey with axis": RGB[..., :1],
    "grey and alpha": RGB[..., :2],
    "16 bit": DEEP,
    "16 bit grey": DEEP[..., 0],
    "float32": (RGB / 255).astype(np.float32),
    "float64": RGB / 255,
    "Fortran order": np.asfortranarray(RGB),
    "negative strides": np.ascontiguousarray(RGB[::-1, ::-1])[::-1, ::-1],
    "big-endian": DEEP.astype(">u2"),
}


@pytest.mark.parametrize("image", ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays(completer: Completer, image: np.ndarray) -> None:
    before = image.copy()
    image.setflags(write=False)
    made = result(completer, image)
    image.setflags(write=True)
    assert isinstance(made, np.ndarray)
    assert made.shape == image.shape
    assert made.dtype == image.dtype.newbyteorder("=")
    assert np.array_equal(made[~MASK], image[~MASK])
    assert not np.array_equal(made[MASK], image[MASK])
    assert np.array_equal(image, before), "the input is never changed"
    if image.ndim == 3 and image.shape[2] in (2, 4):
        assert np.array_equal(made[..., -1], image[..., -1]), "alpha is kept"


def test_all_depths_show_the_same_picture(completer: Completer) -> None:
    eight = result(completer, RGB).astype(float)
    assert np.abs(result(completer, RGB.astype(np.uint16) * 257) / 257 - eight).max() <= 1
    assert np.abs(result(completer, RGB / 255) * 255 - eight).max() <= 1


MODES = ["L", "LA", "RGB", "RGBA", "CMYK", "P", "1", "I;16", "YCbCr"]


def pillow(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(DEEP[..., 0])
    return Image.fromarray(RGB).convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_pillow_images(completer: Completer, mode: str) -> None:
    image = pillow(mode)
    made = result(completer, image)
    assert isinstance(made, Image.Image)
    assert made.size == image.size
    working = {"P": "RGB", "1": "L", "YCbCr": "RGB"}.get(mode, mode)
    assert made.mode == working
    expected = np.asarray(image.convert(working) if working != mode else image)
    assert np.array_equal(np.asarray(made)[~MASK], expected[~MASK])
    assert not np.array_equal(np.asarray(made)[MASK], expected[MASK])


def test_palette_with_transparency_keeps_it(completer: Completer) -> None:
    image = Image.fromarray(RGB).convert("P")
    image.info["transparency"] = 3
    made = result(completer, image)
    assert made.mode == "RGBA"
    assert np.array_equal(np.asarray(made)[~MASK], np.asarray(image.convert("RGBA"))[~MASK])


def test_bytes_give_bytes_and_paths_give_pillow(completer: Completer, tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    made = result(completer, data)
    assert isinstance(made, bytes)
    decoded = np.asarray(Image.open(io.BytesIO(made)))
    assert np.array_equal(decoded[~MASK], RGB[~MASK])
    for given in (bytearray(data), memoryview(data)):
        assert result(completer, given) == made
    for given in (tmp_path / "a.png", str(tmp_path / "a.png")):
        assert np.array_equal(np.asarray(result(completer, given)), decoded)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_and_the_mask_is_as_displayed(
    completer: Completer, orientation: int, tmp_path: Path
) -> None:
    stored = Image.fromarray(RGB)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    from PIL import ImageOps

    shown = np.asarray(ImageOps.exif_transpose(read_image(tmp_path / "a.png")))
    mask = np.zeros(shown.shape[:2], bool)
    mask[5:15, 8:20] = True
    made = result(completer, tmp_path / "a.png", mask)
    assert np.array_equal(np.asarray(made)[~mask], shown[~mask])
    assert made.getexif().get(0x0112, 1) == 1, "it must not be turned again"


def test_colour_profile_is_kept(completer: Completer) -> None:
    image = Image.fromarray(RGB)
    image.info["icc_profile"] = b"profile"
    assert result(completer, image).info["icc_profile"] == b"profile"
    stream = io.BytesIO()
    image.save(stream, "PNG", icc_profile=b"profile")
    assert Image.open(io.BytesIO(result(completer, stream.getvalue()))).info["icc_profile"] == b"profile"


def test_erased_pixels_become_opaque(completer: Completer) -> None:
    erased = np.dstack([RGB, np.where(MASK, 0, 255).astype(np.uint8)])
    for image in (erased, Image.fromarray(erased)):
        made = np.asarray(result(completer, image, None))
        assert (made[..., 3] == 255).all()
        assert np.array_equal(made[~MASK], erased[~MASK])


def test_soft_edges_are_blended_and_zero_is_untouched(completer: Completer) -> None:
    soft = MASK.astype(np.float32)
    soft[9, 15:35] = 0.5
    hard, blended = result(completer, RGB, soft > 0), result(completer, RGB, soft)
    expected = (RGB[9, 15:35] + hard[9, 15:35].astype(float)) / 2
    assert np.abs(blended[9, 15:35] - expected).max() <= 1.5
    assert np.array_equal(blended[soft == 0], RGB[soft == 0])


@pytest.mark.parametrize("size", [(1, 2), (3, 3), (17, 31), (7, 400), (513, 5)])
def test_odd_sizes(completer: Completer, size: tuple[int, int]) -> None:
    image = formula(*size)
    mask = np.zeros(image.shape[:2], bool)
    mask[0, 0] = True
    made = result(completer, image, mask)
    assert made.shape == image.shape
    assert np.array_equal(made[~mask], image[~mask])


BAD: dict[str, tuple[Any, str]] = {
    "four dimensions": (np.zeros((1, 36, 50, 3), np.uint8), "shape"),
    "five channels": (np.zeros((36, 50, 5), np.uint8), "shape"),
    "no pixels": (np.zeros((0, 50, 3), np.uint8), "at least one pixel"),
    "bool": (MASK, "bool"),
    "int32": (RGB.astype(np.int32), "int32"),
    "not finite": (np.full((36, 50, 3), np.nan), "not finite"),
    "infinite": (np.full((36, 50, 3), np.inf), "not finite"),
    "beyond 1": (RGB.astype(float), "0..1"),
    "missing file": ("nowhere.jpg", "does not exist"),
    "a folder": (".", "can't be read"),
    "text": (b"hello", "no picture"),
    "empty": (b"", "no picture"),
    "float mode": (Image.new("F", (50, 36)), "mode F"),
    "a number": (7, "type int"),
    "none": (None, "type NoneType"),
}


@pytest.mark.parametrize(("image", "says"), BAD.values(), ids=BAD.keys())
def test_photos_that_cannot_be_are_refused(completer: Completer, image: Any, says: str) -> None:
    with pytest.raises(BadImage, match=says) as caught:
        completer.encode(image, MASK)
    assert str(caught.value).count(" | ") == 2


def bomb(width: int, height: int) -> bytes:
    """A tiny PNG that declares a huge picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def test_decompression_bombs_are_refused_before_memory_is_taken(completer: Completer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for size in ((50_000, 50_000), (MAX_PIXELS + 1, 1), (20_000, 10_000)):
        with pytest.raises(ImageTooLarge):
            completer.encode(bomb(*size), MASK)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_damaged_files_are_read_or_refused(kind: str) -> None:
    stream = io.BytesIO()
    Image.fromarray(RGB).save(stream, kind)
    good, random = stream.getvalue(), np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(good)
        if random.uniform() < 0.3:
            data = data[: random.integers(1, len(data))]
        for _ in range(random.integers(1, 6)):
            data[random.integers(len(data))] = random.integers(256)
        try:
            load(bytes(data)).crop((0, 0, 1, 1))
        except PicmeError:
            continue


@pytest.mark.parametrize(
    "content",
    [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4\n"],
)
def test_formats_that_run_code_are_refused_whatever_they_are_called(
    completer: Completer, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "photo.png").write_bytes(content)
    with pytest.raises(BadImage, match="no picture"):
        completer.encode(tmp_path / "photo.png", MASK)
