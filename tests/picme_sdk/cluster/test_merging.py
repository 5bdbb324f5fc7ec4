"""Decoder calls that become one, without a cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from picme_sdk.backends import Arrays
from picme_sdk.cluster.connection import Workers, workers_of
from picme_sdk.cluster.merging import decode_together
from picme_sdk.errors import BadArgument
from tests.picme_sdk.studio.conftest import MASK, PHOTO


class Counting:
    """A back end that tells how many latents each of its decoder calls had."""

    def __init__(self, completer: Completer) -> None:
        self.inner, self.calls = completer._backend, []
        self.name, self.device, self.batch = self.inner.name, self.inner.device, 8

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        self.calls.append(len(inputs["z"]))
        return self.inner.run(graph, inputs)

    def close(self) -> None:
        self.inner.close()


def test_calls_of_one_scene_become_one_and_everybody_gets_their_own(bundle_folder: Path) -> None:
    random = np.random.default_rng(0)
    with Completer(bundle_folder) as completer:
        first, second = (completer.encode(photo, MASK)._regions[0].skips for photo in (PHOTO, 255 - PHOTO))
        calls = [
            {"z": random.standard_normal((rows, 16), np.float32), **skips}
            for skips, rows in ((first, 1), (second, 2), (first, 3), (first, 5), (second, 1))
        ]
        backend = Counting(completer)
        answers = decode_together(backend, calls)
        assert sorted(backend.calls) == [3, 4, 5]  # 1 + 3, then 5 that would be more than eight; 2 + 1
        for call, answer in zip(calls, answers, strict=True):
            expected = completer._backend.run("decoder", call)["image"].astype(int)
            assert answer["image"].shape == expected.shape
            assert np.abs(answer["image"] - expected).max() <= 1  # sums in another order may round otherwise


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
