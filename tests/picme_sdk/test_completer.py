"""Completer, Scene and Completion: every sentence of their docstrings."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picme_sdk import Completer, Completion, Scene
from picme_sdk.errors import BackendUnavailable, BadArgument, BadBundle, BadToken, Closed
from picme_sdk.mixture.philox import normals
from tests.picme_sdk.bundle.test_bundle import rewrite
from tests.vectors.make import photo as formula

PHOTO = formula(64, 48)
MASK = np.zeros((48, 64), np.uint8)
MASK[16:32, 20:44] = 255


@pytest.fixture(scope="module")
def completer(bundle_folder: Path):
    with Completer(bundle_folder, "cpu") as made:
        yield made


@pytest.fixture(scope="module")
def scene(completer: Completer) -> Scene:
    return completer.encode(PHOTO, MASK)


def same(a: Completion, b: Completion) -> bool:
    return a.token == b.token and np.array_equal(a.image, b.image)


def test_the_three_line_use(bundle_folder: Path) -> None:
    completer = Completer(bundle_folder)
    results = completer.complete(PHOTO, MASK, n=6, seed=7)
    assert results[0].image.shape == PHOTO.shape
    assert len(results) == 6


def test_backend_and_device_tell_the_truth(completer: Completer, bundle_folder: Path) -> None:
    assert completer.backend.startswith("onnxruntime ")
    assert completer.device == "cpu"
    with Completer(bundle_folder) as chosen:
        assert chosen.device != "auto"
    assert completer.manifest.name == "tiny"


def test_complete_is_encode_and_sample(completer: Completer, scene: Scene) -> None:
    arguments = {"n": 3, "seed": 5, "strategy": "diverse", "temperature": 0.8}
    for a, b in zip(completer.complete(PHOTO, MASK, **arguments), scene.sample(**arguments), strict=True):
        assert same(a, b)


def test_primitives_are_weights_heaviest_first(scene: Scene) -> None:
    numbers, weights = zip(*scene.primitives, strict=True)
    assert sorted(numbers) == [0, 1, 2, 3]
    assert list(weights) == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1)
    entropy = -sum(w * np.log(w) for w in weights)
    assert scene.ambiguity == pytest.approx(np.exp(entropy))
    assert scene.size == (64, 48)


def test_equal_seeds_give_equal_results_other_seeds_others(scene: Scene) -> None:
    first, again, other = scene.sample(4, seed=1), scene.sample(4, seed=1), scene.sample(4, seed=2)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not any(same(a, b) for a, b in zip(first, other, strict=True))
    assert all(same(a, b) for a, b in zip(scene.sample(2, seed=1), first, strict=False)), (
        "result i does not depend on n"
    )


def test_without_a_seed_one_is_drawn_and_the_token_holds_it(scene: Scene) -> None:
    a, b = scene.sample(1)[0], scene.sample(1)[0]
    assert a.token != b.token
    assert same(scene.replay(a.token), a)


def test_results_differ_within_and_between_primitives(scene: Scene) -> None:
    images = [r.image.astype(int) for r in scene.sample(4, seed=0, strategy="diverse")]
    assert min(np.abs(a - b).sum() for i, a in enumerate(images) for b in images[:i]) > 0
    assert [r.primitive for r in scene.sample(4, seed=0, strategy="diverse")] == [i for i, _ in scene.primitives]
    assert {r.primitive for r in scene.sample(5, seed=0, primitive=2)} == {2}


def test_temperature_zero_is_deterministic(scene: Scene) -> None:
    a, b = scene.sample(1, seed=1, temperature=0)[0], scene.sample(1, seed=2, temperature=0)[0]
    assert np.array_equal(a.image, b.image)
    assert a.primitive == scene.primitives[0][0]


def test_likely_starts_with_the_best_and_falls(scene: Scene) -> None:
    results = scene.sample(8, seed=3, strategy="likely")
    ranks = [r.log_density for r in results]
    assert ranks == sorted(ranks, reverse=True)
    assert np.array_equal(results[0].image, scene.sample(1, temperature=0)[0].image)


def test_a_completion_carries_its_evidence(scene: Scene) -> None:
    result = scene.sample(1, seed=4)[0]
    assert result.weight == pytest.approx(dict(scene.primitives)[result.primitive])
    noise = normals(4, 0, 16).astype(float)
    assert result.log_density == pytest.approx(scene.mixtures[0].log_density(result.primitive, noise))
    assert result.timings.encode_ms == scene.encode_ms > 0
    assert result.timings.decode_ms > 0


def test_values_are_immutable(scene: Scene) -> None:
    result = scene.sample(1, seed=4)[0]
    for value, name in ((scene, "size"), (result, "weight"), (result.timings, "decode_ms")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 0)


def test_outside_the_mask_not_a_bit_changes(scene: Scene) -> None:
    for result in scene.sample(6, seed=0, strategy="diverse"):
        assert np.array_equal(result.image[MASK == 0], PHOTO[MASK == 0])
        assert not np.array_equal(result.image[MASK > 0], PHOTO[MASK > 0])


def test_images_are_the_callers(scene: Scene) -> None:
    result = scene.sample(1, seed=9)[0]
    result.image[:] = 0
    assert scene.sample(1, seed=9)[0].image.any()


def test_variations_are_near_and_of_the_same_idea(scene: Scene) -> None:
    parent = scene.sample(1, seed=6)[0]
    near, far = parent.variations(4, strength=0.1, seed=1), parent.variations(4, strength=1.0, seed=1)

    def distance(results: list[Completion]) -> float:
        return float(np.mean([np.abs(r.image.astype(int) - parent.image).mean() for r in results]))

    assert 0 < distance(near) < distance(far)
    assert {r.primitive for r in near + far} == {parent.primitive}
    assert np.array_equal(parent.variations(1, strength=0, seed=1)[0].image, parent.image)
    assert same(scene.replay(near[2].token), near[2])
    again = near[0].variations(1, strength=0.5, seed=2)[0]
    assert same(scene.replay(again.token), again)


def test_interpolation_goes_from_one_to_the_other(scene: Scene) -> None:
    a, b = scene.sample(2, seed=0, strategy="diverse")
    way = scene.interpolate(a, b, steps=5)
    assert np.array_equal(way[0].image, a.image)
    assert np.array_equal(way[-1].image, b.image)
    assert [r.primitive for r in way] == [a.primitive] * 2 + [b.primitive] * 3
    middle = np.abs(way[2].image.astype(int) - a.image).mean()
    assert 0 < middle < np.abs(b.image.astype(int) - a.image).mean() * 1.5
    assert same(scene.replay(way[2].token), way[2])
    assert len(scene.interpolate(a, a, steps=2)) == 2


def test_tokens_replay_on_another_completer(completer: Completer, scene: Scene, bundle_folder: Path) -> None:
    result = scene.sample(3, seed=8)[2]
    with Completer(bundle_folder, "cpu", threads=1) as other:
        replayed = other.encode(PHOTO, MASK).replay(result.token)
    assert replayed.primitive == result.primitive
    assert np.abs(replayed.image.astype(int) - result.image).max() <= 1


def test_tokens_that_do_not_fit_are_refused(completer: Completer, scene: Scene) -> None:
    with pytest.raises(BadToken):
        scene.replay("forged")
    two = np.zeros((600, 600), np.uint8)
    two[10:20, 10:20] = two[500:520, 500:520] = 255
    token = completer.encode(formula(600, 600), two).sample(1, seed=0)[0].token
    with pytest.raises(BadToken, match="2 holes"):
        scene.replay(token)


def test_a_token_is_refused_where_the_context_is_another(completer: Completer, scene: Scene) -> None:
    wide = completer.encode(PHOTO, MASK, context=40)
    result = wide.sample(1, seed=0)[0]
    with pytest.raises(BadToken, match=r"context=40.*context=None.*encode the photo as it was"):
        scene.replay(result.token)
    assert same(completer.encode(PHOTO, MASK, context=40).replay(result.token), result)
    named = completer.encode(PHOTO, MASK, context=completer.manifest.image_size)
    assert same(named.replay(scene.sample(1, seed=0)[0].token), scene.sample(1, seed=0)[0]), "the default by its number"


def test_precision_is_per_graph(bundle_folder: Path, tmp_path: Path) -> None:
    """A bundle with an INT8 decoder only runs it beside the float32 encoder. (The file is the float32 one: this is about the choice.)"""
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "bundle"))
    shutil.copy(folder / "decoder.onnx", folder / "decoder.int8.onnx")

    def add(m: dict[str, Any]) -> None:
        decoder = next(g for g in m["graphs"] if (g["graph"], g["precision"]) == ("decoder", "float32"))
        m["graphs"].append({**decoder, "precision": "int8", "file": "decoder.int8.onnx"})

    rewrite(folder, add)
    with Completer(folder, "cpu", 1, "int8") as small, Completer(folder, "cpu", 1) as plain:
        assert same(small.complete(PHOTO, MASK, 1, 0)[0], plain.complete(PHOTO, MASK, 1, 0)[0])
    (folder / "decoder.int8.onnx").write_bytes(b"damaged")
    with pytest.raises(BadBundle, match=r"decoder\.int8\.onnx"):
        Completer(folder, "cpu", 1, "int8")
    with pytest.raises(BadArgument, match="float32, float16"):
        Completer(bundle_folder, "cpu", 1, "int8")


def test_separate_holes_are_all_filled(completer: Completer) -> None:
    photo, mask = formula(600, 600), np.zeros((600, 600), np.uint8)
    mask[10:30, 10:30] = mask[500:540, 500:520] = 255
    result = completer.complete(photo, mask, n=2, seed=0)[1]
    for part in (np.s_[10:30, 10:30], np.s_[500:540, 500:520]):
        assert not np.array_equal(result.image[part], photo[part])
    assert np.array_equal(result.image[mask == 0], photo[mask == 0])


def test_streaming_gives_the_results_of_sampling(scene: Scene) -> None:
    streamed, sampled = list(scene.stream(5, seed=1)), scene.sample(5, seed=1)
    assert [r.token for r in streamed] == [r.token for r in sampled]
    assert all(np.abs(a.image.astype(int) - b.image).max() <= 1 for a, b in zip(streamed, sampled, strict=True))


def test_a_deadline_gives_at_least_one_and_fewer_than_all(scene: Scene) -> None:
    assert len(list(scene.stream(1000, seed=1, deadline_ms=0.001))) == 1
    assert 1 <= len(list(scene.stream(1000, seed=1, deadline_ms=20))) < 1000
    assert len(list(scene.stream(3, seed=1, deadline_ms=60_000))) == 3


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf"), "5"])
def test_impossible_deadlines_are_refused_at_once(scene: Scene, deadline: object) -> None:
    with pytest.raises(BadArgument, match="deadline_ms"):
        scene.stream(3, deadline_ms=deadline)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.sample(0), "n=0"),
        (lambda s: s.sample(seed=-1), "seed=-1"),
        (lambda s: s.sample(primitive=4), "0 to 3"),
        (lambda s: s.stream(0), "n=0"),
        (lambda s: s.sample(1, seed=0)[0].variations(0), "n=0"),
        (lambda s: s.sample(1, seed=0)[0].variations(1, strength=1.5), "strength=1.5"),
        (lambda s: s.interpolate(*s.sample(2, seed=0), steps=1), "steps=1"),
    ],
)
def test_impossible_arguments_are_refused(scene: Scene, call, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        call(scene)


def test_results_of_another_scene_are_refused(completer: Completer, scene: Scene) -> None:
    other = completer.encode(PHOTO, MASK).sample(1, seed=0)[0]
    with pytest.raises(BadArgument, match="another scene"):
        scene.interpolate(other, other)


@pytest.mark.parametrize("wrong", [{"context": 0}, {"context": 2.5}, {"context": True}])
def test_impossible_context_is_refused(completer: Completer, wrong: dict) -> None:
    with pytest.raises(BadArgument, match="context"):
        completer.encode(PHOTO, MASK, **wrong)


def test_context_widens_what_the_model_sees(completer: Completer) -> None:
    photo, mask = formula(400, 400), np.zeros((400, 400), np.uint8)
    mask[200:210, 200:210] = 255
    sides = [
        s._regions[0].crop.square for s in (completer.encode(photo, mask), completer.encode(photo, mask, context=300))
    ]
    assert [right - left for left, _, right, _ in sides] == [32, 300]


def test_sixteen_threads_on_one_scene_equal_one(scene: Scene, completer: Completer) -> None:
    expected = [scene.sample(3, seed=i, strategy="diverse") for i in range(8)]

    def work(i: int) -> bool:
        if i % 4 == 3:
            completer.encode(PHOTO, MASK)
        return all(
            same(a, b) for a, b in zip(scene.sample(3, seed=i % 8, strategy="diverse"), expected[i % 8], strict=True)
        )

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(64)))


def test_closing(bundle_folder: Path) -> None:
    completer = Completer(bundle_folder, "cpu")
    scene = completer.encode(PHOTO, MASK)
    completer.close()
    completer.close()
    with pytest.raises(Closed):
        completer.encode(PHOTO, MASK)
    with pytest.raises(Closed):
        scene.sample(1)


def test_closing_during_work_is_clean(bundle_folder: Path) -> None:
    completer = Completer(bundle_folder, "cpu")
    scene = completer.encode(PHOTO, MASK)
    started, ends = threading.Event(), []

    def work() -> None:
        try:
            for i in range(10_000):
                scene.sample(1, seed=i)
                started.set()
        except Closed:
            ends.append("closed")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait(10)
    completer.close()
    for thread in threads:
        thread.join(30)
    assert ends == ["closed"] * 4


def test_bundles_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="expected a bundle"):
        Completer(tmp_path / "missing")


@pytest.mark.parametrize("device", ["cuda", "tensorrt", "rtx"])
def test_a_forced_device_is_had_or_raises_with_the_cure(bundle_folder: Path, device: str) -> None:
    from picme_sdk.backends.cuda import nvidia_capability

    if nvidia_capability() is not None:
        pytest.skip("a GPU is here: tests/gpu covers it")
    with pytest.raises(BackendUnavailable, match=r"pip|driver") as caught:
        Completer(bundle_folder, device)
    assert str(caught.value).count(" | ") == 2


@pytest.mark.parametrize("wrong", [{"device": "gpu"}, {"threads": 0}, {"threads": 1.5}])
def test_impossible_settings_are_refused(bundle_folder: Path, wrong: dict) -> None:
    with pytest.raises(BadArgument):
        Completer(bundle_folder, **wrong)


def test_memory_stays_flat(completer: Completer) -> None:
    """Hundreds of completions; the long soak is in benchmarks."""
    import gc
    import resource

    def rss() -> int:
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    for i in range(50):
        completer.complete(PHOTO, MASK, n=2, seed=i)[0].image  # noqa: B018 (composes)
    before = rss()
    for i in range(300):
        completer.complete(PHOTO, MASK, n=2, seed=i)[0].image  # noqa: B018
    assert rss() - before < 3 << 20
