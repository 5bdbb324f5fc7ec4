"""A scene is a photo that was encoded once; completions are sampled from it.

Scene        immutable; holds the mixture, and what the decoder needs of the photo
Completion   one result: image, primitive, weight, log_prob, token, timings
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from picme_sdk import sampling
from picme_sdk import token as tokens
from picme_sdk.backends import Arrays, Backend
from picme_sdk.contract import (
    DEFAULT_RESULTS,
    DEFAULT_STEPS,
    DEFAULT_STRATEGY,
    DEFAULT_STRENGTH,
    DEFAULT_TEMPERATURE,
    DEFAULT_VARIATIONS,
    MAX_RESULTS,
    Strategy,
)
from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.holes import Hole
from picme_sdk.imaging import U8, Photo
from picme_sdk.sampling import F64, Draw, Mixture
from picme_sdk.token import Blend, Recipe, Settings, Variation, f32


@dataclass(frozen=True)
class Timings:
    """Milliseconds. Encoding happens once a scene; decoding is this result's share of its batch."""

    encode_ms: float
    decode_ms: float


@dataclass(frozen=True)
class Region:
    """One hole of a scene, encoded."""

    hole: Hole
    skips: Arrays
    mixture: Mixture


@dataclass(frozen=True)
class _Latent:
    """A point of one hole's latent space, z = mean + scale * noise, and the primitive it counts as."""

    primitive: int
    mean: F64
    scale: F64
    noise: F64

    @property
    def z(self) -> sampling.F32:
        return (self.mean + self.scale * self.noise).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Scene:
    """A photo with its holes, encoded. Immutable; every method may be called from several threads at once.

    The photo itself is not copied: do not change an array or image that you gave while its scene is in use. Where a photo has several
    separate holes, `primitives` and `ambiguity` speak of the largest.
    """

    size: tuple[int, int]  # width and height of the photo
    encode_ms: float
    _photo: Photo = field(repr=False)
    _regions: tuple[Region, ...] = field(repr=False)
    _backend: Backend = field(repr=False)
    _model_id: str = field(repr=False)
    _settings: Settings = field(repr=False)

    @property
    def primitives(self) -> list[tuple[int, float]]:
        """(number, weight) of every primitive, heaviest first. Weights add up to 1."""
        mixture = self._regions[0].mixture
        weights = mixture.weights
        return [(i, float(weights[i])) for i in mixture.order()]

    @property
    def ambiguity(self) -> float:
        """How many visibly different answers there are, 1 to k, where the bundle is calibrated for it; otherwise exp(entropy of the
        weights), where k means that all primitives are equally likely."""
        return self._regions[0].mixture.ambiguity

    def sample(
        self,
        n: int = DEFAULT_RESULTS,
        seed: int | None = None,
        strategy: Strategy = DEFAULT_STRATEGY,
        primitive: int | None = None,
        temperature: float = DEFAULT_TEMPERATURE,
    ) -> list[Completion]:
        """`n` results (1 to 1000).

        seed         0 to 2**64 - 1; None draws one, and the results' tokens hold it. Equal seeds give equal results, and
                     result i does not depend on n (except with "likely").
        strategy     "diverse" (default): each primitive once, heaviest first, near-duplicates last; then as "categorical".
                     "categorical": each result draws its primitive by weight, the paper's Algorithm 2.
                     "likely": the heaviest primitive's mean, then samples by falling log-probability.
        primitive    one idea only: all results come from this primitive.
        temperature  0 to 100: scales the noise, and sharpens (below 1) or flattens (above 1) the weights. 0 is deterministic.
        """
        seed = _seed(seed)
        self._check(n, seed, strategy, primitive, temperature)
        recipes = sampling.draws(self._mixtures, n, seed, strategy, primitive, f32(temperature))
        return self._decode(recipes)

    def stream(
        self,
        n: int = DEFAULT_RESULTS,
        seed: int | None = None,
        strategy: Strategy = DEFAULT_STRATEGY,
        primitive: int | None = None,
        temperature: float = DEFAULT_TEMPERATURE,
        deadline_ms: float | None = None,
    ) -> Iterator[Completion]:
        """The results of `sample`, one by one as they are decoded.

        With a deadline it stops before a result that would, by the time of the one before, come too late; the first always comes.
        """
        seed = _seed(seed)
        self._check(n, seed, strategy, primitive, temperature)
        if deadline_ms is not None and not (isinstance(deadline_ms, (int, float)) and 0 < deadline_ms < 1e15):
            raise BadArgument(f"deadline_ms={deadline_ms!r}", "None or a positive number", "choose another")
        recipes = sampling.draws(self._mixtures, n, seed, strategy, primitive, f32(temperature))
        return self._stream(recipes, deadline_ms)

    def interpolate(self, first: Completion, second: Completion, steps: int = DEFAULT_STEPS) -> list[Completion]:
        """`steps` results (2 to 1000) on the way from one result of this scene to another, both ends included."""
        if not isinstance(steps, int) or not 2 <= steps <= MAX_RESULTS:
            raise BadArgument(f"steps={steps!r}", f"an integer from 2 to {MAX_RESULTS}", "choose another")
        if not all(isinstance(end, Completion) and end._scene is self for end in (first, second)):
            raise BadArgument("results of another scene", "results of this scene", "replay their tokens here first")
        recipes: list[Recipe] = [Blend(first._recipe, second._recipe, f32(i / (steps - 1))) for i in range(steps)]
        tokens.encode(recipes[0], self._model_id, self._settings)  # raises where a token would grow too long
        return self._decode(recipes)

    def replay(self, token: str) -> Completion:
        """The result of a token, on this photo. The token must come from the same model, the same `context` and as many holes. Tokens of
        version 1 do not record the context; they replay with this scene's."""
        recipe, settings = tokens.decode(token, self._model_id)
        if settings is not None and settings != self._settings:
            raise BadToken(
                f"a token made with context={settings.context}, detail={settings.detail!r}",
                f"context={self._settings.context}, detail={self._settings.detail!r}, as this scene has",
                "encode the photo as it was encoded for the token",
            )
        return self._decode([recipe])[0]

    @cached_property
    def _mixtures(self) -> tuple[Mixture, ...]:
        return tuple(region.mixture for region in self._regions)

    def _check(self, n: int, seed: int, strategy: str, primitive: int | None, temperature: float) -> None:
        sampling.check_arguments(n, seed, strategy, primitive, temperature, self._mixtures[0].size)

    def _latents(self, recipe: Recipe) -> list[_Latent]:
        """A recipe as one latent per hole."""
        if isinstance(recipe, Draw):
            return [self._drawn(recipe, hole) for hole in range(len(self._regions))]
        if isinstance(recipe, Variation):
            return [_vary(latent, recipe, hole) for hole, latent in enumerate(self._latents(recipe.parent))]
        pairs = zip(self._latents(recipe.first), self._latents(recipe.second), strict=True)
        return [_blend(a, b, recipe.position) for a, b in pairs]

    def _drawn(self, draw: Draw, hole: int) -> _Latent:
        mixture, i = self._regions[hole].mixture, draw.primitives[hole]
        if i >= mixture.size:
            raise BadToken(f"primitive {i}", f"0 to {mixture.size - 1}", "use a token of this model")
        noise = draw.temperature * sampling.normals(draw.seed, draw.index, mixture.means.shape[1], hole).astype(
            np.float64
        )
        return _Latent(i, mixture.means[i], mixture.scales[i], noise)

    def _decode(self, recipes: Sequence[Recipe]) -> list[Completion]:
        batch = self._backend.batch
        made: list[Completion] = []
        for start in range(0, len(recipes), batch):
            made += self._decode_batch(recipes[start : start + batch])
        return made

    def _stream(self, recipes: Sequence[Recipe], deadline_ms: float | None) -> Iterator[Completion]:
        start = time.perf_counter()
        for recipe in recipes:
            begin = time.perf_counter()
            yield from self._decode_batch([recipe])
            now = time.perf_counter()
            if deadline_ms is not None and (now - start) + (now - begin) > deadline_ms / 1000:
                return

    def _decode_batch(self, recipes: Sequence[Recipe]) -> list[Completion]:
        for recipe in recipes:
            if tokens.holes(recipe) != len(self._regions):
                raise BadToken(
                    f"a token for {tokens.holes(recipe)} holes",
                    f"{len(self._regions)}, as this scene has",
                    "use the same mask",
                )
        start = time.perf_counter()
        latents = [self._latents(recipe) for recipe in recipes]
        squares = []
        for hole, region in enumerate(self._regions):
            z = np.stack([latent[hole].z for latent in latents])
            decoded = self._backend.run("decoder", {"z": z, **region.skips})["image"]
            region.hole.heal(decoded)
            squares.append(decoded)
        elapsed = (time.perf_counter() - start) * 1000 / len(recipes)
        timings = Timings(self.encode_ms, elapsed)
        return [
            Completion(latents[i][0].primitive, timings, self, recipe, tuple(latents[i]), tuple(s[i] for s in squares))
            for i, recipe in enumerate(recipes)
        ]


