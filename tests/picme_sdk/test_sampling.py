"""Sampling against published vectors, closed forms and statistics."""

import json
import math

import numpy as np
import pytest

from picme_sdk import sampling
from picme_sdk.errors import BadArgument, NumericalError
from picme_sdk.manifest import Ambiguity
from picme_sdk.sampling import Mixture, draws, normals, philox, uniform
from tests.conftest import ROOT
from tests.vectors import make


def mixture(weights: list[float], d: int = 4) -> Mixture:
    k = len(weights)
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.array([weights], np.float32))
    means = np.arange(k * d, dtype=np.float32).reshape(1, k, d)
    return Mixture.of(log_weights, means, np.zeros((1, k, d), np.float32))


def test_philox_gives_the_words_of_its_authors() -> None:
    """The known answers of the Random123 library."""
    known = {
        ((0, 0, 0, 0), 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((2**32 - 1,) * 4, 2**64 - 1): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }  # fmt: skip
    for (counter, seed), words in known.items():
        assert tuple(philox(np.array(counter, np.uint64)[:, None], seed)[:, 0].tolist()) == words


def test_published_vectors_are_reproduced() -> None:
    published = json.loads((ROOT / "tests/vectors/sampling.json").read_text())
    assert json.loads(json.dumps(make.sampling_vectors())) == published


def test_normals_are_normal() -> None:
    drawn = np.sort(np.concatenate([normals(11, r, 128) for r in range(400)]).astype(float))
    cumulative = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in drawn[::16]])
    positions = (np.arange(len(drawn)) + 0.5)[::16] / len(drawn)
    statistic = np.abs(cumulative - positions).max() * math.sqrt(len(drawn))
    assert statistic < 1.63, "Kolmogorov-Smirnov, 1 %"
    pairs = np.stack([normals(11, r, 128) for r in range(400)])
    assert abs((pairs[:, :-1] * pairs[:, 1:]).mean()) < 0.02, "neighbours are independent"
    assert abs((pairs[:-1] * pairs[1:]).mean()) < 0.02, "results are independent"


