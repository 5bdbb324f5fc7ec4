"""The seam between the runtime and its back ends: contract, checks, counters, wrapping."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from picme_sdk.backends.protocol import Backend, Encoded
from picme_sdk.errors import BadBundle, Closed, NumericalError
from picme_sdk.pipeline import Pipeline, Spent
from picme_sdk.pixels.crops import Crop, find_crops
from picme_sdk.pixels.mask import load_mask
from picme_sdk.pixels.photo import load
from tests.vectors.make import photo as formula

PHOTO = formula(48, 40)
MASK = np.zeros((40, 48), np.uint8)
MASK[12:26, 15:33] = 255


@pytest.fixture
def completer(bundle_folder: Path) -> Iterator[Completer]:
    with Completer(bundle_folder, "cpu", 2) as completer:
        yield completer


@pytest.fixture(scope="module")
def crop() -> Crop:
    photo = load(PHOTO)
    (only,) = find_crops(photo, load_mask(MASK, photo), 32, None)
    return only


class Changed:
    """A back end that changes what another one computes."""

    def __init__(self, inner: Backend, encoded: dict[str, object] | None = None, squares: object = None) -> None:
        self.name, self.device, self.batch = inner.name, inner.device, inner.batch
        self.inner, self.encoded, self.squares, self.handles = inner, encoded or {}, squares, []

    def encode(self, image: np.ndarray, mask: np.ndarray) -> Encoded:
        return replace(self.inner.encode(image, mask), **self.encoded)

    def decode(self, skips: object, z: np.ndarray) -> np.ndarray:
        self.handles.append(skips)
        return self.inner.decode(skips, z) if self.squares is None else self.squares

    def close(self) -> None:
        self.inner.close()


def test_a_region_is_decoded_into_as_many_squares_as_latents(completer: Completer, crop: Crop) -> None:
    region = completer.pipeline.encode(crop)
    assert region.crop is crop
    assert region.mixture.means.shape == (4, 16)
    squares = completer.pipeline.decode(region, np.zeros((3, 16), np.float32))
    assert (squares.shape, squares.dtype) == ((3, 32, 32, 3), np.uint8)


def test_squares_come_healed_and_belong_to_the_caller(completer: Completer, crop: Crop) -> None:
    pipeline, z = completer.pipeline, np.zeros((2, 16), np.float32)
    region = pipeline.encode(crop)
    plain = pipeline.backend.decode(region.skips, z)
    crop.seam.heal(plain)
    first = pipeline.decode(region, z)
    assert np.array_equal(first, plain)
    first[:] = 0
    assert np.array_equal(pipeline.decode(region, z), plain)


def test_time_and_calls_are_counted_over_all_threads(completer: Completer, crop: Crop) -> None:
    pipeline = completer.pipeline
    assert pipeline.spent == Spent(0, 0, 0, 0.0)
    region = pipeline.encode(crop)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: pipeline.decode(region, np.zeros((n, 16), np.float32)), [1, 2, 3] * 20))
    spent = pipeline.spent
    assert (spent.encodings, spent.decodings, spent.results) == (1, 60, 120)
    assert spent.seconds > 0
    completer.complete(PHOTO, MASK, n=2, seed=1)
    assert (pipeline.spent.encodings, pipeline.spent.results) == (2, 122)


def test_a_wrapped_back_end_serves_a_completer_and_leaves_the_first_alone(completer: Completer) -> None:
    wrapped = completer.pipeline.wrapped(Changed)
    other = Completer.from_pipeline(wrapped)
    assert (other.device, other.backend, other.manifest) == (completer.device, completer.backend, completer.manifest)
    scene = other.encode(PHOTO, MASK)
    ours, theirs = scene.sample(4, seed=3), completer.complete(PHOTO, MASK, n=4, seed=3)
    assert all(np.array_equal(a.image, b.image) for a, b in zip(ours, theirs, strict=True))
    scene.sample(1, seed=1)
    handles = wrapped.backend.handles
    assert len(handles) == 2
    assert handles[0] is handles[1], "a region passes the same handle every time, so that calls can be merged by it"
    assert completer.pipeline.backend is not wrapped.backend
    assert wrapped.spent.decodings == 2


@pytest.mark.parametrize(
    ("encoded", "error"),
    [
        ({"finite": False}, NumericalError), ({"means": np.full((1, 4, 16), np.nan, np.float32)}, NumericalError),
        ({"log_weights": np.zeros((1, 5), np.float32)}, BadBundle), ({"means": np.zeros((1, 4, 8), np.float32)}, BadBundle),
        ({"log_scales": np.zeros((4, 16), np.float32)}, BadBundle),
    ],
)  # fmt: skip
def test_what_a_back_end_encodes_is_checked(completer: Completer, crop: Crop, encoded: dict, error: type) -> None:
    with pytest.raises(error):
        completer.pipeline.wrapped(lambda backend: Changed(backend, encoded)).encode(crop)


@pytest.mark.parametrize(
    ("squares", "error"),
    [
        (np.zeros((1, 32, 32, 3), np.uint8), NumericalError), (np.ones((2, 32, 32, 3), np.uint8), BadBundle),
        (np.ones((1, 16, 16, 3), np.uint8), BadBundle),
    ],
    ids=["black", "another number", "another size"],
)  # fmt: skip
def test_what_a_back_end_decodes_is_checked(completer: Completer, crop: Crop, squares: np.ndarray, error: type) -> None:
    pipeline = completer.pipeline.wrapped(lambda backend: Changed(backend, squares=squares))
    region = pipeline.encode(crop)
    with pytest.raises(error):
        pipeline.decode(region, np.zeros((1, 16), np.float32))


def test_a_closed_pipeline_refuses_both_verbs(bundle_folder: Path, crop: Crop) -> None:
    completer = Completer(bundle_folder, "cpu", 1)
    pipeline: Pipeline = completer.pipeline
    region = pipeline.encode(crop)
    completer.close()
    with pytest.raises(Closed):
        pipeline.encode(crop)
    with pytest.raises(Closed):
        pipeline.decode(region, np.zeros((1, 16), np.float32))