@dataclass(frozen=True, eq=False)
class Completion:
    """One result.

    primitive  number of the idea it came from (of the largest hole; of the nearer end for an interpolation)
    timings    milliseconds
    """

    primitive: int
    timings: Timings
    _scene: Scene = field(repr=False)
    _recipe: Recipe = field(repr=False)
    _latents: tuple[_Latent, ...] = field(repr=False)
    _squares: tuple[U8, ...] = field(repr=False)

    @property
    def weight(self) -> float:
        """How likely its idea is, 0 to 1."""
        return float(np.exp(self._scene._mixtures[0].log_weights[self.primitive]))

    @property
    def log_prob(self) -> float:
        """Log of weight times density, over all holes: for ranking results of one scene."""
        holes = zip(self._scene._mixtures, self._latents, strict=True)
        return sum(mixture.log_prob(latent.primitive, latent.noise) for mixture, latent in holes)

    @cached_property
    def token(self) -> str:
        """Text that replays this result: `scene.replay(token)`, on any device."""
        return tokens.encode(self._recipe, self._scene._model_id, self._scene._settings)

    @cached_property
    def image(self) -> Any:
        """The completed photo, of the same kind and size as it was given (bytes are PNG). Made when first asked for; yours to keep."""
        regions = self._scene._regions
        patches = [region.hole.patch(square) for region, square in zip(regions, self._squares, strict=True)]
        return self._scene._photo.compose(patches)

    def variations(
        self, n: int = DEFAULT_VARIATIONS, strength: float = DEFAULT_STRENGTH, seed: int | None = None
    ) -> list[Completion]:
        """`n` results like this one: the same primitive, the noise turned by `strength` (0 = this one, 1 = any of the primitive)."""
        seed = _seed(seed)
        sampling.check_arguments(n, seed, "categorical", None, 1.0, 1)
        sampling.check_number("strength", strength, 1.0)
        recipes: list[Recipe] = [Variation(self._recipe, seed, index, f32(strength)) for index in range(n)]
        tokens.encode(
            recipes[0], self._scene._model_id, self._scene._settings
        )  # raises where a token would grow too long
        return self._scene._decode(recipes)


