"""The mixture of one hole: weights, means and scales of its primitives, and the mathematics on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from picme_sdk.bundle.manifest import Ambiguity
from picme_sdk.errors import NumericalError
from picme_sdk.mixture.philox import F32

F64 = NDArray[np.float64]

MAX_LOG_SCALE = 50.0  # beyond this a sample would not fit float32
DUPLICATE_DISTANCE = 0.01  # primitives closer than this count as one idea, see `Mixture.distance`


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
        """From the mixture graph's outputs (batch 1). Weights are normalised; -inf is a primitive that is never drawn."""
        logits = log_weights[0].astype(np.float64)
        top = logits.max()
        usable = (
            np.isfinite(top)
            and np.isfinite(means).all()
            and not np.isnan(log_scales).any()
            and log_scales.max() < MAX_LOG_SCALE
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
        present = weights > 0  # a primitive that is never drawn adds nothing
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
        chosen = np.searchsorted(edges, np.asarray(uniforms) * edges[-1], side="right")
        return [int(i) for i in np.minimum(chosen, self.size - 1)]

    def log_density(self, primitive: int, noise: F64) -> float:
        """log alpha_i + log N(z; mu_i, sigma_i) for z = mu_i + sigma_i * noise."""
        return float(self.log_weights[primitive] - self._log_volumes[primitive] - 0.5 * (noise @ noise))

    @cached_property
    def _log_volumes(self) -> F64:
        """Log of each primitive's normalising constant."""
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
            (later if any(self.distance(i, j) < DUPLICATE_DISTANCE for j in first) else first).append(i)
        return first + later
