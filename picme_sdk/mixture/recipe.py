"""Recipes: what a result is made of, and what that means.

A recipe is a `Draw` from the mixtures, a `Variation` of a recipe, or a `Blend` of two. `draws` chooses recipes by a strategy, `latents` turns one into a
point of each hole's latent space, and token.py writes it as text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from picme_sdk.contract import MAX_RESULTS, MAX_TEMPERATURE, STRATEGIES
from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.mixture import F64, Mixture
from picme_sdk.mixture.philox import F32, VARIATION, normals, uniform


@dataclass(frozen=True)
class Draw:
    """A primitive for each hole, and the noise numbered (seed, index), scaled by the temperature."""

    primitives: tuple[int, ...]
    seed: int
    index: int
    temperature: float


@dataclass(frozen=True)
class Variation:
    """The noise of `parent`, rotated towards new noise numbered (seed, index)."""

    parent: Recipe
    seed: int
    index: int
    strength: float  # 0 = the parent itself, 1 = only new noise


@dataclass(frozen=True)
class Blend:
    """A point between two recipes; 0 = the first, 1 = the second."""

    first: Recipe
    second: Recipe
    position: float


Recipe = Draw | Variation | Blend


def f32(value: float) -> float:
    """A number as a token stores it: results are computed with exactly what will be replayed."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def hole_count(recipe: Recipe) -> int:
    """How many holes a recipe is for; `ValueError` if its parts disagree."""
    if isinstance(recipe, Draw):
        return len(recipe.primitives)
    if isinstance(recipe, Variation):
        return hole_count(recipe.parent)
    first, second = hole_count(recipe.first), hole_count(recipe.second)
    if first != second:
        raise ValueError("holes")
    return first


def generations(recipe: Recipe) -> int:
    """How many variations and blends lie between a recipe and its draws, at most."""
    if isinstance(recipe, Draw):
        return 0
    if isinstance(recipe, Variation):
        return 1 + generations(recipe.parent)
    return 1 + max(generations(recipe.first), generations(recipe.second))


@dataclass(frozen=True)
class Latent:
    """A point of one hole's latent space, z = mean + scale * noise, and the primitive it counts as."""

    primitive: int
    mean: F64
    scale: F64
    noise: F64

    @property
    def z(self) -> F32:
        return (self.mean + self.scale * self.noise).astype(np.float32)


def latents(recipe: Recipe, mixtures: Sequence[Mixture]) -> list[Latent]:
    """One latent for each hole. `BadToken` where a primitive does not exist; the number of holes was checked."""
    if isinstance(recipe, Draw):
        return [_draw(recipe, mixture, hole) for hole, mixture in enumerate(mixtures)]
    if isinstance(recipe, Variation):
        return [_vary(latent, recipe, hole) for hole, latent in enumerate(latents(recipe.parent, mixtures))]
    pairs = zip(latents(recipe.first, mixtures), latents(recipe.second, mixtures), strict=True)
    return [_blend(a, b, recipe.position) for a, b in pairs]


def noise(seed: int, index: int, count: int, hole: int, temperature: float) -> F64:
    """The noise of a draw, in float64."""
    scaled: F64 = temperature * normals(seed, index, count, hole).astype(np.float64)
    return scaled


def _draw(draw: Draw, mixture: Mixture, hole: int) -> Latent:
    i = draw.primitives[hole]
    if i >= mixture.size:
        raise BadToken(f"primitive {i}", f"0 to {mixture.size - 1}", "use a token of this model")
    drawn = noise(draw.seed, draw.index, mixture.means.shape[1], hole, draw.temperature)
    return Latent(i, mixture.means[i], mixture.scales[i], drawn)


def _vary(latent: Latent, variation: Variation, hole: int) -> Latent:
    fresh = normals(variation.seed, variation.index, len(latent.noise), hole, VARIATION).astype(np.float64)
    kept = np.sqrt(1 - variation.strength**2)  # the sum has the same variance as each part
    return Latent(latent.primitive, latent.mean, latent.scale, kept * latent.noise + variation.strength * fresh)


