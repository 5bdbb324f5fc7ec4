"""Which recipes each strategy chooses, and what they mean."""

import json
import math

import numpy as np
import pytest

from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.mixture import Mixture
from picme_sdk.mixture.philox import normals
from picme_sdk.mixture.recipe import Blend, Draw, Variation, check_arguments, draws, generations, hole_count, latents
from tests.conftest import ROOT
from tests.picme_sdk.mixture.test_mixture import mixture
from tests.vectors import make

DRAW = Draw((1, 0), 5, 2, 0.5)


def test_a_draw_is_a_primitive_and_scaled_noise() -> None:
    both = mixture([0.5, 0.5]), mixture([0.2, 0.8])
    for hole, latent in enumerate(latents(DRAW, both)):
        i = DRAW.primitives[hole]
        assert latent.primitive == i
        np.testing.assert_array_equal(latent.noise, 0.5 * normals(5, 2, 4, hole).astype(float))
        np.testing.assert_allclose(latent.z, both[hole].means[i] + both[hole].scales[i] * latent.noise, rtol=1e-6)


def test_a_variation_keeps_its_primitive_and_the_size_of_its_noise() -> None:
    wide = mixture([1.0], d=4096)
    draw = Draw((0,), 1, 0, 1.0)
    (parent,) = latents(draw, [wide])
    for strength in (0.0, 0.3, 1.0):
        (varied,) = latents(Variation(draw, 9, 0, strength), [wide])
        assert varied.noise.std() == pytest.approx(1, abs=0.05)
        correlation = np.corrcoef(parent.noise, varied.noise)[0, 1]
        assert correlation == pytest.approx(np.sqrt(1 - strength**2), abs=0.05)


def test_a_blend_starts_and_ends_at_its_parts_and_keeps_the_length_of_the_noise() -> None:
    wide = mixture([0.5, 0.5], d=256)
    first, second = Draw((0,), 1, 0, 1.0), Draw((1,), 2, 0, 1.0)
    ends = [latents(recipe, [wide])[0] for recipe in (first, second)]
    blends = [latents(Blend(first, second, t), [wide])[0] for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    np.testing.assert_allclose(blends[0].z, ends[0].z, rtol=1e-5)
    np.testing.assert_allclose(blends[-1].z, ends[1].z, rtol=1e-5)
    assert [blend.primitive for blend in blends] == [0, 0, 1, 1, 1]
    for blend in blends:
        assert np.linalg.norm(blend.noise) == pytest.approx(16, rel=0.15), "on the arc, not on the chord"


def test_recipes_know_their_holes_and_generations() -> None:
    varied = Variation(Blend(DRAW, Variation(DRAW, 1, 0, 0.5), 0.5), 1, 0, 0.5)
    assert (hole_count(varied), generations(varied), generations(DRAW)) == (2, 3, 0)
    with pytest.raises(ValueError, match="holes"):
        hole_count(Blend(DRAW, Draw((1,), 0, 0, 1.0), 0.5))


def test_a_primitive_that_does_not_exist_is_a_bad_token() -> None:
    with pytest.raises(BadToken, match="primitive 2"):
        latents(Draw((2,), 0, 0, 1.0), [mixture([0.5, 0.5])])


def test_published_vectors_are_reproduced() -> None:
    published = json.loads((ROOT / "tests/vectors/sampling.json").read_text())
    assert json.loads(json.dumps(make.sampling_vectors())) == published


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
        mixtures[0].log_density(d.primitives[0], d.temperature * normals(d.seed, d.index, 32).astype(float))
        for d in made
    ]
    assert ranks == sorted(ranks, reverse=True)


def test_a_strategy_that_nobody_wrote_is_refused() -> None:
    """Even if the contract names it: it must not quietly be another one."""
    with pytest.raises(BadArgument, match="implements"):
        draws([mixture([0.5, 0.5])], 2, 0, "uniform", None, 1.0)


def test_one_primitive_only() -> None:
    assert {d.primitives for d in draws([mixture([0.5, 0.5])] * 2, 9, 0, "categorical", 1, 1.0)} == {(1, 1)}


def test_holes_draw_independently() -> None:
    made = draws([mixture([0.5, 0.5])] * 2, 200, 0, "categorical", None, 1.0)
    agree = np.mean([a == b for a, b in (d.primitives for d in made)])
    assert 0.35 < agree < 0.65
    assert not np.array_equal(normals(0, 0, 8, hole=0), normals(0, 0, 8, hole=1))


def test_temperature_zero_is_the_heaviest() -> None:
    assert {d.primitives for d in draws([mixture([0.3, 0.7])], 5, 0, "categorical", None, 0.0)} == {(1,)}


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
    check_arguments(**arguments)
    with pytest.raises(BadArgument, match=says) as caught:
        check_arguments(**(arguments | wrong))
    assert isinstance(caught.value, ValueError)
