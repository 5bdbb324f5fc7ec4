"""Decoder calls that become one, without a cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from picme_sdk.backends.protocol import Backend, Encoded
from picme_sdk.cluster.connection import Workers, workers_of
from picme_sdk.cluster.merging import decode_merged
from picme_sdk.errors import BadArgument


class Counting:
    """A back end that records how many latents each of its decoder calls had."""

    def __init__(self, backend: Backend) -> None:
        self.inner, self.calls = backend, []
        self.name, self.device, self.batch = backend.name, backend.device, 8

    def encode(self, image: np.ndarray, mask: np.ndarray) -> Encoded:
        return self.inner.encode(image, mask)

    def decode(self, skips: object, z: np.ndarray) -> np.ndarray:
        self.calls.append(len(z))
        return self.inner.decode(skips, z)

    def close(self) -> None:
        self.inner.close()


def test_calls_of_one_region_become_one_and_everybody_gets_their_own(bundle_folder: Path) -> None:
    random = np.random.default_rng(0)
    with Completer(bundle_folder) as completer:
        backend, size = completer.pipeline.backend, completer.manifest.image_size
        mask = np.full((size, size), 255, np.uint8)
        first, second = (backend.encode(np.full((size, size, 3), value, np.uint8), mask).skips for value in (50, 200))
        calls = [
            (skips, random.standard_normal((rows, 16), np.float32))
            for skips, rows in ((first, 1), (second, 2), (first, 3), (first, 5), (second, 1))
        ]
        counting = Counting(backend)
        answers = decode_merged(counting, calls)
        assert sorted(counting.calls) == [3, 4, 5]  # 1 + 3, then 5 that would be more than eight; 2 + 1
        for (skips, z), answer in zip(calls, answers, strict=True):
            expected = backend.decode(skips, z).astype(int)
            assert answer.shape == expected.shape
            assert np.abs(answer - expected).max() <= 1  # sums in another order may round differently


def node(cpus: int, gpus: int = 0, alive: bool = True) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}}


@pytest.mark.parametrize(
    ("nodes", "device", "threads", "expected"),
    [
        ([node(0), node(1), node(1)], "auto", None, Workers(2, 1, 0)), ([node(8), node(8, alive=False)], "auto", None, Workers(1, 8, 0)),
        ([node(8)], "auto", 2, Workers(4, 2, 0)), ([node(8), node(4)], "cpu", None, Workers(3, 4, 0)),
        ([node(2), node(16, 4)], "auto", None, Workers(4, 4, 1)), ([node(16, 4)], "cpu", None, Workers(1, 16, 0)),
    ],
)  # fmt: skip
def test_a_worker_is_sized_to_its_machine(
    nodes: list[object], device: str, threads: int | None, expected: Workers
) -> None:
    assert workers_of(nodes, device, threads) == expected  # type: ignore[arg-type]


def test_what_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(BadArgument, match="GPUs"):
        workers_of([node(4)], "cuda", None)
    with pytest.raises(BadArgument, match="8 cores a worker"):
        workers_of([node(4)], "cpu", 8)
