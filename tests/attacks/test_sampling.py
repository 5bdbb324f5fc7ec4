"""Attacks 10 to 14: arguments, mixtures, threads, long use, tokens."""

from __future__ import annotations

import base64
import struct
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import soak
from picme_sdk import Completer, Completion, PicmeError, Scene
from picme_sdk.errors import BadArgument, BadToken, Closed, NumericalError
from picme_sdk.mixture.mixture import Mixture
from picme_sdk.video.frames import complete_frames
from tests.attacks.conftest import MASK, PHOTO


@pytest.fixture(scope="module")
def scene(completer: Completer) -> Scene:
    return completer.encode(PHOTO, MASK)


WRONG: dict[str, list[Any]] = {
    "seed": [-1, 2**64, 10**400, 1.5, "1", True, np.int8(-1), float("nan")],
    "n": [0, -1, 1001, 10**6, 10**400, 2.0, "6", True, None],
    "primitive": [-1, 4, 10**9, 0.5, "0", True],
    "temperature": [-1, 101, 1e9, 10**400, float("nan"), float("inf"), -float("inf"), "1", None, True, 1j],
    "strategy": ["", "random", None, 0, ["diverse"], np.array(["diverse", "likely"])],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_10_impossible_arguments(completer: Completer, scene: Scene, name: str, value: Any) -> None:
    for call in (scene.sample, scene.stream, lambda **more: completer.complete(PHOTO, MASK, **more)):
        with pytest.raises(BadArgument, match=name) as caught:
            call(**{"n": 1, "seed": 0, name: value})
        assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("deadline", [0, -1, 1e300, 10**400, float("nan"), float("inf"), "1", np.zeros(3)])
def test_10_impossible_deadlines(scene: Scene, deadline: Any) -> None:
    with pytest.raises(BadArgument, match="deadline_ms"):
        scene.stream(3, 0, deadline_ms=deadline)


def test_10_other_calls(completer: Completer, scene: Scene) -> None:
    result = scene.sample(1, 0)[0]
    calls: list[Callable[[], object]] = [
        lambda: result.variations(0),
        lambda: result.variations(10**6),
        lambda: result.variations(2, strength=float("nan")),
        lambda: result.variations(2, strength=1.01),
        lambda: result.variations(2, seed=-1),
        lambda: scene.interpolate(result, result, steps=10**6),
        lambda: scene.interpolate(result, result, steps=2.5),  # type: ignore[arg-type]
        lambda: scene.interpolate(result, None),  # type: ignore[arg-type]
        lambda: scene.interpolate(completer.encode(PHOTO, MASK).sample(1, 0)[0], result),
        lambda: completer.encode(PHOTO, MASK, context=10**30),
        lambda: completer.encode(PHOTO, MASK, context=-1),
        lambda: complete_frames(completer, [PHOTO], MASK, seed=-1),
        lambda: complete_frames(completer, [PHOTO], MASK, smoothing=2),
    ]
    for call in calls:
        with pytest.raises(BadArgument):
            call()


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_10_integers_of_numpy(scene: Scene, kind: Any) -> None:
    """They are integers to users: the same results, and tokens, as Python's own."""
    expected = scene.sample(2, 5, primitive=1)
    for a, b in zip(scene.sample(kind(2), kind(5), primitive=kind(1)), expected, strict=True):
        assert a.token == b.token
        assert np.array_equal(a.image, b.image)
    again = expected[0].variations(kind(1), seed=kind(3))[0]
    assert again.token == expected[0].variations(1, seed=3)[0].token


def test_10_the_hottest_and_the_coldest(scene: Scene) -> None:
    for temperature in (0, 5e-324, 1e-40, 1e-30, 99.9, 100, np.float16(0.3)):
        result = scene.sample(3, 1, temperature=temperature)[2]
        assert np.array_equal(scene.replay(result.token).image, result.image)
        assert np.isfinite(result.log_density)


def mixture(weights: list[float], scale: float = 0.0, mean: float = 0.0) -> Mixture:
    k = len(weights)
    means = np.full((1, k, 3), mean, np.float32) + np.arange(k, dtype=np.float32)[None, :, None]
    return Mixture.of(np.array([weights], np.float32), means, np.full((1, k, 3), scale, np.float32))


@pytest.mark.parametrize(
    ("weights", "scale", "mean"),
    [([np.nan, 0], 0, 0), ([np.inf, 0], 0, 0), ([-np.inf, -np.inf], 0, 0), ([0, 0], np.nan, 0), ([0, 0], np.inf, 0), ([0, 0], 60, 0), ([0, 0], 0, np.nan), ([0, 0], 0, np.inf)],
)  # fmt: skip
def test_11_mixtures_that_are_none(weights: list[float], scale: float, mean: float) -> None:
    with pytest.raises(NumericalError):
        mixture(weights, scale, mean)


def test_11_degenerate_mixtures() -> None:
    sure = mixture([0, -np.inf, -1e30])
    assert sure.weights.tolist() == [1, 0, 0]
    assert sure.ambiguity == 1
    assert set(sure.pick([0, 0.5, 1 - 2**-53], 1.0)) == set(sure.pick([0.5], 100.0)) == {0}
    equal = mixture([7.0] * 4)
    assert equal.ambiguity == pytest.approx(4)
    assert equal.pick([0, 0.26, 0.51, 1 - 2**-53], 1.0) == [0, 1, 2, 3]
    assert equal.order() == [0, 1, 2, 3], "equal ones by number"
    huge = mixture([3e38, 3e38])
    assert huge.weights.tolist() == [0.5, 0.5], "log-sum-exp does not overflow"
    still = mixture([0, 0], scale=-np.inf)
    assert still.scales.max() == 0
    assert sorted(still.ideas()) == [0, 1]
    wide = mixture([0, 0], scale=49)
    assert np.isfinite(wide.scales * 100 * 6).all()


def test_12_sixteen_threads(bundle_folder: Path) -> None:
    found = soak.threads(bundle_folder, 200)
    assert (found.wrong, found.lost) == (0, 0)


def test_12_close_during_work(bundle_folder: Path) -> None:
    assert soak.closing(bundle_folder, 4).lost == 0


def test_12_close_from_many_threads(bundle_folder: Path) -> None:
    completer = Completer(bundle_folder, "cpu", 1)
    own = completer.encode(PHOTO, MASK)
    barrier = threading.Barrier(8)

    def work(i: int) -> str:
        barrier.wait()
        try:
            completer.close() if i % 2 else own.sample(2, i)
        except Closed:
            return "closed"
        return "done"

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) <= {"closed", "done"}
    for call in (lambda: completer.encode(PHOTO, MASK), lambda: own.sample(1, 0), lambda: next(own.stream(1, 0))):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("run", [soak.completions, soak.cycles], ids=["completions", "open and close"])
