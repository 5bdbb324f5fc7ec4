"""A scene is a photo that was encoded once; completions are sampled from it.

Scene        immutable; holds the mixtures, and what the decoder needs of the photo
Completion   one result: image, primitive, weight, log_density, token, timings
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from picme_sdk.contract import (
    DEFAULT_RESULTS,
    DEFAULT_STEPS,
    DEFAULT_STRATEGY,
    DEFAULT_STRENGTH,
    DEFAULT_TEMPERATURE,
    DEFAULT_VARIATIONS,
    MAX_RESULTS,
    MAX_STRENGTH,
    Strategy,
)
from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture import recipe as recipes
from picme_sdk.mixture import token as tokens
from picme_sdk.mixture.mixture import Mixture
from picme_sdk.mixture.recipe import Blend, Latent, Recipe, Variation, f32
from picme_sdk.mixture.token import Settings
from picme_sdk.pipeline import Pipeline, Region
from picme_sdk.pixels.photo import U8, Photo


@dataclass(frozen=True)
class Timings:
    """Milliseconds. Encoding happens once per scene; decoding is this result's share of its batch."""

    encode_ms: float
    decode_ms: float


@dataclass(frozen=True, eq=False)
class Scene:
    """A photo with its holes, encoded. Immutable; every method may be called from several threads at once.

    The photo itself is not copied: do not change an array or image that you gave while its scene is in use. Where a photo has several
    separate holes, `primitives` and `ambiguity` describe the largest.
    """

    size: tuple[int, int]  # width and height of the photo
    encode_ms: float
    _photo: Photo = field(repr=False)
    _regions: tuple[Region, ...] = field(repr=False)
    _pipeline: Pipeline = field(repr=False)
    _settings: Settings = field(repr=False)

    @cached_property
    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixture of each hole, the largest hole first. Read-only."""
        return tuple(region.mixture for region in self._regions)

    @property
    def primitives(self) -> list[tuple[int, float]]:
        """(number, weight) of every primitive, heaviest first. Weights add up to 1."""
        mixture = self.mixtures[0]
        weights = mixture.weights
        return [(i, float(weights[i])) for i in mixture.order()]

    @property
    def ambiguity(self) -> float:
        """How many visibly different answers there are, 1 to k, where the bundle is calibrated for it; otherwise exp(entropy of the
        weights), where k means that all primitives are equally likely."""
        return self.mixtures[0].ambiguity

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
                     "likely": the heaviest primitive's mean, then samples in order of decreasing log-density.
        primitive    one idea only: all results come from this primitive.
        temperature  0 to 100: scales the noise, and sharpens (below 1) or flattens (above 1) the weights. 0 is deterministic.
        """
        seed = _seed(seed)
        self._check(n, seed, strategy, primitive, temperature)
        return self._decode(recipes.draws(self.mixtures, n, seed, strategy, primitive, f32(temperature)))

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

        With a deadline it stops before a result that would be late, judged by the time of the previous one; the first is always decoded.
        """
        seed = _seed(seed)
        self._check(n, seed, strategy, primitive, temperature)
        if deadline_ms is not None and not (isinstance(deadline_ms, (int, float)) and 0 < deadline_ms < 1e15):
            raise BadArgument(f"deadline_ms={deadline_ms!r}", "None or a positive number", "choose another")
        return self._stream(recipes.draws(self.mixtures, n, seed, strategy, primitive, f32(temperature)), deadline_ms)

    def interpolate(self, first: Completion, second: Completion, steps: int = DEFAULT_STEPS) -> list[Completion]:
        """`steps` results (2 to 1000) between two results of this scene, both ends included."""
        if not isinstance(steps, int) or not 2 <= steps <= MAX_RESULTS:
            raise BadArgument(f"steps={steps!r}", f"an integer from 2 to {MAX_RESULTS}", "choose another")
        if not all(isinstance(end, Completion) and end._scene is self for end in (first, second)):
            raise BadArgument("results of another scene", "results of this scene", "replay their tokens here first")
        path = [Blend(first._recipe, second._recipe, f32(i / (steps - 1))) for i in range(steps)]
        tokens.encode(path[0], self._model_id, self._settings)  # raises if a token would become too long
        return self._decode(path)

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

    @property
    def _model_id(self) -> str:
        return self._pipeline.manifest.model_id

    def _check(self, n: int, seed: int, strategy: str, primitive: int | None, temperature: float) -> None:
        recipes.check_arguments(n, seed, strategy, primitive, temperature, self.mixtures[0].size)

    def _decode(self, wanted: Sequence[Recipe]) -> list[Completion]:
        batch = self._pipeline.backend.batch
        results: list[Completion] = []
        for start in range(0, len(wanted), batch):
            results += self._decode_batch(wanted[start : start + batch])
        return results

    def _stream(self, wanted: Sequence[Recipe], deadline_ms: float | None) -> Iterator[Completion]:
        start = time.perf_counter()
        for recipe in wanted:
            begin = time.perf_counter()
            yield from self._decode_batch([recipe])
            now = time.perf_counter()
            if deadline_ms is not None and (now - start) + (now - begin) > deadline_ms / 1000:
                return

    def _decode_batch(self, wanted: Sequence[Recipe]) -> list[Completion]:
        for recipe in wanted:
            if recipes.hole_count(recipe) != len(self._regions):
                raise BadToken(
                    f"a token for {recipes.hole_count(recipe)} holes",
                    f"{len(self._regions)}, as this scene has",
                    "use the same mask",
                )
        start = time.perf_counter()
        latents = [recipes.latents(recipe, self.mixtures) for recipe in wanted]
        squares = []
        for hole, region in enumerate(self._regions):
            z = np.stack([latent[hole].z for latent in latents])
            squares.append(self._pipeline.decode(region, z))
        elapsed = (time.perf_counter() - start) * 1000 / len(wanted)
        timings = Timings(self.encode_ms, elapsed)
        return [
            Completion(latents[i][0].primitive, timings, self, recipe, tuple(latents[i]), tuple(s[i] for s in squares))
            for i, recipe in enumerate(wanted)
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
    _latents: tuple[Latent, ...] = field(repr=False)
    _squares: tuple[U8, ...] = field(repr=False)

    @property
    def weight(self) -> float:
        """How likely its idea is, 0 to 1."""
        return float(np.exp(self._scene.mixtures[0].log_weights[self.primitive]))

    @property
    def log_density(self) -> float:
        """Log of weight times density, summed over all holes, to rank the results of one scene."""
        holes = zip(self._scene.mixtures, self._latents, strict=True)
        return sum(mixture.log_density(latent.primitive, latent.noise) for mixture, latent in holes)

    @property
    def log_prob(self) -> float:
        """Deprecated name of `log_density`."""
        warnings.warn("Completion.log_prob is now called log_density", DeprecationWarning, stacklevel=2)
        return self.log_density

    @cached_property
    def token(self) -> str:
        """Text that replays this result: `scene.replay(token)`, on any device."""
        return tokens.encode(self._recipe, self._scene._model_id, self._scene._settings)

    @cached_property
    def image(self) -> Any:
        """The completed photo, of the same kind and size as it was given (bytes are PNG). Composed on first access; yours to keep."""
        regions = self._scene._regions
        patches = [region.crop.patch(square) for region, square in zip(regions, self._squares, strict=True)]
        return self._scene._photo.compose(patches)

    def variations(
        self, n: int = DEFAULT_VARIATIONS, strength: float = DEFAULT_STRENGTH, seed: int | None = None
    ) -> list[Completion]:
        """`n` results like this one: the same primitive, its noise rotated by `strength` (0 = this one, 1 = any result of the primitive)."""
        seed = _seed(seed)
        recipes.check_arguments(n, seed, "categorical", None, 1.0, 1)
        recipes.check_number("strength", strength, MAX_STRENGTH)
        varied = [Variation(self._recipe, seed, index, f32(strength)) for index in range(n)]
        scene = self._scene
        tokens.encode(varied[0], scene._model_id, scene._settings)  # raises if a token would become too long
        return scene._decode(varied)


def _seed(seed: int | None) -> int:
    return int.from_bytes(os.urandom(8), "little") if seed is None else seed
