"""The C library against Python: the same tokens, primitives and pictures, the same refusals."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from picme_sdk.completer import Completer
from picme_sdk.contract import (
    DEFAULT_RESULTS,
    DEFAULT_STRATEGY,
    DEFAULT_STRENGTH,
    DEFAULT_TEMPERATURE,
    DEFAULT_VARIATIONS,
    STRATEGIES,
)
from picme_sdk.errors import BadBundle, BadToken
from picme_sdk.scene import Completion, Scene
from tests.cpp.native import (  # fmt: skip
    BAD_ARGUMENT,
    BAD_BUNDLE,
    BAD_MASK,
    BAD_TOKEN,
    BGR,
    BGRA,
    GRAY,
    RGB,
    RGBA,
    Native,
    NativeError,
    NativeResult,
    SampleParams,
    VariationParams,
)
from tests.picme_sdk.bundle.test_bundle import CHANGES, as_format_1, rewrite


@pytest.fixture(scope="module")
def native(bundle_folder: Path) -> Iterator[Native]:
    made = Native(bundle_folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def python(bundle_folder: Path) -> Iterator[Completer]:
    with Completer(bundle_folder, device="cpu", threads=1) as made:
        yield made


def photo(width: int, height: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Smooth colours with some noise, so that resizing has something to round."""
    random = np.random.default_rng(seed)
    y, x, c = np.ogrid[:height, :width, :channels]
    smooth = 128 + 60 * np.sin(x / 9 + c) + 50 * np.cos(y / 7 - c)
    return np.clip(smooth + random.normal(0, 8, (height, width, channels)), 0, 255).astype(np.uint8)


def mask_of(width: int, height: int, *boxes: tuple[int, int, int, int]) -> np.ndarray:
    mask = np.zeros((height, width), np.uint8)
    for left, top, right, bottom in boxes:
        mask[top:bottom, left:right] = 255
    return mask


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = float(np.mean((a.astype(float) - b.astype(float)) ** 2))
    return float("inf") if error == 0 else 10 * np.log10(255**2 / error)


