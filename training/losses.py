"""The losses of PICME, one function each, named as in the paper ("Pluralistic Image Completion with Probabilistic
Mixture-of-Experts", 2022).

    L_FINAL = L_GMM + L_ELBO + L_C        L_GMM = L_F + L_BM        L_C = L_R + lambda_A L_A

Every loss is a mean over the batch. `log_scale` is the logarithm of a standard deviation throughout. Where the printed formula or
the released code can't be trained with, the docstring says what is done instead (docs/train/method.md collects these errata).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.layers import Gaussian
from training.model import Mixture


def gaussian_kl(q: Gaussian, p: Gaussian) -> Tensor:
    """KL[q || p] of diagonal Gaussians in nats, summed over the last dimension.

    1/2 sum_d [ log(s_p/s_q) + s_q/s_p + (mu_q - mu_p)^2/s_p - 1 ] with variances s.
    """
    log_ratio = q.log_scale - p.log_scale
    distance = (q.mean - p.mean) * torch.exp(-p.log_scale)
    return (0.5 * (torch.exp(2 * log_ratio) + distance.square() - 1) - log_ratio).sum(-1)


def primitive_kl(mixture: Mixture, target: Gaussian) -> Tensor:
    """KL[N(mu_i, Sigma_i) || N(mu_c, Sigma_c)] of each primitive i: [b, k]."""
    spread = Gaussian(target.mean[:, None], target.log_scale[:, None])
    return gaussian_kl(Gaussian(mixture.means, mixture.log_scales), spread)


def with_gradient_share(target: Gaussian, share: float) -> Gaussian:
    """The same Gaussian, through which only `share` of a gradient passes.

    Not in the paper: L_BM pulls mixture and posterior towards each other. The mixture follows with the whole gradient; a
    posterior that followed as fast would end up carrying no information beyond the visible part.
    """
    return Gaussian(*(share * x + (1 - share) * x.detach() for x in target))


MIN_LOG_WEIGHT = -7.0  # primitives less likely than this get no larger advantage in `best_primitive`


def best_primitive(kl: Tensor, log_weights: Tensor | None = None, handicap: float = 0.0) -> Tensor:
    """j = argmin_i KL (equation 4): [b], without gradient.

    The released code compares exp(log sigma_i) with a sample of z_c instead; the paper's text asks for the KL. `handicap` is not in
    the paper: a primitive that is e times likelier than another, on average over the batch, must be nearer by that many nats. Without it,
    a primitive that wins improves and therefore wins more often, until most results come from one primitive. Weights are averaged over the
    batch because a single small hole may well have only one answer.
    """
    if log_weights is not None and handicap:
        kl = kl + handicap * log_weights.exp().mean(0).log().clamp_min(MIN_LOG_WEIGHT)
    return kl.detach().argmin(1)


def frequency_loss(log_weights: Tensor, best: Tensor) -> Tensor:
    """L_F = || onehot(j) - alpha ||^2 (equation 4). At its minimum alpha_i is the frequency with which primitive i is the best."""
    return (F.one_hot(best, log_weights.shape[1]) - log_weights.exp()).square().sum(1).mean()


def back_max_loss(kl: Tensor, best: Tensor, share: float = 0.0) -> Tensor:
    """L_BM = KL of the best primitive only (proposition 1), which keeps the primitives distinct.

    The paper prints the quadratic term with a minus sign, which is unbounded below; the KL has a plus. `share` of the loss is
    spread over all primitives: winner-takes-all starves some of them early, so `warm_share` starts above 0 and decays to 0.
    """
    winner = kl.gather(1, best[:, None]).mean()
    return winner if share == 0 else (1 - share) * winner + share * kl.mean()


def elbo_loss(rebuilt: Tensor, image_m: Tensor, code: Gaussian, noise: float = 1.0) -> Tensor:
    """-L_ELBO of the visible part: the error of I_m, including the zeros in the hole, reconstructed from z_m alone, plus
    KL[q(z_m | I_m) || N(0, 1)], both per pixel value.

    I_m has a Laplace distribution around `rebuilt` with the scale `noise`: the smaller the scale, the more information z_m must carry.
    `rebuilt` may be smaller than the picture: I_m is averaged down to its size. The released code has this term commented out.
    """
    misfit = (rebuilt - shrunk(image_m, rebuilt.shape[-1])).abs().flatten(1).mean(1)
    standard = Gaussian(torch.zeros_like(code.mean), torch.zeros_like(code.mean))
    return (misfit / noise + gaussian_kl(code, standard) / rebuilt[0].numel()).mean()


def reconstruction_loss(
    rebuilt: Tensor, sampled: Tensor, image: Tensor, mask: Tensor, hole_weight: float = 1.0
) -> Tensor:
    """L_R = E|I_hat_o - I_o| + E|I_hat_m^(j) - I_m| (equation 6).

    The sampled picture is compared at visible pixels only: comparing it inside the hole would remove diversity. In the
    reconstruction, a pixel in the hole counts `hole_weight` times as much as a visible one.
    """
    weight = 1 + (hole_weight - 1) * mask
    weight = weight / weight.mean((1, 2, 3), keepdim=True)
    return (weight * (rebuilt - image).abs()).mean() + ((1 - mask) * (sampled - image).abs()).mean()


def winner_loss(sampled: Tensor, image: Tensor, mask: Tensor, chosen: Tensor) -> Tensor:
    """Not in the paper: L1 inside the hole of the decoded *mean* of the best primitive (multiple-choice learning).

    It trains the decoder on the mixture's own outputs. Only the winner is pulled, so the primitives stay apart; noisy samples
    and other primitives are unaffected. `chosen` [b] is 1 where the picture was decoded from the winner's mean.
    """
    chosen = chosen[:, None, None, None]
    area = (mask.mean((1, 2, 3), keepdim=True)).clamp_min(1e-3)
    return (chosen * mask * (sampled - image).abs() / area).mean()


def adversarial_loss(score_rebuilt: Tensor, score_sampled: Tensor, score_real: Tensor, weights: Tensor) -> Tensor:
    """L_A = E(D(I_hat_o) - 1)^2 + E(D(I_hat_o^(j)) - D(I_o))^2 (equation 7); D(I_o) carries no gradient.

    `weights` [b, cells] sum to 1 for each picture (not in the paper: only scores that cover the hole count).
    """
    misses = (score_rebuilt - 1).square() + (score_sampled - score_real.detach()).square()
    return (weights * misses).sum(1).mean()


def discriminator_loss(score_real: Tensor, score_rebuilt: Tensor, score_sampled: Tensor, weights: Tensor) -> Tensor:
    """Least-squares GAN: real towards 1, both kinds of fake towards 0, weighted by `weights` [b, cells]."""
    fake = (score_rebuilt.square() + score_sampled.square()) / 2
    return (weights * ((score_real - 1).square() + fake) / 2).sum(1).mean()


def gradient_penalty(score_real: Tensor, inputs: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Not in the paper: squared gradient of the discriminator's score at real pictures (R1), which keeps it from outpacing the
    generator. `score_real` must have been computed from the first rows of `inputs`, which must require a gradient."""
    gradients = torch.autograd.grad((weights * score_real).sum(), inputs, create_graph=True)
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum() / len(score_real)


