"""Categorical primitive sampling: counter-based random numbers, the mixture's mathematics, and the choice of primitives.

Everything here is a pure function, so the same (seed, result, hole) gives the same numbers in any order, thread, process and language. The C++
twin passes the same vectors (tests/vectors). Random bits are Philox 4x32-10 with

    key     = seed (low word, high word)
    counter = (block, purpose, result, hole)

Normals are Box-Muller in float64, rounded to float32: two libraries differ by one unit in the last place at most.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from picme_sdk.contract import MAX_RESULTS, MAX_TEMPERATURE, STRATEGIES
from picme_sdk.errors import BadArgument, NumericalError
from picme_sdk.manifest import Ambiguity

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

CHOICE, NOISE, VARIATION = 0, 1, 2  # purposes: streams that never overlap
WIDEST = 50.0  # log-scale beyond which a sample would not fit float32
NEAR = 0.01  # primitives closer than this are one idea, see `distance`

_FACTORS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32) * np.arange(10, dtype=np.uint32)[:, None]  # wraps, as it shall
_LITTLE_END = 1 if sys.byteorder == "little" else -1


def philox(counter: NDArray[np.uint64], seed: int) -> NDArray[np.uint32]:
    """Philox 4x32-10 (Salmon et al., 2011). `counter` [4, ...] holds 32-bit words in uint64; so many words come back."""
    lanes = (2, *(1 for _ in counter.shape[1:]))
    seed = int(seed)  # numpy's own integers do not hold 32 bits each
    keys = (np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32) + _STEPS).reshape(10, *lanes)
    factors = _FACTORS.reshape(lanes)
    # The words that are multiplied, the others, and room for products: two arrays take turns, since the low half of a product is used a round later.
    state = np.empty((3, 2, *counter.shape[1:]), np.uint64)
    state[0], state[1] = counter[0::2], counter[1::2]
    halves = state.view(np.uint32).reshape(*state.shape, 2)[..., ::_LITTLE_END]
    crossed = halves[:, ::-1]  # a lane's product goes to the other lane
    word, other = halves[0, ..., 0], halves[1, ..., 0]
    turns = [(state[i], crossed[i, ..., 0], crossed[i, ..., 1]) for i in (2, 1)]
    for turn, key in enumerate(keys):
        products, low, high = turns[turn % 2]
        np.multiply(state[0], factors, out=products)
        np.bitwise_xor(high, other, out=word)
        np.bitwise_xor(word, key, out=word)
        other = low
    return np.stack([word, other], 1).reshape(counter.shape)


_GROUP = 8  # results whose numbers are made together: neighbours are asked for next


@lru_cache(maxsize=64)
def _numbers(seed: int, purpose: int, group: int, hole: int, count: int) -> tuple[list[float], F32]:
    """Of each result of a group: the number that chooses a primitive, and `count` normals for a purpose. One pass makes both,
    since a pass costs the same for few numbers as for many."""
    blocks = (count + 3) // 4
    counter = np.empty((4, _GROUP, blocks + 1), np.uint64)
    counter[0, :, :blocks] = np.arange(blocks, dtype=np.uint64)
    counter[1, :, :blocks] = purpose
    counter[0, :, blocks], counter[1, :, blocks] = 0, CHOICE
    counter[2] = np.arange(group * _GROUP, (group + 1) * _GROUP, dtype=np.uint64)[:, None]
    counter[3] = hole
    words = philox(counter, seed)
    first, second = words[:2, :, blocks].tolist()
    choices = [((a >> 5) * 67108864 + (b >> 6)) / 9007199254740992 for a, b in zip(first, second, strict=True)]
    return choices, _box_muller(words[:, :, :blocks])[:, :count]


def _box_muller(words: NDArray[np.uint32]) -> F32:
    """Words [4, result, block] -> normals [result, 4 * block], read-only: each block gives two pairs."""
    radius = np.sqrt(-2.0 * np.log((words[0::2] + 1.0) * 2.0**-32))
    angle = words[1::2] * (2.0 * np.pi * 2.0**-32)
    made = np.empty((*words.shape[1:], 2, 2), np.float32)
    made[..., 0] = (radius * np.cos(angle)).transpose(1, 2, 0)
    made[..., 1] = (radius * np.sin(angle)).transpose(1, 2, 0)
    made.setflags(write=False)
    return made.reshape(len(made), -1)


def uniform(seed: int, result: int, hole: int = 0, count: int = 0) -> float:
    """The number in [0, 1), 53 bits fine, that chooses a primitive. `count` normals of this result will be asked for next."""
    return _numbers(seed, NOISE, result // _GROUP, hole, count)[0][result % _GROUP]


def normals(seed: int, result: int, count: int, hole: int = 0, purpose: int = NOISE) -> F32:
    """`count` standard normals, read-only."""
    row: F32 = _numbers(seed, purpose, result // _GROUP, hole, count)[1][result % _GROUP]
    return row


@dataclass(frozen=True)
class Mixture:
    """q(z | photo) of one hole: log_weights [k], means and log_scales [k, d] in float64; a scale is a standard deviation.
    `calibration` is the bundle's, for `ambiguity`."""

    log_weights: F64
    means: F64
    log_scales: F64
    calibration: Ambiguity | None = None

    @classmethod
    def of(cls, log_weights: F32, means: F32, log_scales: F32, calibration: Ambiguity | None = None) -> Mixture:
        """From the mixture graph's outputs (batch 1). Weights are normalised; -inf is a primitive that never comes."""
        logits = log_weights[0].astype(np.float64)
        top = logits.max()
        usable = (
            np.isfinite(top)
            and np.isfinite(means).all()
            and not np.isnan(log_scales).any()
            and log_scales.max() < WIDEST
        )
        if not usable or np.isnan(logits).any():
            raise NumericalError(
                "a mixture with numbers that are not finite", "finite numbers", "use float32, or another bundle"
            )
        logits -= top
        normalised = logits - np.log(np.exp(logits).sum())
        return cls(normalised, means[0].astype(np.float64), log_scales[0].astype(np.float64), calibration)

    @cached_property
    def scales(self) -> F64:
        return np.exp(self.log_scales)

    @property
    def size(self) -> int:
        return len(self.log_weights)

    @property
    def weights(self) -> F64:
        return np.exp(self.log_weights)

    @property
    def ambiguity(self) -> float:
        """How many answers there are, 1 to k: exp(-sum_i a_i log sum_j S_ij a_j) with the calibrated similarities S, so that primitives
        which look alike count as one; without a calibration, exp(entropy of the weights)."""
        weights = self.weights
        present = weights > 0  # a primitive that never comes adds nothing
        if self.calibration is None:
            log_shares = self.log_weights[present]
        else:
            log_shares = np.log(self._similarity(self.calibration)[present] @ weights)
        return float(np.exp(-np.sum(weights[present] * log_shares)))

    def _similarity(self, calibration: Ambiguity) -> F64:
        """S [k, k]: 1 for primitives that look the same, 0 for those that have nothing in common."""
        gaps = (self.means[:, None] - self.means) ** 2
        if calibration.weights is not None:
            gaps *= np.array(calibration.weights)
        with np.errstate(over="ignore"):  # infinitely far apart is a similarity of 0
            similarity: F64 = np.exp(-((np.sqrt(gaps.sum(2)) / calibration.scale) ** calibration.power))
        return similarity

    def order(self) -> list[int]:
        """Primitives, heaviest first; equal ones by number."""
        return [int(i) for i in np.argsort(-self.log_weights, kind="stable")]

    def pick(self, uniforms: Sequence[float], temperature: float) -> list[int]:
        """i ~ Categorical(alpha ** (1 / temperature)) for each uniform number; temperature 0 takes the heaviest."""
        if temperature == 0:
            return [self.order()[0]] * len(uniforms)
        edges = np.cumsum(np.exp((self.log_weights - self.log_weights.max()) / temperature))
        found = np.searchsorted(edges, np.asarray(uniforms) * edges[-1], side="right")
        return [int(i) for i in np.minimum(found, self.size - 1)]

    def log_prob(self, primitive: int, noise: F64) -> float:
        """log alpha_i + log N(z; mu_i, sigma_i) for z = mu_i + sigma_i * noise."""
        return float(self.log_weights[primitive] - self._log_volumes[primitive] - 0.5 * (noise @ noise))

    @cached_property
    def _log_volumes(self) -> F64:
        """What normalises each primitive's density."""
        volumes: F64 = self.log_scales.sum(1) + 0.5 * self.log_scales.shape[1] * np.log(2 * np.pi)
        return volumes

    def distance(self, a: int, b: int) -> float:
        """How far apart two primitives are: mean over dimensions of (difference of means)^2 / (sum of variances)."""
        gap, spread = self.means[a] - self.means[b], self.scales[a] ** 2 + self.scales[b] ** 2
        return float(np.mean(gap * gap / np.maximum(spread, 1e-300)))

    def ideas(self) -> list[int]:
        """All primitives for the diverse strategy: heaviest first, near-duplicates of an earlier one last."""
        first: list[int] = []
        later: list[int] = []
        for i in self.order():
            (later if any(self.distance(i, j) < NEAR for j in first) else first).append(i)
        return first + later