def test_uniforms_are_uniform() -> None:
    values = np.array([uniform(5, r) for r in range(8000)])
    counts, _ = np.histogram(values, 20, (0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 36.2, "chi-square with 19 degrees of freedom, 1 %"
    assert 0 <= values.min() < values.max() < 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_primitives_are_drawn_by_their_tempered_weights(temperature: float) -> None:
    weights = np.array([0.55, 0.25, 0.15, 0.05])
    made = draws([mixture(weights.tolist())], 4000, 3, "categorical", None, temperature)
    expected = weights ** (1 / temperature)
    expected = 4000 * expected / expected.sum()
    counts = np.bincount([d.primitives[0] for d in made], minlength=4)
    assert ((counts - expected) ** 2 / expected).sum() < 11.35, "chi-square with 3 degrees of freedom, 1 %"


def test_result_i_does_not_depend_on_n_or_start() -> None:
    mixtures = [mixture([0.5, 0.3, 0.2])]
    for strategy in ("categorical", "diverse"):
        long = draws(mixtures, 20, 7, strategy, None, 1.0)
        assert draws(mixtures, 5, 7, strategy, None, 1.0) == long[:5]
        assert draws(mixtures, 10, 7, strategy, None, 1.0, start=10) == long[10:]


def test_diverse_takes_each_primitive_once_heaviest_first() -> None:
    made = draws([mixture([0.1, 0.6, 0.3])], 6, 1, "diverse", None, 1.0)
    assert [d.primitives[0] for d in made[:3]] == [1, 2, 0]


def test_diverse_puts_near_duplicates_last() -> None:
    means = np.array([[[0.0, 0.0], [0.01, 0.0], [5.0, 5.0]]], np.float32)
    twins = Mixture.of(np.log(np.array([[0.5, 0.4, 0.1]], np.float32)), means, np.zeros((1, 3, 2), np.float32))
    assert twins.ideas() == [0, 2, 1]


def test_likely_starts_with_the_heaviest_mean_and_falls() -> None:
    mixtures = [mixture([0.2, 0.7, 0.1], 32)]
    made = draws(mixtures, 10, 5, "likely", None, 1.0)
    assert made[0].primitives == (1,)
    assert made[0].temperature == 0
    ranks = [
        mixtures[0].log_prob(d.primitives[0], d.temperature * normals(d.seed, d.index, 32).astype(float)) for d in made
    ]
    assert ranks == sorted(ranks, reverse=True)


def test_one_primitive_only() -> None:
    assert {d.primitives for d in draws([mixture([0.5, 0.5])] * 2, 9, 0, "categorical", 1, 1.0)} == {(1, 1)}


def test_holes_draw_independently() -> None:
    made = draws([mixture([0.5, 0.5])] * 2, 200, 0, "categorical", None, 1.0)
    agree = np.mean([a == b for a, b in (d.primitives for d in made)])
    assert 0.35 < agree < 0.65
    assert not np.array_equal(normals(0, 0, 8, hole=0), normals(0, 0, 8, hole=1))


def test_temperature_zero_is_the_heaviest() -> None:
    assert {d.primitives for d in draws([mixture([0.3, 0.7])], 5, 0, "categorical", None, 0.0)} == {(1,)}


def test_log_prob_is_weight_times_density() -> None:
    m = Mixture.of(
        np.log(np.array([[0.25, 0.75]], np.float32)),
        np.zeros((1, 2, 3), np.float32),
        np.full((1, 2, 3), 0.5, np.float32),
    )
    noise = np.array([0.3, -1.0, 2.0])
    sigma = math.exp(0.5)
    density = sum(-0.5 * e * e - math.log(sigma) - 0.5 * math.log(2 * math.pi) for e in noise)
    assert m.log_prob(1, noise) == pytest.approx(math.log(0.75) + density, abs=1e-6)


def test_ambiguity_counts_the_answers() -> None:
    assert mixture([0.25] * 4).ambiguity == pytest.approx(4, abs=1e-5)
    assert mixture([1.0, 0.0, 0.0]).ambiguity == pytest.approx(1)
    assert 1 < mixture([0.9, 0.1]).ambiguity < 2


def calibrated(means: list[list[float]], scale: float, weights: tuple[float, ...] | None = None) -> float:
    k = len(means)
    parts = np.zeros((1, k), np.float32), np.array([means], np.float32), np.zeros((1, k, len(means[0])), np.float32)
    return Mixture.of(*parts, Ambiguity(scale, 2.0, weights)).ambiguity


def test_calibrated_ambiguity_counts_primitives_that_look_alike_once() -> None:
    pairs = [[0.0, 0.0], [0.0, 1e-4], [9.0, 0.0], [9.0, 1e-4]]
    assert calibrated(pairs, 1.0) == pytest.approx(2, abs=1e-3), "two pairs of near-duplicates"
    assert calibrated(pairs, 1e-6) == pytest.approx(4), "every difference shows"
    assert calibrated(pairs, 1e6) == pytest.approx(1), "no difference shows"
    assert calibrated(pairs, 1.0, (0.0, 1e12)) == pytest.approx(2, abs=1e-3), "only the second dimension shows"
    assert calibrated(pairs, 1e-300) == pytest.approx(4), "infinitely far apart, without a warning"


def test_a_primitive_that_never_comes_is_no_answer() -> None:
    parts = np.array([[0.0, 0.0, -np.inf]], np.float32), np.array([[[0.0], [9.0], [50.0]]], np.float32)
    made = Mixture.of(*parts, np.zeros((1, 3, 1), np.float32), Ambiguity(1.0, 1.0, None))
    assert made.ambiguity == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(
    ("weights", "scales"),
    [
        ([np.nan, 0], [0, 0]),
        ([-np.inf, -np.inf], [0, 0]),
        ([np.inf, 0], [0, 0]),
        ([0, 0], [np.nan, 0]),
        ([0, 0], [1e9, 0]),
    ],
)
def test_mixtures_that_are_not_finite_are_refused(weights: list[float], scales: list[float]) -> None:
    with pytest.raises(NumericalError):
        Mixture.of(
            np.array([weights], np.float32),
            np.zeros((1, 2, 1), np.float32),
            np.array(scales, np.float32).reshape(1, 2, 1),
        )


def test_degenerate_mixtures_are_defined() -> None:
    sure = mixture([1.0, 0.0])
    assert sure.pick([0.0, 0.5, 1 - 2**-53], 1.0) == [0, 0, 0]
    narrow = Mixture.of(
        np.zeros((1, 2), np.float32), np.ones((1, 2, 3), np.float32), np.full((1, 2, 3), -1e4, np.float32)
    )
    assert (narrow.scales == 0).all()
    assert narrow.ideas() == [0, 1]
    huge = Mixture.of(
        np.array([[1e30, 1e30]], np.float32), np.zeros((1, 2, 1), np.float32), np.zeros((1, 2, 1), np.float32)
    )
    assert huge.weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n": 0}, "n=0"), ({"n": -1}, "n=-1"), ({"n": 10**6}, "1 to 1000"), ({"n": 2.0}, "n=2.0"), ({"n": True}, "n=True"),
        ({"seed": -1}, "seed=-1"), ({"seed": 2**64}, r"2\*\*64"), ({"seed": 1.5}, "seed=1.5"), ({"seed": "7"}, "seed='7'"),
        ({"strategy": "best"}, "categorical, diverse, likely"), ({"primitive": 4}, "0 to 3"), ({"primitive": -1}, "primitive=-1"),
        ({"temperature": -0.1}, "temperature"), ({"temperature": math.nan}, "temperature=nan"), ({"temperature": 1e9}, "0 to 100"),
        ({"temperature": None}, "temperature=None"),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(wrong: dict, says: str) -> None:
    arguments = {"n": 6, "seed": 0, "strategy": "diverse", "primitive": None, "temperature": 1.0, "primitives": 4}
    sampling.check_arguments(**arguments)
    with pytest.raises(BadArgument, match=says) as caught:
        sampling.check_arguments(**(arguments | wrong))
    assert isinstance(caught.value, ValueError)
