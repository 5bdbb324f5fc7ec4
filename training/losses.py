"""The losses of PICME, one function each, named as in the paper ("Pluralistic Image Completion with Probabilistic
Mixture-of-Experts", 2022).

    L_FINAL = L_GMM + L_ELBO + L_C        L_GMM = L_F + L_BM        L_C = L_R + lambda_A L_A

Every loss is a mean over the batch. `log_scale` is the logarithm of a standard deviation throughout. Where the printed paper or
the released code cannot train, the docstring says what is done instead (docs/train/method.md collects these errata).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import Gaussian, Mixture


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


def with_slower_gradient(target: Gaussian, share: float) -> Gaussian:
    """The same Gaussian, through which only `share` of a gradient passes.

    Not in the paper: L_BM pulls mixture and posterior towards each other. The mixture shall follow the posterior with the whole
    of it; the posterior, if it followed as fast, would come to carry nothing that the visible part does not tell.
    """
    return Gaussian(*(share * x + (1 - share) * x.detach() for x in target))


MIN_LOG_WEIGHT = -7.0  # below which `best_primitive` favours a primitive no further


def best_primitive(kl: Tensor, log_weights: Tensor | None = None, balance: float = 0.0) -> Tensor:
    """j = argmin_i KL (equation 4): [b], without gradient.

    The released code compares exp(log sigma_i) with a sample of z_c instead; the paper's text asks for the KL. `balance` is not in
    the paper: a primitive that is e times likelier than another, on average over the batch, must be nearer by that many nats. Without it, what
    wins gets better by it and wins more often, until most results are of one primitive. On average, because in a small hole one
    primitive may well be all there is to say.
    """
    if log_weights is not None and balance:
        kl = kl + balance * log_weights.exp().mean(0).log().clamp_min(MIN_LOG_WEIGHT)
    return kl.detach().argmin(1)


def frequency_loss(log_weights: Tensor, best: Tensor) -> Tensor:
    """L_F = || onehot(j) - alpha ||^2 (equation 4). Its minimum is alpha_i = how often primitive i is the best."""
    return (F.one_hot(best, log_weights.shape[1]) - log_weights.exp()).square().sum(1).mean()


def back_max_loss(kl: Tensor, best: Tensor, share: float = 0.0) -> Tensor:
    """L_BM = KL of the best primitive only (proposition 1), which is what keeps the primitives distinct.

    The paper prints the quadratic term with a minus sign, which is unbounded below; the KL has a plus. `share` of the loss is
    spread over all primitives: winner-takes-all starves some of them early, so training starts at 0.1 and decays to 0.
    """
    winner = kl.gather(1, best[:, None]).mean()
    return winner if share == 0 else (1 - share) * winner + share * kl.mean()


def elbo_loss(rebuilt: Tensor, image_m: Tensor, code: Gaussian, noise: float = 1.0) -> Tensor:
    """-L_ELBO of the visible part: rebuild I_m, zeros of the hole included, from z_m alone, plus KL[q(z_m | I_m) || N(0, 1)], both
    per pixel value.

    I_m is Laplace distributed around `rebuilt` with the scale `noise`: the smaller, the more z_m must tell. `rebuilt` may be smaller than the
    picture: I_m is averaged down to it. The released code has this term commented out.
    """
    misfit = (rebuilt - shrunk(image_m, rebuilt.shape[-1])).abs().flatten(1).mean(1)
    standard = Gaussian(torch.zeros_like(code.mean), torch.zeros_like(code.mean))
    return (misfit / noise + gaussian_kl(code, standard) / rebuilt[0].numel()).mean()


def reconstruction_loss(
    rebuilt: Tensor, sampled: Tensor, image: Tensor, mask: Tensor, hole_weight: float = 1.0
) -> Tensor:
    """L_R = E|I_hat_o - I_o| + E|I_hat_m^(j) - I_m| (equation 6).

    The sampled picture is only compared where pixels are visible: comparing it inside the hole would end diversity.
    `hole_weight` counts the hole of the reconstruction that many times.
    """
    weight = 1 + (hole_weight - 1) * mask
    weight = weight / weight.mean((1, 2, 3), keepdim=True)
    return (weight * (rebuilt - image).abs()).mean() + ((1 - mask) * (sampled - image).abs()).mean()


def winner_loss(sampled: Tensor, image: Tensor, mask: Tensor, chosen: Tensor) -> Tensor:
    """Not in the paper: L1 inside the hole of the decoded *mean* of the best primitive (multiple-choice learning).

    It teaches the decoder on the mixture's own outputs. Only the winner is pulled, so the primitives stay apart; samples with
    noise and other primitives are left alone. `chosen` [b] is 1 where the picture was decoded from the winner's mean.
    """
    chosen = chosen[:, None, None, None]
    area = (mask.mean((1, 2, 3), keepdim=True)).clamp_min(1e-3)
    return (chosen * mask * (sampled - image).abs() / area).mean()


def adversarial_loss(score_rebuilt: Tensor, score_sampled: Tensor, score_real: Tensor, weights: Tensor) -> Tensor:
    """L_A = E(D(I_hat_o) - 1)^2 + E(D(I_hat_o^(j)) - D(I_o))^2 (equation 7); D(I_o) carries no gradient.

    `weights` [b, cells] sum to 1 for each picture: which scores count (not in the paper: only those that see the hole).
    """
    misses = (score_rebuilt - 1).square() + (score_sampled - score_real.detach()).square()
    return (weights * misses).sum(1).mean()


def discriminator_loss(score_real: Tensor, score_rebuilt: Tensor, score_sampled: Tensor, weights: Tensor) -> Tensor:
    """Least-squares GAN: real towards 1, both kinds of fake towards 0, where `weights` count."""
    fake = (score_rebuilt.square() + score_sampled.square()) / 2
    return (weights * ((score_real - 1).square() + fake) / 2).sum(1).mean()


def slope_penalty(score_real: Tensor, seen: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Not in the paper: squared slope of the discriminator's score at real pictures (R1), which keeps it from outrunning the
    generator. `seen` must require a gradient and have led to `score_real`, which belongs to its first rows."""
    slopes = torch.autograd.grad((weights * score_real).sum(), seen, create_graph=True)
    return torch.stack([slope.square().sum() for slope in slopes]).sum() / len(score_real)


