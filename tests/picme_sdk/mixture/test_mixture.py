"""The mixture's mathematics against closed forms."""

import math

import numpy as np
import pytest

from picme_sdk.bundle.manifest import Ambiguity
from picme_sdk.errors import NumericalError
from picme_sdk.mixture.mixture import Mixture


def mixture(weights: list[float], d: int = 4) -> Mixture:
    k = len(weights)
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.array([weights], np.float32))
    means = np.arange(k * d, dtype=np.float32).reshape(1, k, d)
    return Mixture.of(log_weights, means, np.zeros((1, k, d), np.float32))


def test_log_density_is_weight_times_density() -> None:
    m = Mixture.of(
        np.log(np.array([[0.25, 0.75]], np.float32)),
        np.zeros((1, 2, 3), np.float32),
        np.full((1, 2, 3), 0.5, np.float32),
    )
    noise = np.array([0.3, -1.0, 2.0])
    sigma = math.exp(0.5)
    density = sum(-0.5 * e * e - math.log(sigma) - 0.5 * math.log(2 * math.pi) for e in noise)
    assert m.log_density(1, noise) == pytest.approx(math.log(0.75) + density, abs=1e-6)


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


def test_a_primitive_that_is_never_drawn_is_no_answer() -> None:
    parts = np.array([[0.0, 0.0, -np.inf]], np.float32), np.array([[[0.0], [9.0], [50.0]]], np.float32)
    rare = Mixture.of(*parts, np.zeros((1, 3, 1), np.float32), Ambiguity(1.0, 1.0, None))
    assert rare.ambiguity == pytest.approx(2, abs=1e-3)


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
