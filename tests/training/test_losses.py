"""Each loss against an independent statement of what it must be."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from training import losses
from training.backbone import Backbone
from training.config import DecodeMix, LossWeights
from training.discriminator import BackboneDiscriminator, Discriminator, PyramidDiscriminator
from training.layers import Gaussian
from training.model import Mixture, Picme, PicmeConfig
from training.step import DiscriminatorStep, Draws, GeneratorStep, categorical, chosen_primitive

TINY = PicmeConfig(image_size=32, widths=(8, 12), encoder_blocks=(1, 1), decoder_blocks=(1, 1), code=12, latent=8, primitives=3)  # fmt: skip


def random_mixture(batch: int = 5, k: int = 4, d: int = 7) -> tuple[Mixture, Gaussian]:
    g = torch.Generator().manual_seed(3)
    mixture = Mixture(
        torch.log_softmax(torch.randn(batch, k, generator=g), 1),
        torch.randn(batch, k, d, generator=g),
        torch.randn(batch, k, d, generator=g),
    )
    return mixture, Gaussian(torch.randn(batch, d, generator=g), torch.randn(batch, d, generator=g))


def test_back_max_loss_is_the_kl_of_the_best_primitive() -> None:
    mixture, target = random_mixture()
    truth = kl_divergence(
        Normal(mixture.means, mixture.log_scales.exp()), Normal(target.mean[:, None], target.log_scale.exp()[:, None])
    ).sum(-1)
    kl = losses.primitive_kl(mixture, target)
    torch.testing.assert_close(kl, truth)
    best = losses.best_primitive(kl)
    assert torch.equal(best, truth.argmin(1))
    torch.testing.assert_close(losses.back_max_loss(kl, best), truth.min(1).values.mean())


def test_back_max_loss_pulls_only_the_winner_unless_warm() -> None:
    mixture, target = random_mixture(1)
    for share, pulled in ((0.0, 1), (0.1, 4)):
        means = mixture.means.clone().requires_grad_()
        kl = losses.primitive_kl(Mixture(mixture.log_weights, means, mixture.log_scales), target)
        losses.back_max_loss(kl, losses.best_primitive(kl), share).backward()
        assert (means.grad.abs().sum((0, 2)) > 0).sum() == pulled


def test_the_handicap_is_for_likely_primitives() -> None:
    kl = torch.tensor([[10.0, 13.0, 30.0]])
    log_weights = torch.tensor([[0.7, 0.2, 0.1]]).log()
    wins = [int(losses.best_primitive(kl, log_weights, handicap)) for handicap in (0.0, 2.0, 3.0)]
    assert wins == [0, 0, 1], "log(0.7 / 0.2) is 1.25: 2 times that is less than 3 nats, 3 times is more"
    batch = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]).log()
    assert int(losses.best_primitive(kl, batch, 3.0)[0]) == 0, "on average over the batch the second is no rarer"
    never = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    assert int(losses.best_primitive(kl, never, 1.0)) == 1, "a dead one gets the next chance, the nearest first"


def test_frequency_loss_converges_to_how_often_each_primitive_wins() -> None:
    g = torch.Generator().manual_seed(0)
    truth = torch.tensor([0.6, 0.3, 0.1, 0.0])
    logits = torch.zeros(1, 4, requires_grad=True)
    optimizer = torch.optim.Adam([logits], 0.02)
    for _ in range(1500):
        best = torch.multinomial(truth, 64, replacement=True, generator=g)
        loss = losses.frequency_loss(torch.log_softmax(logits, 1).expand(64, -1), best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(torch.softmax(logits[0], 0).detach(), truth, rtol=0, atol=0.04)


def test_the_posterior_follows_with_a_share_of_the_gradient_and_the_mixture_with_all() -> None:
    torch.manual_seed(0)
    gradients = {}
    for share in (1.0, 0.25):
        mixture = Mixture(torch.zeros(2, 3), torch.rand(2, 3, 4, requires_grad=True), torch.zeros(2, 3, 4))
        target = Gaussian(torch.full((2, 4), 0.3, requires_grad=True), torch.zeros(2, 4, requires_grad=True))
        losses.primitive_kl(mixture, losses.with_gradient_share(target, share)).sum().backward()
        gradients[share] = mixture.means.detach(), mixture.means.grad, target.mean.grad
    torch.testing.assert_close(
        gradients[0.25][1], gradients[0.25][0] - 0.3
    )  # d KL / d mu_i = mu_i - mu_c at unit variance
    torch.testing.assert_close(gradients[1.0][2], (0.3 - gradients[1.0][0]).sum(1))
    torch.testing.assert_close(gradients[0.25][2], 0.25 * (0.3 - gradients[0.25][0]).sum(1))


def test_reconstruction_loss_leaves_the_sample_alone_inside_the_hole() -> None:
    image, mask = torch.zeros(1, 3, 4, 4), torch.zeros(1, 1, 4, 4)
    mask[..., :2, :] = 1
    inside = mask.expand_as(image)
    assert losses.reconstruction_loss(image, inside, image, mask) == 0
    assert losses.reconstruction_loss(image, 1 - inside, image, mask) == 0.5
    assert losses.reconstruction_loss(inside, image, image, mask) == 0.5
    assert losses.reconstruction_loss(inside, image, image, mask, hole_weight=3) == 0.75


def test_winner_loss_looks_only_into_the_hole_of_chosen_pictures() -> None:
    image, mask = torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4)
    mask[..., :1, :] = 1
    inside = mask.expand_as(image)
    assert losses.winner_loss(1 - inside, image, mask, torch.ones(2)) == 0
    assert losses.winner_loss(inside, image, mask, torch.tensor([1.0, 0.0])) == 0.5


def test_adversarial_losses_are_least_squares_where_weights_count() -> None:
    real, rebuilt, sampled = torch.tensor([[0.9, 5.0]]), torch.tensor([[0.2, 5.0]]), torch.tensor([[0.4, 5.0]])
    first = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(losses.adversarial_loss(rebuilt, sampled, real, first), torch.tensor(0.64 + 0.25))
    torch.testing.assert_close(losses.discriminator_loss(real, rebuilt, sampled, first), torch.tensor((0.01 + 0.1) / 2))


def test_only_scores_that_see_the_hole_count() -> None:
    discriminator, mask = PyramidDiscriminator(32), torch.zeros(2, 1, 32, 32)
    mask[:, :, :8, :8] = 1  # one of the 4x4 coarse cells, 16 of the 16x16 fine ones
    scores, _ = discriminator([torch.zeros(2, 3, 32, 32)], mask)
    weights = discriminator.weights(mask)
    assert weights.shape == scores.shape == (2, 16 * 16 + 4 * 4)
    torch.testing.assert_close(weights.sum(1), torch.ones(2))
    fine, coarse = weights[0, :256].reshape(16, 16), weights[0, 256:].reshape(4, 4)
    assert (fine > 0).sum() == 16
    assert (fine[:4, :4] > 0).all()
    assert coarse[0, 0] == 0.5


def test_elbo_is_zero_only_for_a_perfect_standard_code() -> None:
    image, noise = torch.rand(2, 3, 8, 8), 0.05
    rebuilt = torch.nn.functional.avg_pool2d(image, 2)
    standard = Gaussian(torch.zeros(2, 5), torch.zeros(2, 5))
    assert losses.elbo_loss(rebuilt, image, standard) == pytest.approx(0, abs=1e-6)
    shifted = Gaussian(torch.ones(2, 5), torch.zeros(2, 5))
    assert losses.elbo_loss(rebuilt, image, shifted) == pytest.approx(2.5 / rebuilt[0].numel(), rel=1e-4)
    assert losses.elbo_loss(rebuilt + 0.1, image, standard, noise) == pytest.approx(0.1 / noise, rel=1e-4)


def test_feature_loss_is_relative_and_limited_to_the_chosen() -> None:
    real = [torch.full((2, 3), 2.0)]
    assert losses.feature_loss([torch.full((2, 3), 3.0)], real) == 0.5
    assert losses.feature_loss([torch.full((2, 3), 3.0)], real, torch.tensor([1.0, 0.0])) == 0.25


def test_categorical_follows_the_weights() -> None:
    weights = torch.tensor([[0.5, 0.2, 0.3]])
    uniform = torch.linspace(0, 1, 10_001)[:-1]
    drawn = categorical(weights.log().expand(len(uniform), -1), uniform)
    torch.testing.assert_close(torch.bincount(drawn) / len(drawn), weights[0], rtol=0, atol=1e-3)


def test_shares_decide_which_primitive_is_decoded() -> None:
    """A tenth decodes the best one's mean, two tenths draw by weight, four tenths draw any, the rest samples the best one."""
    n = 10_000
    draws = Draws.of(0, 0, n, 1, 1)
    log_weights = torch.tensor([0.0, 0.25, 0.75, 0.0]).log().expand(n, -1)
    chosen = chosen_primitive(
        log_weights, torch.zeros(n, dtype=torch.long), draws, DecodeMix(winner_mean=0.1, by_weight=0.2, uniform=0.4)
    )
    assert (chosen[draws.kind < 0.1] == 0).all()
    shares = torch.bincount(chosen, minlength=4) / n
    expected = torch.tensor([0.1 + 0.1 + 0.3, 0.05 + 0.1, 0.15 + 0.1, 0.1])
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.015)


