"""Every number against a closed form."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchmetrics.functional.image import structural_similarity_index_measure
from torchmetrics.image.fid import FrechetInceptionDistance

from evaluation import metrics
from evaluation.lpips import Lpips


def picture(value: float) -> Tensor:
    return torch.full((3, 32, 32), value)


def test_psnr_of_a_constant_error_is_known() -> None:
    results = torch.stack([picture(0.6), picture(0.51), picture(0.5)])
    assert metrics.psnr(results, picture(0.5)[None]).tolist() == pytest.approx([20, 40, metrics.MAX_PSNR], abs=1e-3)


def test_ssim_of_flat_pictures_is_known() -> None:
    a, b, c1 = 0.2, 0.6, 0.01**2
    expected = (2 * a * b + c1) / (a * a + b * b + c1)
    found = metrics.ssim(torch.stack([picture(a), picture(b)]), picture(b)[None])
    assert found.tolist() == pytest.approx([expected, 1], abs=1e-6)


def test_ssim_agrees_with_torchmetrics() -> None:
    random = torch.Generator().manual_seed(5)
    a, b = (torch.rand(2, 3, 40, 52, generator=random).double() for _ in range(2))
    theirs = structural_similarity_index_measure(a, b, data_range=1.0, reduction="none")
    assert metrics.ssim(a, b).tolist() == pytest.approx(theirs.tolist(), abs=1e-9)


def test_ssim_of_one_result_is_one_number() -> None:
    assert metrics.ssim(picture(0.2)[None], picture(0.3)[None]).shape == (1,)


def test_mean_best_and_mean_picture_are_told_apart() -> None:
    truth = picture(0.5)
    scores = metrics.pixel_scores(torch.stack([picture(0.4), picture(0.6), picture(0.8)]), truth)
    assert scores["mae"] == pytest.approx((0.1 + 0.1 + 0.3) / 3)
    assert scores["mae_best"] == pytest.approx(0.1)
    assert scores["mae_of_mean"] == pytest.approx(0.1)
    assert scores["psnr"] == pytest.approx((20 + 20 - 20 * np.log10(0.3)) / 3, abs=1e-3)
    assert scores["psnr_best"] == pytest.approx(20, abs=1e-3)
    assert scores["psnr_of_mean"] == pytest.approx(20, abs=1e-3)
    cancelled = metrics.pixel_scores(torch.stack([picture(0.4), picture(0.6)]), truth)
    assert cancelled["psnr_of_mean"] > 90
    assert cancelled["psnr_best"] == pytest.approx(20, abs=1e-3)


def test_best_is_the_best_of_each_metric() -> None:
    random = torch.Generator().manual_seed(0)
    results, truth = torch.rand(4, 3, 32, 32, generator=random), torch.rand(3, 32, 32, generator=random)
    scores = metrics.pixel_scores(results, truth)
    assert scores["psnr_best"] >= scores["psnr"]
    assert scores["ssim_best"] >= scores["ssim"]
    assert scores["mae_best"] <= scores["mae"]


def test_diversity_is_over_pairs_of_results() -> None:
    torch.manual_seed(0)
    network = Lpips()
    for number in range(5):
        getattr(network, f"lin{number}").fill_(1.0)
    a, b, hole = torch.rand(3, 32, 32), torch.rand(3, 32, 32), torch.zeros(32, 32)
    hole[8:24, 8:24] = 1
    truth = network.embed(a[None])
    scores = metrics.perceptual_scores(network, network.embed(torch.stack([a, a, b])), truth, hole)
    apart = float(network(a[None], b[None]))
    assert scores["lpips"] == pytest.approx(apart / 3, rel=1e-4)
    assert scores["lpips_best"] == pytest.approx(0, abs=1e-6)
    assert scores["diversity"] == pytest.approx(2 * apart / 3, rel=1e-4)  # of three pairs one is equal
    one = metrics.perceptual_scores(network, network.embed(b[None]), truth, hole)
    assert one["diversity"] is None
    assert one["diversity_hole"] is None


@pytest.mark.parametrize("pictures", [5, 200], ids=["fewer than dimensions", "more"])
def test_frechet_of_a_scaled_and_shifted_set_is_known(pictures: int) -> None:
    features = torch.randn(pictures, 12, generator=torch.Generator().manual_seed(1)).double()
    shift, scale = torch.arange(12) / 10, 2.5
    moved = features * scale + shift
    expected = (features.mean(0) * (scale - 1) + shift).square().sum() + (scale - 1) ** 2 * features.var(0).sum()
    assert metrics.frechet(features, moved) == pytest.approx(float(expected), rel=1e-6)
    assert metrics.frechet(moved, features) == pytest.approx(float(expected), rel=1e-6)
    assert metrics.frechet(features, features) == pytest.approx(0, abs=1e-9)


def test_frechet_agrees_with_torchmetrics() -> None:
    class AsGiven(nn.Module):
        num_features = 6

        def forward(self, x: Tensor) -> Tensor:
            return x

    random = torch.Generator().manual_seed(2)
    a, b = (torch.randn(300, 6, generator=random) @ torch.randn(6, 6, generator=random) for _ in range(2))
    theirs = FrechetInceptionDistance(feature=AsGiven())
    theirs.update(a, real=True)
    theirs.update(b, real=False)
    assert metrics.frechet(a, b) == pytest.approx(float(theirs.compute()), rel=1e-3)


def test_frechet_sets_are_those_of_first_second_results() -> None:
    first = torch.randn(50, 4, generator=torch.Generator().manual_seed(3)).double()
    results = torch.stack([first, first + 1, first + 3])  # shifts of all four dimensions by 1, 2 and 3
    assert metrics.frechet_between(results) == pytest.approx((4 * 1 + 4 * 9 + 4 * 4) / 3, rel=1e-6)
    assert metrics.frechet_to_truth(results, first) == pytest.approx((0 + 4 * 1 + 4 * 9) / 3, rel=1e-6)


def test_interval_of_a_mean_is_the_textbook_one() -> None:
    values = np.random.default_rng(0).normal(5, 2, 400)
    mean, low, high = metrics.bootstrap_mean(values)
    assert mean == pytest.approx(values.mean())
    assert low is not None
    assert high is not None
    assert mean - low == pytest.approx(1.96 * values.std() / 20, rel=0.15)
    assert high - mean == pytest.approx(1.96 * values.std() / 20, rel=0.15)


def test_one_picture_has_no_interval() -> None:
    assert metrics.bootstrap_mean(np.array([3.0])) == (3.0, None, None)


def test_frechet_interval_is_that_of_resampled_pictures() -> None:
    values = torch.randn(100, 1, generator=torch.Generator().manual_seed(4))
    value, low, high = metrics.bootstrap_frechet(lambda chosen: float(values[chosen].mean()), 100)
    assert value == pytest.approx(float(values.mean()))
    assert low is not None
    assert high is not None
    assert high - value == pytest.approx(value - low)
    assert high - value == pytest.approx(1.96 * float(values.std()) / 10, rel=0.4)