def _blend(a: Latent, b: Latent, t: float) -> Latent:
    """Means and scales are interpolated linearly, the noise along the arc between the two."""
    nearer = a if t < 0.5 else b
    lengths = np.linalg.norm(a.noise) * np.linalg.norm(b.noise)
    cosine = float(np.clip(a.noise @ b.noise / lengths, -1, 1)) if lengths > 0 else 1.0
    angle = float(np.arccos(cosine))
    if angle < 1e-6 or angle > np.pi - 1e-6:
        mixed = (1 - t) * a.noise + t * b.noise
    else:
        mixed = (np.sin((1 - t) * angle) * a.noise + np.sin(t * angle) * b.noise) / np.sin(angle)
    return Latent(nearer.primitive, (1 - t) * a.mean + t * b.mean, (1 - t) * a.scale + t * b.scale, mixed)


def draws(
    mixtures: Sequence[Mixture],
    n: int,
    seed: int,
    strategy: str,
    primitive: int | None,
    temperature: float,
    start: int = 0,
) -> list[Draw]:
    """Recipes of results start .. start + n. Result i does not depend on n, except in "likely", which sorts."""
    if strategy == "likely":
        return _likely(mixtures, n, seed, primitive, temperature)
    indices = range(start, start + n)
    columns = []
    for hole, mixture in enumerate(mixtures):
        if primitive is not None:
            columns.append([primitive] * n)
            continue
        dimensions = mixture.means.shape[1]
        chosen = mixture.pick([uniform(seed, index, hole, dimensions) for index in indices], temperature)
        if strategy == "diverse":
            ideas = mixture.ideas()[start:]
            chosen = ideas[:n] + chosen[len(ideas) :]
        elif strategy != "categorical":  # named in the contract, but nobody wrote it
            raise BadArgument(f"strategy={strategy!r}", "one that this version implements", "choose another")
        columns.append(chosen)
    return [
        Draw(primitives, seed, index, temperature)
        for index, primitives in zip(indices, zip(*columns, strict=True), strict=True)
    ]


def _likely(mixtures: Sequence[Mixture], n: int, seed: int, primitive: int | None, temperature: float) -> list[Draw]:
    """The heaviest primitive's mean, then samples in order of decreasing log-density."""
    top = tuple(mixture.order()[0] if primitive is None else primitive for mixture in mixtures)
    rest = draws(mixtures, n - 1, seed, "categorical", primitive, temperature, start=1)

    def log_density(draw: Draw) -> float:
        points = latents(draw, mixtures)
        return sum(m.log_density(point.primitive, point.noise) for m, point in zip(mixtures, points, strict=True))

    return [Draw(top, seed, 0, 0.0), *sorted(rest, key=log_density, reverse=True)]


def check_arguments(
    n: int, seed: int, strategy: str, primitive: int | None, temperature: float, primitives: int
) -> None:
    """Raise `BadArgument` for a value that sampling does not accept."""
    if not _is_integer(n) or not 1 <= n <= MAX_RESULTS:
        raise BadArgument(
            f"n={n!r}", f"an integer from 1 to {MAX_RESULTS}", "ask for fewer results, or sample several times"
        )
    check_seed(seed)
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise BadArgument(f"strategy={strategy!r}", f"one of {', '.join(STRATEGIES)}", "choose one of them")
    if primitive is not None and (not _is_integer(primitive) or not 0 <= primitive < primitives):
        raise BadArgument(
            f"primitive={primitive!r}", f"None or an integer from 0 to {primitives - 1}", "see scene.primitives"
        )
    check_number("temperature", temperature, MAX_TEMPERATURE)


def check_seed(seed: int) -> None:
    if not _is_integer(seed) or not 0 <= seed < 1 << 64:
        raise BadArgument(f"seed={seed!r}", "None or an integer from 0 to 2**64 - 1", "choose another seed")


def check_number(name: str, value: float, maximum: float) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.floating, np.integer))
        or not 0 <= value <= maximum
    ):
        raise BadArgument(f"{name}={value!r}", f"a number from 0 to {maximum:g}", f"choose another {name}")


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