# Which parameters each loss is meant to train. The released code trains no parameter of the mixture at all.
MEANT = {
    "frequency": ["mixture_head.alpha", "encoder"],
    "back_max": ["mixture_head.mu", "mixture_head.sigma", "posterior_head", "encoder"],
    "elbo": ["context_head", "visible_decoder", "encoder"],
    "reconstruction": ["encoder", "decoder", "projections", "context_to_skip", "posterior_head", "mixture_head.mu"],
    "adversarial": ["encoder", "decoder", "mixture_head.mu", "mixture_head.sigma"],
    "winner": ["decoder", "mixture_head.mu", "encoder"],
    "best_sketch": ["decoder", "mixture_head.mu", "encoder"],
    "mean_spacing": ["mixture_head.mu", "encoder"],
    "features": ["decoder", "encoder"],
    "sample_layout": ["decoder", "mixture_head.mu", "mixture_head.sigma", "encoder"],
}


def discriminators() -> list[Discriminator]:
    return [PyramidDiscriminator(32), BackboneDiscriminator(32, Backbone())]


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("discriminator", discriminators(), ids=["pyramid", "backbone"])
@pytest.mark.parametrize("loss", MEANT)
def test_every_parameter_group_learns_from_its_loss(loss: str, discriminator: Discriminator, bfloat16: bool) -> None:
    torch.manual_seed(0)
    only = dict.fromkeys(("reconstruction", "adversarial", "frequency", "back_max", "elbo"), 0.0) | {loss: 1.0}
    weights, mix = LossWeights(**only), DecodeMix(winner_mean=0.5)
    model = Picme(TINY)
    # The weights head starts at zero, where no gradient passes below it: move it as the first step would.
    torch.nn.init.normal_(model.mixture_head.alpha.weight, std=0.1)
    image, mask = torch.rand(6, 3, 32, 32) * 2 - 1, torch.zeros(6, 1, 32, 32)
    mask[:, :, 8:24, 8:24] = 1
    draws = Draws.of(0, 0, 6, TINY.code, TINY.latent)
    result = GeneratorStep(model, weights, mix, bfloat16)(image, mask, draws, discriminator, 0)
    assert not any(each.requires_grad for each in result.inputs), (
        "the discriminator's step must not reach the generator"
    )
    result.total.backward()
    for group in MEANT[loss]:
        gradients = [p.grad for name, p in model.named_parameters() if name.startswith(group) and p.grad is not None]
        assert gradients, group
        assert all(torch.isfinite(g).all() for g in gradients), group
        assert sum(g.abs().sum() for g in gradients) > 0, group


