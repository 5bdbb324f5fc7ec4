"""The numbers of the evaluation: scores of one picture's results, Frechet distances between sets, bootstrap intervals.

docs/train/evaluation.md defines each. PSNR is torchmetrics'; pictures are float [.., 3, h, w] in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio

from evaluation.lpips import Activations, Lpips, inside, whole

MAX_PSNR = 100.0  # dB; the PSNR of equal pictures is infinite, and one of them would make every mean infinite
MEAN_RESAMPLES = 1000
FRECHET_RESAMPLES = 30  # enough for a standard deviation; each one needs n distances
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number with its 95 % interval, which is None with only one picture."""

    value: float
    low: float | None
    high: float | None


def psnr(results: Tensor, truth: Tensor) -> Tensor:
    """Decibels [n] over all pixels and channels."""
    truth = truth.expand_as(results)
    decibels: Tensor = peak_signal_noise_ratio(results, truth, data_range=1.0, reduction="none", dim=(1, 2, 3))
    return decibels.clamp_max(MAX_PSNR)


def ssim(results: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity [n]: Gaussian window of 11, sigma 1.5, averaged over channels and positions.

    The same numbers as those of torchmetrics, but as matrix products in float64: its convolutions are ten times slower in float64, and in
    float32 the variance of flat areas is rounding noise as large as SSIM's own constants.
    """
    a, b = results.double(), truth.expand_as(results).double()
    rows, columns = window(a.shape[2]), window(a.shape[3])

    def blur(x: Tensor) -> Tensor:
        return rows @ x @ columns.T

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b, cov = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2, blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    numerator = (2 * mean_a * mean_b + c1) * (2 * cov + c2)
    return (numerator / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean((1, 2, 3))


@lru_cache
def window(length: int, reach: int = 5, sigma: float = 1.5) -> Tensor:
    """A matrix [length, length] that computes the Gaussian mean around each position; the picture is mirrored at its edges."""
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    where = (torch.arange(length)[:, None] + offsets).abs()
    where = torch.minimum(where, 2 * (length - 1) - where)
    return torch.zeros(length, length).double().scatter_add_(1, where, (weights / weights.sum()).expand(length, -1))


def mae(results: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute error [n] over all pixels and channels."""
    return (results - truth).abs().mean((1, 2, 3))


PIXEL_METRICS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "psnr": (psnr, True),  # True: more is better
    "ssim": (ssim, True),
    "mae": (mae, False),
}


def pixel_scores(results: Tensor, truth: Tensor) -> dict[str, float]:
    """Of n results [n, 3, h, w] against the truth [3, h, w]: the mean of the samples, the best one, and their mean picture."""
    scores = {}
    for name, (metric, more) in PIXEL_METRICS.items():
        each = metric(results, truth[None])
        scores[name] = float(each.mean())
        scores[f"{name}_best"] = float(each.max() if more else each.min())
        scores[f"{name}_of_mean"] = float(metric(results.mean(0, keepdim=True), truth[None]))
    return scores


def perceptual_scores(
    network: Lpips, results: Activations, truth: Activations, hole: Tensor
) -> dict[str, float | None]:
    """LPIPS to the truth (mean and best of n), and diversity: between pairs of results, whole picture and hole only.

    `hole` [h, w] is 1 inside. One result has no pairs: None.
    """
    each = whole(network.layers(results, truth))
    scores: dict[str, float | None] = {"lpips": float(each.mean()), "lpips_best": float(each.min())}
    pairs = list(combinations(range(len(results.features)), 2))
    if not pairs:
        return scores | {"diversity": None, "diversity_hole": None}
    first, second = zip(*pairs, strict=True)
    layers = network.layers(results.pick(first), results.pick(second))
    return scores | {"diversity": float(whole(layers).mean()), "diversity_hole": float(inside(layers, hole).mean())}


def frechet(a: Tensor, b: Tensor) -> float:
    """Frechet distance between Gaussians fitted to two sets of features [n, d]: |m_a - m_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2)).

    With S = R'R the last trace is the nuclear norm of R_a R_b', which needs no matrix root and is exact for few pictures, too.
    """
    a, b = a.double(), b.double()
    mean_a, mean_b = a.mean(0), b.mean(0)
    root_a, root_b = ((x - m) / (len(x) - 1) ** 0.5 for x, m in ((a, mean_a), (b, mean_b)))
    root_a, root_b = (
        torch.linalg.qr(root, mode="r").R if len(root) > root.shape[1] else root for root in (root_a, root_b)
    )
    cross = torch.linalg.svdvals(root_a @ root_b.T).sum()
    distance = (mean_a - mean_b).square().sum() + root_a.square().sum() + root_b.square().sum() - 2 * cross
    return max(0.0, float(distance))


def frechet_to_truth(results: Tensor, truth: Tensor) -> float:
    """Mean over j of the distance between the j-th results and the truths; results [n, pictures, d], truth [pictures, d].

    All sets have the size of the set of truths, whatever n is, because a Frechet distance depends on the size of its sets.
    """
    return float(np.mean([frechet(part, truth) for part in results]))


def frechet_between(results: Tensor) -> float:
    """Our interpretation of DIV-FID: the mean distance between the sets of first, second, ... results."""
    return float(np.mean([frechet(a, b) for a, b in combinations(results, 2)]))


def bootstrap_mean(values: np.ndarray, seed: int = 0) -> Estimate:
    """The mean over pictures with its percentile interval."""
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, None, None)
    chosen = np.random.default_rng(seed).integers(len(values), size=(MEAN_RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[chosen].mean(1), [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def bootstrap_frechet(distance: Callable[[Tensor], float], pictures: int, seed: int = 0) -> Estimate:
    """`distance` of all pictures, with 1.96 standard deviations of resampled sets to each side.

    Percentiles would mislead: a resampled set repeats pictures, which alone increases a Frechet distance.
    """
    value = distance(torch.arange(pictures))
    random = np.random.default_rng(seed)
    drawn = [distance(torch.from_numpy(random.integers(pictures, size=pictures))) for _ in range(FRECHET_RESAMPLES)]
    reach = 1.96 * float(np.std(drawn, ddof=1))
    return Estimate(value, value - reach, value + reach)
