"""For who has an NVIDIA card: `make test-gpu`. Nobody has run these yet.

They prove what no other test can: that engines load and run, agree with the CPU, keep their memory, and survive threads.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from picme_sdk.backends.cuda import nvidia_capability
from picme_sdk.errors import BackendUnavailable
from tests.vectors.make import photo as formula

pytestmark = pytest.mark.skipif(nvidia_capability() is None, reason="no NVIDIA card and driver here")

PHOTO = formula(64, 48)
MASK = np.zeros((48, 64), np.uint8)
MASK[16:32, 20:44] = 255


@pytest.fixture(params=["tensorrt", "rtx", "cuda"])
def pair(request: pytest.FixtureRequest, exported_folder: Path):
    try:
        gpu = Completer(exported_folder, request.param)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    with gpu, Completer(exported_folder, "cpu") as cpu:
        yield gpu, cpu


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = float(np.mean((a[MASK > 0].astype(float) - b[MASK > 0]) ** 2))
    return 99.0 if error == 0 else 10 * float(np.log10(255**2 / error))


def test_the_gpu_agrees_with_the_cpu(pair: tuple[Completer, Completer]) -> None:
    mine, theirs = (c.complete(PHOTO, MASK, n=8, seed=3, strategy="diverse") for c in pair)
    for a, b in zip(mine, theirs, strict=True):
        assert a.token == b.token
        assert a.primitive == b.primitive
        assert psnr(a.image, b.image) >= 40
        assert np.array_equal(a.image[MASK == 0], PHOTO[MASK == 0])


def test_every_batch_size_and_its_replay(pair: tuple[Completer, Completer]) -> None:
    scene = pair[0].encode(PHOTO, MASK)
    for n in (1, 2, 6, 16, 17, 2, 6):  # repeated sizes use the recorded launch
        results = scene.sample(n, seed=1)
        assert np.array_equal(results[0].image, scene.replay(results[0].token).image)


def test_threads_equal_one(pair: tuple[Completer, Completer]) -> None:
    scene = pair[0].encode(PHOTO, MASK)
    expected = [scene.sample(3, seed=i) for i in range(4)]

    def work(i: int) -> bool:
        return all(
            np.array_equal(a.image, b.image) for a, b in zip(scene.sample(3, seed=i % 4), expected[i % 4], strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_device_memory_stays_flat(pair: tuple[Completer, Completer]) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime")

    def free() -> int:
        return int(runtime.cudaMemGetInfo()[1])

    for i in range(20):
        pair[0].complete(PHOTO, MASK, n=4, seed=i)
    before = free()
    for i in range(300):
        pair[0].complete(PHOTO, MASK, n=4, seed=i)
    assert before - free() < 8 << 20