def test_only_the_best_sketch_counts_and_only_in_the_hole() -> None:
    image, mask = torch.zeros(1, 3, 16, 16), torch.zeros(1, 1, 16, 16)
    mask[..., :8, :] = 1
    sketches = torch.stack([torch.full((1, 3, 4, 4), shade) for shade in (0.5, 0.2, -0.9)], 1)
    sketches[:, 1, :, 2:] = 7  # outside the hole
    sketches.requires_grad_()
    loss = losses.best_sketch_loss(sketches, image, mask)
    torch.testing.assert_close(loss, torch.tensor(0.2), atol=1e-4, rtol=0)
    loss.backward()
    assert (sketches.grad.abs().sum((0, 2, 3, 4)) > 0).tolist() == [False, True, False]
    torch.testing.assert_close(
        losses.best_sketch_loss(sketches, image, mask, 0.3), torch.tensor(0.7 * 0.2 + 0.3 * 1.6 / 3), atol=1e-3, rtol=0
    )


def test_means_that_look_alike_move_together_and_others_apart() -> None:
    mask = torch.ones(1, 1, 8, 8)
    means = torch.tensor([[[0.0, 0.0], [0.3, 0.3], [0.6, 0.6]]], requires_grad=True)
    sketches = torch.zeros(1, 3, 3, 8, 8)
    sketches[:, 2] = 4.0  # the third looks different, more than its mean is
    losses.mean_spacing_loss(means, sketches, mask, 0.3).backward()
    assert (means.grad[0, 1] > 0).all(), "towards the first, which looks the same"
    assert (means.grad[0, 2] < 0).all(), "away from both"
    exact = torch.tensor([[[0.0], [1.2], [-1.2]]])
    shades = torch.tensor([0.0, 4.0, -4.0]).reshape(1, 3, 1, 1, 1).expand(1, 3, 3, 8, 8)
    assert losses.mean_spacing_loss(exact, shades, mask, 0.3) < 1e-6