def test_13_memory_stays_flat(bundle_folder: Path, run: Callable[[Path, int], soak.Soak]) -> None:
    """The bounded twin of benchmarks/soak.py: 25 times as many there."""
    found = run(bundle_folder, 300 if run is soak.completions else 24)
    assert found.drift < 4, f"{found.curve} MB"
    assert found.files == 0


def forge(body: bytes) -> str:
    """A token with a true checksum, as whoever knows the format can make it."""
    return base64.urlsafe_b64encode(body + struct.pack("<I", zlib.crc32(body))).decode().rstrip("=")


def test_14_forged_tokens(completer: Completer, scene: Scene) -> None:
    good = scene.sample(1, 0)[0]
    body = base64.urlsafe_b64decode(good.token + "=" * (-len(good.token) % 4))[:-4]
    assert forge(body) == good.token, "the forgery is good"
    head = body[:10]  # version, model, settings
    nan = struct.pack("<f", float("nan"))
    draw = body[10:]
    forged = [
        b"", head, head + b"\x09", bytes([3]) + body[1:], body[:1] + bytes(8) + body[9:], body[:9] + b"\x02" + draw, body[:9] + b"\x10" + draw,
        body[:9] + b"\x80" + bytes(4) + draw, body[:9] + b"\x80" + b"\xff" * 4 + draw,  # contexts that nobody can ask for
        body + b"x", body[:-1],
        head + b"\x00\x00" + bytes(16),  # no holes
        head + b"\x00\xff" + bytes(2 * 255 + 16),  # 255 holes
        head + b"\x00\x01\xff\xff" + bytes(16),  # primitive 65,535
        head + draw[:-4] + nan, head + draw[:-4] + struct.pack("<f", 1e30),
        head + b"\x01" + bytes(12) + nan + draw, head + b"\x02" + struct.pack("<f", -1) + draw + draw,
        head + (b"\x01" + bytes(16)) * 40 + draw, head + (b"\x02" + bytes(4)) * 300,
        head + b"\x02" + bytes(4) + draw + b"\x00\x02" + bytes(20),  # a blend of one hole with two
    ]  # fmt: skip
    texts = [forge(data) for data in forged]
    texts += ["", " ", good.token + " ", good.token + "=", "ü" * 40, "\ud800", "A" * 10_000, "\0", good.token[::-1]]
    for token in [*texts, None, 5, good.token.encode()]:
        with pytest.raises(BadToken):
            scene.replay(token)  # type: ignore[arg-type]


def test_14_every_cut_and_random_tokens(scene: Scene) -> None:
    good, random = scene.sample(1, 0)[0].token, np.random.default_rng(0)
    for cut in range(len(good)):
        with pytest.raises(BadToken):
            scene.replay(good[:cut])
    head = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))[:9]
    for _ in range(2000):
        try:
            result = scene.replay(forge(head + random.bytes(random.integers(60))))
        except PicmeError:
            continue
        assert isinstance(result, Completion)