def feature_loss(fake: Sequence[Tensor], real: Sequence[Tensor], chosen: Tensor | None = None) -> Tensor:
    """Not in the paper: a perceptual distance, the L1 between the discriminator's features of a picture and of the truth, relative
    to the magnitude of the truth's features. `chosen` [b] is 1 for the pictures that count."""
    total = fake[0].new_zeros(())
    real = [truth.detach() for truth in real]
    for mine, truth in zip(fake, real, strict=True):
        each = (mine - truth).abs().flatten(1).mean(1) / truth.abs().flatten(1).mean(1).clamp_min(1e-6)
        total = total + (each if chosen is None else chosen * each).mean()
    return total / len(fake)


def coarsest(features: Sequence[Tensor]) -> list[Tensor]:
    """The feature maps on the smallest grid: they tell what is where, not what it looks like in detail."""
    grid = min(feature.shape[-1] for feature in features)
    return [feature for feature in features if feature.shape[-1] == grid]


def best_sketch_loss(sketches: Tensor, image: Tensor, mask: Tensor, share: float = 0.0) -> Tensor:
    """Not in the paper: L1 in the hole of the best of k sketches [b, k, 3, s, s] (multiple-choice learning over *all* primitives).

    L_BM compares latents, in which six distant means may decode to the same picture; here the means must decode to different
    pictures for one of them to be near the truth. `share` of the loss is spread over all primitives, as in `back_max_loss`.
    """
    truth, hole = shrunk(image, sketches.shape[-1]), shrunk(mask, sketches.shape[-1])
    area = (3 * hole.sum((1, 2, 3)) + 1e-3)[:, None]
    errors = (hole[:, None] * (sketches - truth[:, None]).abs()).sum((2, 3, 4)) / area
    return (1 - share) * errors.min(1).values.mean() + share * errors.mean()


def mean_spacing_loss(means: Tensor, sketches: Tensor, mask: Tensor, unit: float) -> Tensor:
    """Not in the paper: distances between means [b, k, d] match the distances between their sketches, in units of `unit`.

    Primitives whose sketches look alike in this hole then have nearly the same mean, so the distances between means tell how many
    different answers there are. The sketches carry no gradient: only the means move.
    """
    hole = shrunk(mask, sketches.shape[-1])[:, None]
    first, second = torch.triu_indices(means.shape[1], means.shape[1], 1)
    sketch_distance = (hole * (sketches[:, first] - sketches[:, second])).square().mean((2, 3, 4)).sqrt().detach()
    mean_distance = ((means[:, first] - means[:, second]).square().mean(2) + 1e-10).sqrt()
    return (mean_distance / unit - sketch_distance).square().mean()


def shrunk(picture: Tensor, side: int) -> Tensor:
    """A picture averaged down to `side` pixels."""
    return F.avg_pool2d(picture, picture.shape[-1] // side)
