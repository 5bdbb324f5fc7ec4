"""Attacks 4 to 9: sizes, kinds, orientations, masks, what changes and what must not. Allowed: a result of the photo's size, or a `PicmeError`."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from picme_sdk import Completer
from picme_sdk.errors import BadImage, BadMask, NumericalError
from picme_sdk.pixels.png import save_png
from tests.attacks.conftest import MASK, PHOTO
from tests.attacks.test_images import encoded
from tests.vectors.make import photo as formula


@pytest.mark.parametrize(
    "size", [(1, 2), (2, 1), (3, 3), (1, 5000), (5000, 1), (8191, 17), (31, 33), (97, 101), (7, 700)]
)
def test_04_odd_sizes(completer: Completer, size: tuple[int, int]) -> None:
    photo, mask = formula(*size), np.zeros(size[::-1], np.uint8)
    mask[: max(1, size[1] // 2), : max(1, size[0] // 2)] = 255
    result = completer.complete(photo, mask, n=2, seed=0)[1].image
    assert result.shape == photo.shape
    assert np.array_equal(result[mask == 0], photo[mask == 0])


def test_04_a_photo_of_one_pixel(completer: Completer) -> None:
    with pytest.raises(BadMask, match="hole on 100%"):
        completer.encode(np.zeros((1, 1, 3), np.uint8), np.full((1, 1), 255, np.uint8))


KINDS: dict[str, Callable[[], Any]] = {
    "float with NaN": lambda: np.where(PHOTO > 9, np.nan, 0.5),
    "float with infinity": lambda: np.where(PHOTO > 9, np.inf, 0.5),
    "float of 0 to 255": lambda: PHOTO.astype(np.float32),
    "bool": lambda: PHOTO > 9,
    "int64": lambda: PHOTO.astype(np.int64),
    "complex": lambda: PHOTO.astype(complex),
    "objects": lambda: PHOTO.astype(object),
    "texts": lambda: PHOTO.astype(str),
    "records": lambda: np.zeros((48, 64), [("r", "u1")]),
    "four dimensions": lambda: PHOTO[None],
    "one dimension": lambda: PHOTO.reshape(-1),
    "no pixels": lambda: np.zeros((0, 64, 3), np.uint8),
    "channels first": lambda: PHOTO.transpose(2, 0, 1),
    "mode F": lambda: Image.fromarray(PHOTO[..., 0].astype(np.float32)),
    "mode I": lambda: Image.fromarray(PHOTO[..., 0].astype(np.int32)),
    "a list": lambda: PHOTO.tolist(),
    "None": lambda: None,
}
FINE: dict[str, Callable[[], Any]] = {
    "fortran": lambda: np.asfortranarray(PHOTO),
    "negative strides": lambda: PHOTO[::-1, ::-1],
    "big-endian": lambda: (PHOTO.astype(np.uint16) * 257).astype(">u2"),
    "half floats": lambda: (PHOTO / 255).astype(np.float16),
    "a matrix": lambda: PHOTO[..., 0].view(np.matrix),
    "a masked array": lambda: np.ma.masked_array(PHOTO, PHOTO > 100),
    "read-only": lambda: np.frombuffer(PHOTO.tobytes(), np.uint8).reshape(PHOTO.shape),
    "broadcast": lambda: np.broadcast_to(PHOTO[:1], PHOTO.shape),
    "memory view": lambda: memoryview(encoded(Image.fromarray(PHOTO), "PNG")),
    **{mode: (lambda mode=mode: Image.fromarray(PHOTO).convert(mode)) for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV", "LAB")},
    "I;16": lambda: Image.fromarray(PHOTO[..., 0].astype(np.uint16) * 257),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_05_kinds_that_are_refused(completer: Completer, kind: str) -> None:
    with pytest.raises(BadImage):
        completer.encode(KINDS[kind](), MASK)


@pytest.mark.parametrize("kind", FINE)
def test_05_kinds_that_work(completer: Completer, kind: str) -> None:
    given = FINE[kind]()
    made = completer.complete(given, MASK, n=1, seed=0)[0].image
    if isinstance(given, np.ndarray):
        assert (made.shape, made.dtype) == (given.shape, given.dtype.newbyteorder("="))
        assert np.array_equal(made[MASK == 0], np.asarray(given)[MASK == 0])
    elif isinstance(given, memoryview):
        assert isinstance(made, bytes)
    else:
        assert made.size == given.size


@pytest.mark.parametrize("orientation", range(2, 9))
def test_06_exif_orientation(completer: Completer, orientation: int) -> None:
    """A mask drawn on the displayed photo lands where it was drawn, and a photo is displayed by its orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(PHOTO)
    data = encoded(stored, "PNG", exif=exif)
    turned = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}[orientation]
    shown = np.asarray(stored.transpose(Image.Transpose(turned)))
    mask = np.zeros(shown.shape[:2], np.uint8)
    mask[2:9, 3:20] = 255
    made = np.asarray(Image.open(io.BytesIO(completer.complete(data, mask, n=1, seed=0)[0].image)))
    assert np.array_equal(made[mask == 0], shown[mask == 0])
    assert not np.array_equal(made[mask > 0], shown[mask > 0])