def assert_same(ours: list[NativeResult], theirs: list[Completion]) -> None:
    assert [r.token for r in ours] == [r.token for r in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        image = np.asarray(other.image).reshape(mine.image.shape)
        assert mine.primitive == other.primitive
        assert mine.weight == pytest.approx(other.weight, rel=1e-5)
        assert mine.log_density == pytest.approx(other.log_density, rel=1e-5, abs=1e-4)
        assert psnr(mine.image, image) >= 45
        assert np.mean(mine.image == image) > 0.999
        assert np.abs(mine.image.astype(int) - image).max() <= 1


SHAPES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "the model's size": (photo(32, 32), mask_of(32, 32, (8, 8, 24, 20))),
    "larger": (photo(200, 150), mask_of(200, 150, (60, 40, 130, 100))),
    "smaller": (photo(17, 13), mask_of(17, 13, (3, 3, 9, 9))),
    "wide": (photo(130, 11), mask_of(130, 11, (40, 2, 90, 9))),
    "at the border": (photo(90, 70), mask_of(90, 70, (0, 0, 30, 70))),
    "two holes": (photo(160, 110), mask_of(160, 110, (5, 5, 15, 20), (120, 80, 150, 100))),
    "twelve holes": (photo(300, 200), mask_of(300, 200, *((20 + 70 * (i % 4), 20 + 60 * (i // 4), 30 + 70 * (i % 4), 26 + 60 * (i // 4)) for i in range(12)))),
    "a chain": (photo(480, 480), mask_of(480, 480, *((59 + 60 * i, 59 + 60 * i, 91 + 60 * i, 91 + 60 * i) for i in range(7)))),
    "dust": (photo(300, 280), mask_of(300, 280, *((20 * (i % 15), 20 * (i // 15), 20 * (i % 15) + 1 + i % 3, 20 * (i // 15) + 2) for i in range(210)))),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("strategy", ["categorical", "diverse", "likely"])
def test_the_same_results_come_from_the_same_seed(native: Native, python: Completer, name: str, strategy: str) -> None:
    given, mask = SHAPES[name]
    theirs = python.encode(given, mask)
    ours = native.encode(given, mask)
    assert_same(ours.sample(9, 7, strategy), theirs.sample(9, 7, strategy))
    assert dict(enumerate(ours.weights())) == pytest.approx(dict(theirs.primitives), rel=1e-5)
    assert ours.info().ambiguity == pytest.approx(theirs.ambiguity, rel=1e-5)
    ours.close()


def test_arguments_mean_the_same(native: Native, python: Completer) -> None:
    given, mask = SHAPES["larger"]
    ours, theirs = native.encode(given, mask, context=96), python.encode(given, mask, context=96)
    for seed, primitive, temperature in ((0, 2, 0.7), (2**64 - 1, 0, 0.0), (5, 1, 2.5)):
        assert_same(
            ours.sample(3, seed, primitive=primitive, temperature=temperature),
            theirs.sample(3, seed, primitive=primitive, temperature=temperature),
        )
    ours.close()


def test_a_soft_edge_is_blended_the_same(native: Native, python: Completer) -> None:
    given, mask = photo(80, 60), mask_of(80, 60, (20, 20, 50, 45))
    mask[20:45, 20:24], mask[20:45, 46:50] = 90, 200
    ours = native.encode(given, mask)
    assert_same(ours.sample(3, 1), python.encode(given, mask).sample(3, 1))
    ours.close()


def test_variations_replay_and_interpolation_agree(native: Native, python: Completer) -> None:
    given, mask = SHAPES["two holes"]
    ours, theirs = native.encode(given, mask), python.encode(given, mask)
    first, second = theirs.sample(2, 3)
    assert_same(ours.variations(first.token, 4, 0.3, 11), first.variations(4, 0.3, 11))
    assert_same(ours.interpolate(first.token, second.token, 5), theirs.interpolate(first, second, 5))
    assert_same([ours.replay(second.token)], [second])
    deep = ours.variations(first.token, 1, 0.5, 1)[0]
    for _ in range(3):
        deep = ours.variations(deep.token, 1, 0.5, 1)[0]
    assert_same([deep], [theirs.replay(deep.token)])
    ours.close()


def test_a_call_without_arguments_means_the_same(native: Native, python: Completer) -> None:
    """The defaults of the C structs, as the library sets them, are those of the contract and so of Python."""
    sample, variation = SampleParams(), VariationParams()
    native._call("picme_sample_params_init", ctypes.byref(sample), ctypes.c_size_t(ctypes.sizeof(sample)))
    native._call("picme_variation_params_init", ctypes.byref(variation), ctypes.c_size_t(ctypes.sizeof(variation)))
    assert (sample.n, STRATEGIES[sample.strategy], sample.primitive) == (DEFAULT_RESULTS, DEFAULT_STRATEGY, -1)
    assert sample.temperature == DEFAULT_TEMPERATURE
    assert (variation.n, variation.strength) == (DEFAULT_VARIATIONS, np.float32(DEFAULT_STRENGTH))
    given, mask = SHAPES["larger"]
    ours = native.encode(given, mask)
    theirs = python.encode(given, mask)
    assert_same(ours._results(sample.n, "picme_sample", ctypes.byref(sample)), theirs.sample(seed=0))
    assert theirs.sample(1)[0].primitive == theirs.primitives[0][0], "the first result is of the heaviest primitive"
    ours.close()


def test_tokens_record_the_context_and_version_1_does_not_ask_for_it(native: Native, python: Completer) -> None:
    given, mask = SHAPES["larger"]
    wide, own = python.encode(given, mask, context=150), python.encode(given, mask)
    ours = native.encode(given, mask, context=150)
    result = wide.sample(1, 3)[0]
    assert_same([ours.replay(result.token)], [result])
    plain = native.encode(given, mask)
    with pytest.raises(NativeError, match="context 150") as refused:
        plain.replay(result.token)
    assert refused.value.status == BAD_TOKEN
    with pytest.raises(BadToken, match="context=150"):
        own.replay(result.token)
    body = base64.urlsafe_b64decode(result.token + "=" * (-len(result.token) % 4))[:-4]
    old = b"\x01" + body[1:9] + body[14:]  # without the settings: one byte and the context
    token = base64.urlsafe_b64encode(old + zlib.crc32(old).to_bytes(4, "little")).decode().rstrip("=")
    assert_same([ours.replay(token)], [wide.replay(token)])
    assert_same([plain.replay(token)], [own.replay(token)])
    assert np.array_equal(wide.replay(token).image, result.image)
    assert wide.replay(token).token == result.token, "what version 1 left out is known now"
    for scene in (ours, plain):
        scene.close()


def test_both_read_format_1_and_what_format_2_adds(native: Native, bundle_folder: Path, tmp_path: Path) -> None:
    given, mask = SHAPES["larger"]
    expected = native.encode(given, mask)
    token = expected.sample(1, 7)[0].token
    for name, change in {"1": as_format_1, "2": calibrate}.items():
        folder = Path(shutil.copytree(bundle_folder, tmp_path / name))
        rewrite(folder, change)
        made = Native(folder)
        with Completer(folder, device="cpu", threads=1) as completer:
            ours, theirs = made.encode(given, mask), completer.encode(given, mask)
            assert_same([ours.replay(token)], [theirs.replay(token)])
            assert ours.info().ambiguity == pytest.approx(theirs.ambiguity, rel=1e-5)
            assert (theirs.ambiguity == pytest.approx(expected.info().ambiguity, rel=1e-5)) == (name == "1")
            assert (
                made.info().knows.decode() == completer.manifest.knows == ("" if name == "1" else "drawn faces \u00e9")
            )
        ours.close()
        made.close()
    expected.close()


def test_both_run_float32_graphs_whose_weights_are_stored_as_float16(bundle_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "compact"))
    rewrite(folder, lambda m: compact(folder, m))
    given, mask = SHAPES["larger"]
    made = Native(folder)
    with (
        Completer(folder, device="cpu", threads=1) as completer,
        Completer(bundle_folder, device="cpu", threads=1) as full,
    ):
        assert {g.storage for g in completer.manifest.graphs} == {"float16"}
        assert completer.manifest.model_id == full.manifest.model_id, "repacking keeps tokens valid"
        ours, theirs = made.encode(given, mask), completer.encode(given, mask)
        assert_same(ours.sample(3, 7), theirs.sample(3, 7))
        token = full.encode(given, mask).sample(1, 7)[0].token
        assert_same([ours.replay(token)], [theirs.replay(token)])
    ours.close()
    made.close()


def compact(folder: Path, m: dict[str, Any]) -> None:
    """Store the weights of the float32 graphs as float16, each behind a Cast."""
    for entry in m["graphs"]:
        entry["storage"] = "float16"
        if entry["precision"] != "float32":
            continue
        model = onnx.load(folder / entry["file"])
        for tensor in model.graph.initializer:
            name, values = tensor.name, onnx.numpy_helper.to_array(tensor)
            if values.dtype == np.float32 and values.size > 1:  # single numbers are constants, such as limits
                tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
                cast = onnx.helper.make_node("Cast", [tensor.name], [name], to=onnx.TensorProto.FLOAT)
                model.graph.node.insert(0, cast)
        data = model.SerializeToString()
        (folder / entry["file"]).write_bytes(data)
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def calibrate(m: dict[str, Any]) -> None:
    m.update(knows="drawn faces \u00e9", ambiguity={"scale": 2.0, "power": 1.5, "weights": [0.5] * m["latent"]})


@pytest.mark.parametrize("form", [RGB, BGR, RGBA, BGRA, GRAY])
def test_every_pixel_format_gives_the_same_and_leaves_the_rest_alone(native: Native, python: Completer, form: int) -> None:  # fmt: skip
    channels = {RGB: 3, BGR: 3, RGBA: 4, BGRA: 4, GRAY: 1}[form]
    given, mask = photo(70, 50, channels), mask_of(70, 50, (20, 15, 40, 35))
    upright = given[..., [2, 1, 0, 3][:channels]] if form in (BGR, BGRA) else given
    theirs = python.encode(upright, mask).sample(2, 4)
    ours = native.encode(given, mask, form)
    for mine, other in zip(ours.sample(2, 4), theirs, strict=True):
        image = mine.image[..., [2, 1, 0, 3][:channels]] if form in (BGR, BGRA) else mine.image
        assert mine.token == other.token
        assert np.abs(image.astype(int) - other.image).max() <= 1
        assert np.array_equal(mine.image[mask == 0], given[mask == 0])
        assert (mine.image[mask > 0] != given[mask > 0]).any()
    ours.close()


def test_transparent_pixels_are_the_hole_where_there_is_no_mask(native: Native, python: Completer) -> None:
    given = photo(64, 64, 4)
    given[..., 3] = 255
    given[20:40, 24:44, 3] = 0
    ours = native.encode(given, None, RGBA)
    theirs = python.encode(given).sample(2, 9)
    assert_same(ours.sample(2, 9), theirs)
    ours.close()


def test_a_view_with_gaps_between_rows_is_read_right(native: Native, python: Completer) -> None:
    wide, wide_mask = photo(100, 60), mask_of(100, 60, (20, 15, 40, 35))
    given, mask = wide[:, :70], wide_mask[:, :70]
    ours = native.encode(given, mask)
    assert_same(ours.sample(2, 4), python.encode(np.ascontiguousarray(given), np.ascontiguousarray(mask)).sample(2, 4))
    ours.close()


def test_random_photos_and_masks_agree(native: Native, python: Completer) -> None:
    random = np.random.default_rng(5)
    for trial in range(25):
        width, height = (int(v) for v in random.integers(5, 260, 2))
        mask = np.zeros((height, width), np.uint8)
        for _ in range(int(random.integers(1, 5))):
            x, y = int(random.integers(width)), int(random.integers(height))
            mask[y : y + int(random.integers(1, height)), x : x + int(random.integers(1, width))] = random.integers(
                100, 256
            )
        if np.mean(mask > 0) > 0.9:
            mask[: height // 2] = 0
        if not mask.any():
            continue
        given = photo(width, height, seed=trial)
        ours = native.encode(given, mask)
        assert_same(ours.sample(2, trial), python.encode(given, mask).sample(2, trial))
        ours.close()


def test_a_precision_that_the_bundle_has_can_be_chosen(bundle_folder: Path) -> None:
    given, mask = SHAPES["larger"]
    ours = Native(bundle_folder, precision="float16")
    with Completer(bundle_folder, device="cpu", threads=1, precision="float16") as python:
        assert_same(ours.encode(given, mask).sample(3, 7), python.encode(given, mask).sample(3, 7))
    ours.close()
    with pytest.raises(NativeError, match="precision") as caught:
        Native(bundle_folder, precision="float8")
    assert caught.value.status == BAD_ARGUMENT


def test_the_completer_says_what_it_is(native: Native, python: Completer) -> None:
    info = native.info()
    assert info.model_id.decode() == python.manifest.model_id
    assert (info.name.decode(), info.device) == (python.manifest.name, b"cpu")
    assert info.backend.startswith(b"onnxruntime ")


@pytest.mark.parametrize(
    ("status", "do"),
    [
        (BAD_TOKEN, lambda scene: scene.replay("AAAA")),
        (BAD_TOKEN, lambda scene: scene.replay("\u00e4" * 30)),
        (BAD_ARGUMENT, lambda scene: scene.sample(0, 1)),
        (BAD_ARGUMENT, lambda scene: scene.sample(1001, 1)),
        (BAD_ARGUMENT, lambda scene: scene.sample(1, 1, primitive=99)),
        (BAD_ARGUMENT, lambda scene: scene.sample(1, 1, temperature=float("nan"))),
    ],
)
def test_bad_values_have_a_status_and_a_text_of_three_parts(native: Native, status: int, do: Callable[[Scene], object]) -> None:  # fmt: skip
    ours = native.encode(*SHAPES["larger"])
    with pytest.raises(NativeError) as caught:
        do(ours)  # type: ignore[arg-type]
    assert caught.value.status == status
    assert str(caught.value).count(" | ") == 2
    ours.close()


def test_masks_that_can_not_be_meant_are_refused(native: Native) -> None:
    given = photo(40, 40)
    for mask in (np.zeros((40, 40), np.uint8), np.full((40, 40), 255, np.uint8), None):
        with pytest.raises(NativeError) as caught:
            native.encode(given, mask)
        assert caught.value.status == BAD_MASK


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_manifests_that_python_refuses_are_refused(bundle_folder: Path, tmp_path: Path, change: Callable[..., object]) -> None:  # fmt: skip
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "bundle"))
    rewrite(folder, change)
    with pytest.raises(BadBundle):
        Completer(folder, device="cpu")
    with pytest.raises(NativeError, match=r"picme\.json") as caught:
        Native(folder)
    assert caught.value.status == BAD_BUNDLE


def test_changed_bytes_are_found(bundle_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "bundle"))
    for name in ("picme.json", "encoder.onnx", "mixture.onnx", "decoder.onnx"):
        path = folder / name
        good = path.read_bytes()
        path.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
        with pytest.raises(NativeError) as caught:
            Native(folder)
        assert caught.value.status == BAD_BUNDLE
        path.write_bytes(good)
    Native(folder).close()


def test_one_file_holds_the_same_bundle(bundle_folder: Path, tmp_path: Path) -> None:
    files = [path for path in sorted(bundle_folder.rglob("*")) if path.is_file()]
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = tmp_path / "tiny.picme"
        with zipfile.ZipFile(packed, "w", kind) as archive:
            for path in files:
                archive.write(path, path.relative_to(bundle_folder).as_posix())
        if kind == zipfile.ZIP_STORED:
            made = Native(packed)
            given, mask = SHAPES["larger"]
            scene = made.encode(given, mask)
            made.close()  # the scene lives on
            assert scene.sample(1, 1)[0].primitive >= 0
            scene.close()
        else:
            with pytest.raises(NativeError, match="compressed") as caught:
                Native(packed)
            assert caught.value.status == BAD_BUNDLE


def test_a_provider_that_is_not_there_is_an_error(bundle_folder: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    for provider in ("cuda", "tensorrt", "rtx"):
        with pytest.raises(NativeError, match="provider"):
            Native(bundle_folder, provider=provider)
    automatic = Native(bundle_folder, provider="auto")
    assert automatic.info().device == b"cpu"
    automatic.close()