def test_the_frequency_loss_is_given_the_nearest_primitive_whatever_the_handicap() -> None:
    """alpha shall be how often equation 4 chooses a primitive; `win_handicap` changes only which one is pulled."""
    torch.manual_seed(0)
    model = Picme(TINY)
    image, mask = torch.rand(4, 3, 32, 32), torch.zeros(4, 1, 32, 32)
    mask[..., 8:24, 8:24] = 1
    draws = Draws.of(0, 0, 4, TINY.code, TINY.latent)
    torch.nn.init.normal_(model.mixture_head.alpha.bias, std=3.0)
    results = [
        GeneratorStep(model, LossWeights(adversarial=0, win_handicap=handicap))(
            image, mask, draws, discriminators()[0], 0
        )
        for handicap in (0.0, 50.0)
    ]
    assert not torch.equal(results[0].best, results[1].best)
    torch.testing.assert_close(results[0].parts["frequency"], results[1].parts["frequency"])


def inputs_of(discriminator: Discriminator, size: int = 32) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What it saw of two real and four black pictures, and the two masks."""
    pictures = torch.cat([torch.rand(2, 3, size, size) * 2 - 1, torch.zeros(4, 3, size, size)])
    return discriminator.inputs(pictures, torch.ones(6, 1, size, size)), torch.ones(2, 1, size, size)


@pytest.mark.parametrize("discriminator", discriminators(), ids=["pyramid", "backbone"])
def test_discriminator_learns_from_its_loss(discriminator: Discriminator) -> None:
    DiscriminatorStep(discriminator, 1.0)(*inputs_of(discriminator), 0).backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0
        for p in discriminator.parameters()
    )


def test_the_layout_is_what_the_coarsest_features_show() -> None:
    """Two views with features on two grids each: only the smaller grid counts."""
    real = [torch.ones(1, 2, grid, grid) for grid in (8, 4, 8, 4)]
    fake = [2 * real[0], real[1], 2 * real[2], 1.5 * real[3]]
    seen = losses.coarsest(fake)
    assert [feature.shape[-1] for feature in seen] == [4, 4]
    torch.testing.assert_close(losses.feature_loss(seen, losses.coarsest(real)), torch.tensor(0.25))


def test_the_gradient_penalty_is_the_squared_gradient_and_comes_every_eighth_step() -> None:
    image, weights = torch.rand(2, 3, 4, 4, requires_grad=True), torch.ones(2, 1)
    score = 3 * image.flatten(1).sum(1, keepdim=True)
    torch.testing.assert_close(losses.gradient_penalty(score, [image], weights), torch.tensor(9.0 * 48))

    discriminator = PyramidDiscriminator(32)
    batch = inputs_of(discriminator)
    free, bound = DiscriminatorStep(discriminator, 0.0), DiscriminatorStep(discriminator, 1.0)
    assert bound(*batch, 8) > free(*batch, 8)
    assert bound(*batch, 9) == free(*batch, 9)


def fit_two_modes(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Train a whole model on a toy data set: the same visible part, a hole that is light (70 %) or dark (30 %).

    Returns the weights and the brightness that each primitive's mean decodes to inside the hole."""
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(2)
    config = PicmeConfig(image_size=16, widths=(8, 12), encoder_blocks=(1, 1), decoder_blocks=(1, 1), code=8, latent=4, primitives=k)  # fmt: skip
    weights = LossWeights(reconstruction=20, adversarial=0, back_max=0.05, elbo=0.1, winner=5, warm_share=0.1, warm_images=1600)  # fmt: skip
    model, discriminator = Picme(config), PyramidDiscriminator(16)
    step = GeneratorStep(model, weights, DecodeMix(winner_mean=0.5))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, betas=(0.5, 0.99))
    mask = torch.zeros(16, 1, 16, 16)
    mask[:, :, 4:12, 4:12] = 1
    for number in range(300):
        light = (torch.rand(16, generator=g) < 0.7).float() * 1.6 - 0.8
        image = light[:, None, None, None] * mask.expand(-1, 3, -1, -1)
        draws = Draws.of(0, number, 16, config.code, config.latent)
        optimizer.zero_grad()
        step(image, mask, draws, discriminator, number * 16).total.backward()
        optimizer.step()
    with torch.no_grad():
        encoded = model.encode(torch.zeros(1, 3, 16, 16), mask[:1])
        mixture = model.mixture(encoded.code)
        pictures = model.decode(encoded.skips, mixture.means[0])
    return mixture.log_weights[0].exp(), pictures[:, :, 5:11, 5:11].mean((1, 2, 3))


def test_two_modes_and_their_odds_are_recovered() -> None:
    weights, brightness = fit_two_modes(2)
    order = brightness.argsort(descending=True)
    torch.testing.assert_close(weights[order], torch.tensor([0.7, 0.3]), rtol=0, atol=0.1)
    torch.testing.assert_close(brightness[order], torch.tensor([0.8, -0.8]), rtol=0, atol=0.15)


def test_one_gaussian_cannot_hold_two_modes() -> None:
    weights, brightness = fit_two_modes(1)
    assert weights.tolist() == [1.0]
    assert abs(brightness[0] + 0.8) > 0.5, "its most likely fill never is the rarer mode"