def _seed(seed: int | None) -> int:
    return int.from_bytes(os.urandom(8), "little") if seed is None else seed


def _vary(latent: _Latent, variation: Variation, hole: int) -> _Latent:
    fresh = sampling.normals(variation.seed, variation.index, len(latent.noise), hole, sampling.VARIATION).astype(
        np.float64
    )
    kept = np.sqrt(1 - variation.strength**2)  # the mixed noise stays as large as the two were
    return _Latent(latent.primitive, latent.mean, latent.scale, kept * latent.noise + variation.strength * fresh)


def _blend(a: _Latent, b: _Latent, t: float) -> _Latent:
    """Means and scales on a line, noise on the arc between the two."""
    nearer = a if t < 0.5 else b
    lengths = np.linalg.norm(a.noise) * np.linalg.norm(b.noise)
    cosine = float(np.clip(a.noise @ b.noise / lengths, -1, 1)) if lengths > 0 else 1.0
    angle = float(np.arccos(cosine))
    if angle < 1e-6 or angle > np.pi - 1e-6:
        noise = (1 - t) * a.noise + t * b.noise
    else:
        noise = (np.sin((1 - t) * angle) * a.noise + np.sin(t * angle) * b.noise) / np.sin(angle)
    return _Latent(nearer.primitive, (1 - t) * a.mean + t * b.mean, (1 - t) * a.scale + t * b.scale, noise)