def feature_loss(fake: Sequence[Tensor], real: Sequence[Tensor], chosen: Tensor | None = None) -> Tensor:
    """Not in the paper: L1 between the discriminator's features of a picture and of the truth, a perceptual distance, relative
    to the size of the truth's features. `chosen` [b] limits it to some of the batch."""
    total = fake[0].new_zeros(())
    real = [truth.detach() for truth in real]
    for mine, truth in zip(fake, real, strict=True):
        each = (mine - truth).abs().flatten(1).mean(1) / truth.abs().flatten(1).mean(1).clamp_min(1e-6)
        total = total + (each if chosen is None else chosen * each).mean()
    return total / len(fake)


def coarsest(features: Sequence[Tensor]) -> list[Tensor]:
    """The feature maps on the smallest grid: what is where, not what it looks like."""
    grid = min(feature.shape[-1] for feature in features)
    return [feature for feature in features if feature.shape[-1] == grid]


def choice_loss(sketches: Tensor, image: Tensor, mask: Tensor, share: float = 0.0) -> Tensor:
    """Not in the paper: L1 in the hole of the best of k sketches [b, k, 3, s, s] (multiple-choice learning over *all* primitives).

    L_BM compares latents, in which six means far apart may decode to one picture; here the means must differ in what they show
    for one of them to be near the truth. `share` of it is spread over all of them, as in `back_max_loss`.
    """
    truth, hole = shrunk(image, sketches.shape[-1]), shrunk(mask, sketches.shape[-1])
    misses = (hole[:, None] * (sketches - truth[:, None]).abs()).sum((2, 3, 4)) / (3 * hole.sum((1, 2, 3)) + 1e-3)[
        :, None
    ]
    return (1 - share) * misses.min(1).values.mean() + share * misses.mean()


def visibility_loss(means: Tensor, sketches: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Not in the paper: distances between means [b, k, d] shall be those between what they show, up to `scale`.

    Primitives that look alike in this hole then have nearly the same mean, so how far apart they are tells how many different answers
    there are. What is shown carries no gradient: only the means move.
    """
    hole = shrunk(mask, sketches.shape[-1])[:, None]
    first, second = torch.triu_indices(means.shape[1], means.shape[1], 1)
    shown = (hole * (sketches[:, first] - sketches[:, second])).square().mean((2, 3, 4)).sqrt().detach()
    apart = ((means[:, first] - means[:, second]).square().mean(2) + 1e-10).sqrt()
    return (apart / scale - shown).square().mean()


def shrunk(picture: Tensor, side: int) -> Tensor:
    return F.avg_pool2d(picture, picture.shape[-1] // side)
