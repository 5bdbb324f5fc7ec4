"""Attacks 1 to 3: picture files. Allowed: a photo or a mask, or a `PicmeError`."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from picme_sdk import Completer, PicmeError
from picme_sdk.errors import BadImage, BadMask, ImageTooLarge
from picme_sdk.pixels.photo import load
from picme_sdk.pixels.png import save_png
from tests.attacks.conftest import MASK, PHOTO


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(20_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def gif(width: int, height: int, frame: tuple[int, int]) -> bytes:
    """A small screen with a frame that reaches far beyond it."""
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    return screen + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x4c\x01\x00;"


BOMBS: dict[str, bytes] = {
    "50,000 x 50,000": png(50_000, 50_000),
    "just over the limit": png(10_001, 10_000),
    "one row": png(2**31 - 1, 1),
    "gif frame beyond its screen": gif(8, 8, (65_535, 65_535)),
    "100 MB of text": png(8, 8, chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(100_000_000)))),
    "100 MB of profile": png(8, 8, chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(100_000_000)))),
    "bmp": b"BM"
    + struct.pack("<IHHIIiiHHIIiiII", 60, 0, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    + bytes(6),
    "ppm": b"P6 90000 90000 255\n" + bytes(100),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize("as_mask", [False, True], ids=["photo", "mask"])
def test_01_decompression_bomb(completer: Completer, bomb: bytes, as_mask: bool) -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(BadMask if as_mask else BadImage):
            completer.encode(*((PHOTO, bomb) if as_mask else (bomb, MASK)))
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_01_bomb_in_memory_of_its_own(bundle_folder: Path, tmp_path: Path) -> None:
    """All bombs in a fresh process: its peak is what Pillow's own allocations would raise."""
    for number, bomb in enumerate(BOMBS.values()):
        (tmp_path / f"{number}.png").write_bytes(bomb)
    script = """
import resource, sys
from picme_sdk.errors import BadImage
from picme_sdk.pixels.photo import load, open_image
load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    try:
        load(path)
    except BadImage:
        pass
sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""
    Image.fromarray(PHOTO).save(tmp_path / "good.png")
    paths = [str(tmp_path / "good.png"), *(str(tmp_path / f"{n}.png") for n in range(len(BOMBS)))]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50_000, "kilobytes"


def test_01_a_lazily_opened_bomb(completer: Completer) -> None:
    opened = Image.new("L", (1, 1))
    opened._size = (20_000, 20_000)  # as Pillow knows a file that it has not read yet
    with pytest.raises(ImageTooLarge):
        completer.encode(opened, MASK)
    with pytest.raises(BadMask):
        completer.encode(PHOTO, opened)


def exif() -> Image.Exif:
    made = Image.Exif()
    made[0x0112], made[0x010F] = 6, "maker"
    return made


SOURCES: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: encoded(Image.fromarray(PHOTO), "PNG", icc_profile=b"profile", exif=exif()),
    "palette": lambda: encoded(Image.fromarray(PHOTO).quantize(8), "PNG", transparency=bytes(range(8))),
    "JPEG": lambda: encoded(Image.fromarray(PHOTO), "JPEG", icc_profile=b"profile" * 20, exif=exif()),
    "WEBP": lambda: encoded(Image.fromarray(PHOTO), "WEBP", exif=exif()),
    "TIFF": lambda: encoded(Image.fromarray(PHOTO), "TIFF", compression="tiff_lzw", icc_profile=b"profile"),
    "GIF": lambda: encoded(Image.fromarray(PHOTO).quantize(8), "GIF", transparency=3),
    "PPM": lambda: encoded(Image.fromarray(PHOTO), "PPM"),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::RuntimeWarning:PIL")
def test_02_damaged_file(completer: Completer, kind: str, tmp_path: Path) -> None:
    """200 seeded mutations a format: a result that can be saved, or our error; never another exception, never a crash."""
    good, random = SOURCES[kind](), np.random.default_rng(2)
    refused = 0
    for _ in range(200):
        data = bytearray(good)
        if random.uniform() < 0.3:
            data = data[: random.integers(1, len(data))]
        head = min(len(data), 200) if random.uniform() < 0.5 else len(data)  # headers matter more than pixels
        for _ in range(random.integers(1, 6)):
            data[random.integers(head)] = random.integers(256)
        try:
            photo = load(bytes(data))
            photo.crop((0, 0, 1, 1))
            save_png(photo.compose([]) if photo.finish is None else photo.pixels, tmp_path / "x.png")
        except PicmeError:
            refused += 1
    assert refused > 5, "mutations that change nothing prove nothing"


def test_02_truncated_image_that_pillow_has_not_read_yet(completer: Completer) -> None:
    for kind in ("PNG", "JPEG", "WEBP", "TIFF"):
        whole = SOURCES[kind]()
        part = io.BytesIO(whole[: len(whole) // 2])
        try:
            opened = Image.open(part)
        except Exception:  # noqa: S112 (WebP is read at once)
            continue
        with pytest.raises(BadImage):
            completer.encode(opened, MASK)
        part.seek(0)
        with pytest.raises(BadMask):
            completer.encode(PHOTO, Image.open(part))
    closed = Image.fromarray(PHOTO)
    closed.close()
    with pytest.raises(BadImage):
        completer.encode(closed, MASK)


@pytest.mark.parametrize("value", [7, "text", (1, 2, 3)])
@pytest.mark.filterwarnings("ignore:Metadata Warning")
def test_02_a_colour_profile_that_is_none(completer: Completer, value: object) -> None:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[34675] = value
    tags.tagtype[34675] = {int: 3, str: 2, tuple: 4}[type(value)]
    result = completer.complete(encoded(Image.fromarray(PHOTO), "TIFF", tiffinfo=tags), MASK, n=1, seed=0)[0]
    assert Image.open(io.BytesIO(result.image)).size == (64, 48)


@pytest.mark.parametrize("transparency", ["x", b"abc", 999, b"a" * 1000])
@pytest.mark.parametrize("mode", ["RGB", "P", "L"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_02_a_transparency_that_is_none(completer: Completer, mode: str, transparency: object) -> None:
    for image in (Image.fromarray(PHOTO).convert(mode), Image.fromarray(MASK).convert(mode)):
        image.info["transparency"] = transparency
        for given in ((image, MASK), (PHOTO, image)):
            try:
                assert completer.encode(*given).size == (64, 48)
            except PicmeError as error:
                assert isinstance(error, (BadImage, BadMask))  # noqa: PT017


class Payload:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, ("import pathlib; pathlib.Path('canary').touch()",)


def disguises() -> dict[str, bytes]:
    stream = io.BytesIO()
    np.save(stream, np.array([Payload()], object), allow_pickle=True)
    return {
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 48\n%%EndComments\nshowpage\n",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='64' height='48'/>",
        "pdf": b"%PDF-1.4\n1 0 obj<<>>endobj\n",
        "npy": stream.getvalue(),
        "html": b"<!doctype html><script>alert(1)</script>",
        "ico": encoded(Image.fromarray(PHOTO), "ICO"),
        "icns": b"icns" + struct.pack(">I", 100) + b"ic10" + struct.pack(">I", 92) + bytes(84),
        "empty": b"",
        "one byte": b"\x89",
    }


@pytest.mark.parametrize("kind", disguises())
def test_03_wrong_format_in_a_friendly_name(
    completer: Completer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused by its content whatever its name; Ghostscript is never started, nothing is unpickled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a process was started"))
    path = tmp_path / "photo.png"
    path.write_bytes(disguises()[kind])
    with pytest.raises(BadImage):
        completer.encode(path, MASK)
    with pytest.raises(BadMask):
        completer.encode(PHOTO, path)
    assert not (tmp_path / "canary").exists()


def test_03_paths_that_are_no_files(completer: Completer, tmp_path: Path) -> None:
    loop = tmp_path / "loop.png"
    loop.symlink_to(loop)
    for path in (tmp_path, tmp_path / "missing.png", loop, "a\0b", "/dev/null", "x" * 5000):
        with pytest.raises(BadImage):
            completer.encode(path, MASK)
        with pytest.raises(BadMask):
            completer.encode(PHOTO, path)