@dataclass(frozen=True)
class Draw:
    """One result's recipe: a primitive for each hole, and the noise numbered (seed, index), scaled by temperature."""

    primitives: tuple[int, ...]
    seed: int
    index: int
    temperature: float


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
        columns.append(chosen)
    return [
        Draw(primitives, seed, index, temperature)
        for index, primitives in zip(indices, zip(*columns, strict=True), strict=True)
    ]


def _likely(mixtures: Sequence[Mixture], n: int, seed: int, primitive: int | None, temperature: float) -> list[Draw]:
    """The heaviest primitive's mean, then samples by falling log-probability."""
    top = tuple(mixture.order()[0] if primitive is None else primitive for mixture in mixtures)
    rest = draws(mixtures, n - 1, seed, "categorical", primitive, temperature, start=1)

    def log_prob(draw: Draw) -> float:
        dimensions = mixtures[0].means.shape[1]
        noises = (
            draw.temperature * normals(draw.seed, draw.index, dimensions, hole).astype(np.float64)
            for hole in range(len(mixtures))
        )
        return sum(m.log_prob(p, e) for m, p, e in zip(mixtures, draw.primitives, noises, strict=True))

    return [Draw(top, seed, 0, 0.0), *sorted(rest, key=log_prob, reverse=True)]


def check_arguments(
    n: int, seed: int, strategy: str, primitive: int | None, temperature: float, primitives: int
) -> None:
    """Raise `BadArgument` for a value that sampling can't have."""
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


def check_number(name: str, value: float, most: float) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.floating, np.integer))
        or not 0 <= value <= most
    ):
        raise BadArgument(f"{name}={value!r}", f"a number from 0 to {most:g}", f"choose another {name}")


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