@pytest.mark.parametrize("orientation", [0, 9, 65535, b"\xff\xff", "six"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_06_an_orientation_that_is_none(completer: Completer, orientation: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    try:
        data = encoded(Image.fromarray(PHOTO), "JPEG", exif=exif)
    except Exception:
        data = encoded(Image.fromarray(PHOTO), "JPEG", exif=b"Exif\0\0" + bytes(range(200)))
    assert completer.encode(data, MASK).size == (64, 48)


def islands(count: int) -> np.ndarray:
    mask = np.zeros((400, 400), np.uint8)
    mask.reshape(-1)[np.random.default_rng(0).choice(160_000, count, replace=False)] = 255
    return mask


MEANT: dict[str, Callable[[], Any]] = {
    "0 and 1": lambda: MASK // 255,
    "bool": lambda: MASK > 0,
    "float": lambda: MASK / 255,
    "16 bit": lambda: MASK.astype(np.uint16) * 257,
    "big-endian": lambda: (MASK.astype(np.uint16) * 257).astype(">u2"),
    "RGB": lambda: np.repeat(MASK[..., None], 3, 2),
    "a matrix": lambda: MASK.view(np.matrix),
    "painted on a transparent layer": lambda: Image.merge("RGBA", [Image.new("L", (64, 48), 9)] * 3 + [Image.fromarray(MASK)]),
    "integers of Pillow": lambda: Image.fromarray(MASK.astype(np.int32)),
}  # fmt: skip
NOT_MEANT: dict[str, Callable[[], Any]] = {
    "empty": lambda: np.zeros_like(MASK),
    "full": lambda: np.full_like(MASK, 255),
    "inverted": lambda: np.where(np.arange(48 * 64).reshape(48, 64) < 10, 0, 255).astype(np.uint8),
    "another size": lambda: MASK[1:],
    "turned": lambda: MASK.T,
    "coloured": lambda: PHOTO,
    "NaN": lambda: np.where(MASK > 0, np.nan, 0),
    "negative": lambda: -(MASK.astype(int)),
    "two": lambda: MASK.astype(float) / 255 * 2,
    "times": lambda: np.zeros((48, 64), "M8[s]"),
    "texts": lambda: np.full((48, 64), "x"),
    "five dimensions": lambda: MASK[None, None, None],
    "a number": lambda: 5,
}


@pytest.mark.parametrize("kind", MEANT)
def test_07_masks_that_mean_the_same(completer: Completer, kind: str) -> None:
    expected = completer.complete(PHOTO, MASK, n=1, seed=3)[0].image
    assert np.array_equal(completer.complete(PHOTO, MEANT[kind](), n=1, seed=3)[0].image, expected)


@pytest.mark.parametrize("kind", NOT_MEANT)
def test_07_masks_that_are_refused(completer: Completer, kind: str) -> None:
    with pytest.raises(BadMask):
        completer.encode(PHOTO, NOT_MEANT[kind]())


def test_07_five_thousand_islands(completer: Completer) -> None:
    photo, mask = formula(400, 400), islands(5000)
    start = time.perf_counter()
    result = completer.complete(photo, mask, n=1, seed=0)[0].image
    assert time.perf_counter() - start < 20
    assert np.array_equal(result[mask == 0], photo[mask == 0])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "1"])
@pytest.mark.parametrize("holes", ["one", "soft", "several", "reaching out"])
def test_08_outside_the_hole_not_a_bit(completer: Completer, tmp_path: Path, mode: str, holes: str) -> None:
    """Through a file in and a file out, in every mode that PNG has and on every way that a hole is filled."""
    photo, mask = formula(300, 200), np.zeros((200, 300), np.uint8)
    if holes == "reaching out":
        mask[:190, :] = 255
    elif holes == "several":
        mask[10:20, 10:20] = mask[150:190, 200:280] = mask[100, ::7] = 255
    else:
        mask[50:150, 70:170] = 128 if holes == "soft" else 255
    image = Image.fromarray(photo).convert(mode)
    image.save(tmp_path / "in.png")
    made = completer.complete(tmp_path / "in.png", mask, n=1, seed=0)[0].image
    save_png(made, tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as written:
        after = np.asarray(written)
    before = np.asarray(image.convert(written.mode))
    assert np.array_equal(after[mask == 0], before[mask == 0])
    assert not np.array_equal(after[mask > 0], before[mask > 0])


PLAIN = {
    "white": lambda: np.full_like(PHOTO, 255),
    "black": lambda: np.zeros_like(PHOTO),
    "grey": lambda: np.full_like(PHOTO, 128),
    "noise": lambda: np.random.default_rng(0).integers(0, 256, PHOTO.shape, np.uint8),
    "checks": lambda: np.indices(PHOTO.shape).sum(0).astype(np.uint8) % 2 * 255,
}


@pytest.mark.parametrize("name", PLAIN)
def test_09_bright_flat_and_noisy_photos_in_half_precision(
    bundle_folder: Path, completer: Completer, name: str
) -> None:
    photo = PLAIN[name]()
    with Completer(bundle_folder, "cpu", 1, "float16") as half:
        made = half.complete(photo, MASK, n=4, seed=1)
    for a, b in zip(made, completer.complete(photo, MASK, n=4, seed=1), strict=True):
        assert a.primitive == b.primitive
        assert np.abs(a.image.astype(int) - b.image).mean() < 2, "as in float32: no black hole"


@pytest.mark.parametrize("where", ["context", "skip_0", "decoder", "means"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_09_numbers_that_are_not_finite(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, value: float
) -> None:
    """Wherever they arise, in the encoder, the mixture or the decoder: an error, never a black picture."""
    session = onnxruntime.InferenceSession

    class Broken:
        """A session whose outputs are wrong in one place."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.inner = session(*given, **options)
            self.names = [output.name for output in self.inner.get_outputs()]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def run(self, names: list[str] | None, inputs: dict[str, Any]) -> list[Any]:
            if where == "decoder" and "z" in inputs:
                inputs = {**inputs, "z": np.full_like(inputs["z"], value)}
            outputs = dict(zip(names or self.names, self.inner.run(names, inputs), strict=True))
            if where in outputs:
                outputs[where] = np.full_like(outputs[where], value)
            return list(outputs.values())

    monkeypatch.setattr(onnxruntime, "InferenceSession", Broken)
    with Completer(bundle_folder, "cpu", 2) as completer, pytest.raises(NumericalError):
        completer.complete(PHOTO, MASK, n=2, seed=0)
