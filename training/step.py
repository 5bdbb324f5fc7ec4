"""One training step: Algorithm 1 of the paper as two modules, so that DistributedDataParallel can wrap them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training import losses
from training.config import LossWeights
from training.discriminator import Judge
from training.model import Gaussian, Mixture, Picme

SLOPE_EVERY = 8  # steps: the penalty costs a second backward pass and changes slowly


@dataclass(frozen=True)
class Draws:
    """All randomness of a step, for the whole batch: a pure function of (seed, images seen)."""

    code: Tensor  # [b, context] normal, for z_m
    posterior: Tensor  # [b, d] normal, for z_c
    prior: Tensor  # [b, d] normal, for the mixture's sample
    kind: Tensor  # [b] uniform: winner's mean, sample of a drawn primitive or of the winner
    primitive: Tensor  # [b] uniform: which primitive is drawn

    @classmethod
    def of(cls, seed: int, images: int, batch: int, context: int, latent: int) -> Draws:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + images)
        normal = [torch.randn(batch, size, generator=generator) for size in (context, latent, latent)]
        return cls(*normal, *torch.rand(2, batch, generator=generator))

    def part(self, keep: slice) -> Draws:
        return Draws(self.code[keep], self.posterior[keep], self.prior[keep], self.kind[keep], self.primitive[keep])

    def to(self, device: torch.device) -> Draws:
        return Draws(*(getattr(self, name).to(device) for name in ("code", "posterior", "prior", "kind", "primitive")))


def pick(mixture: Mixture, primitive: Tensor, noise: Tensor) -> Tensor:
    """z = mu_i + sigma_i * noise for one primitive of each row."""
    rows = torch.arange(len(primitive), device=primitive.device)
    return mixture.means[rows, primitive] + mixture.log_scales[rows, primitive].exp() * noise


def categorical(log_weights: Tensor, uniform: Tensor) -> Tensor:
    """i ~ Categorical(alpha) by inverting the cumulative weights."""
    edges = log_weights.detach().exp().cumsum(1)
    return (uniform[:, None] * edges[:, -1:] >= edges).sum(1).clamp_max(log_weights.shape[1] - 1)


def chosen_primitive(log_weights: Tensor, best: Tensor, draws: Draws, w: LossWeights) -> Tensor:
    """Which primitive each row decodes, by the shares in `w`: the best one, one drawn by weight, or any."""
    any_of_them = (draws.primitive * log_weights.shape[1]).long()
    choices = torch.stack([best, categorical(log_weights, draws.primitive), any_of_them, best])
    shares = torch.tensor([w.means, w.categorical, w.even], device=best.device)
    rows = torch.arange(len(best), device=best.device)
    return choices[torch.bucketize(draws.kind, shares.cumsum(0), right=True), rows]


@dataclass(frozen=True)
class GeneratorResult:
    """The loss to minimise, its named parts, the best primitives, and what the discriminator saw of the truth, the
    reconstruction and the sample, one after the other in a batch (nothing where no loss asks for it). Only the loss has a gradient."""

    total: Tensor
    parts: dict[str, Tensor]
    best: Tensor
    seen: list[Tensor]


class GeneratorStep(nn.Module):
    """Encode both parts, compare mixture and posterior, decode both latents, add up the losses."""

    def __init__(self, model: Picme, weights: LossWeights, bfloat16: bool = False) -> None:
        super().__init__()
        self.model, self.weights, self.bfloat16 = model, weights, bfloat16

    def _half(self, image: Tensor) -> torch.autocast:
        return torch.autocast(image.device.type, torch.bfloat16, enabled=self.bfloat16)

    def forward(self, image: Tensor, mask: Tensor, draws: Draws, judge: Judge, images_seen: int) -> GeneratorResult:
        w, model = self.weights, self.model
        image_m = image * (1 - mask)
        with self._half(image):
            code, skips = model.visible(image_m, mask)
            target = model.posterior(image * mask, mask)
        # Distances between Gaussians and losses are always taken in full precision.
        code, target = Gaussian(*(x.float() for x in code)), Gaussian(*(x.float() for x in target))
        mixture = model.mixture(code.mean)

        kl = losses.primitive_kl(mixture, losses.with_slower_gradient(target, w.posterior))
        best = losses.best_primitive(kl, mixture.log_weights, w.balance)
        share = w.warm_share * max(0.0, 1 - images_seen / w.warm_images)

        is_mean = (draws.kind < w.means).float()
        primitive = chosen_primitive(mixture.log_weights, best, draws, w)
        z_sampled = pick(mixture, primitive, draws.prior * (1 - is_mean)[:, None])
        z_rebuilt = target.mean + target.log_scale.exp() * draws.posterior
        with self._half(image):
            rebuilt, sampled = model.decode(skips, z_rebuilt).float(), model.decode(skips, z_sampled).float()
        visible = model.visible_decoder(code.mean + code.log_scale.exp() * draws.code)

        parts = {
            "reconstruction": losses.reconstruction_loss(rebuilt, sampled, image, mask, w.hole),
            # Equation 4 as it stands: alpha is how often a primitive is the nearest, whatever `balance` makes of it.
            "frequency": losses.frequency_loss(mixture.log_weights, losses.best_primitive(kl)),
            "back_max": losses.back_max_loss(kl, best, share),
            "elbo": losses.elbo_loss(visible, image_m, code, w.visible_noise),
        }
        if w.choice or w.visibility:
            k = mixture.means.shape[1]
            with self._half(image):
                coarse = [skips[0].repeat_interleave(k, 0)]
                sketches = model.decoder.sketch(coarse, mixture.means.flatten(0, 1)).float().unflatten(0, (-1, k))
            parts["choice"] = losses.choice_loss(sketches, image, mask, share)
            parts["visibility"] = losses.visibility_loss(mixture.means, sketches, mask, w.visible_unit)
        if w.winner:
            parts["winner"] = losses.winner_loss(sampled, image, mask, is_mean)
        seen: list[Tensor] = []
        if w.adversarial or w.features or w.gist:
            judged, seen = self._judged(judge, image, mask, rebuilt, sampled, is_mean)
            parts |= judged
        total = torch.stack([getattr(w, name) * value for name, value in parts.items()]).sum()
        with torch.no_grad():
            parts["kl"] = kl.gather(1, best[:, None]).mean()
            parts["hole_l1"] = ((rebuilt - image).abs() * mask).sum() / (3 * mask.sum()).clamp_min(1)
        detached = {name: value.detach() for name, value in parts.items()}
        return GeneratorResult(total, detached, best, seen)

    def _judged(
        self, judge: Judge, image: Tensor, mask: Tensor, rebuilt: Tensor, sampled: Tensor, is_mean: Tensor
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The losses that need the discriminator, and what it saw. It sees what a user sees: the fill inside the hole of the given photo."""
        w = self.weights
        with torch.no_grad():
            seen_real = judge.look(image, mask)
            score_real, features_real = judge(seen_real, mask)
        fakes = torch.cat([image * (1 - mask) + made * mask for made in (rebuilt, sampled)])
        twice = torch.cat([mask, mask])
        seen = judge.look(fakes, twice)
        scores, features = judge(seen, twice)
        score_rebuilt, score_sampled = scores.chunk(2)
        features_rebuilt, features_sampled = zip(*(feature.chunk(2) for feature in features), strict=True)
        parts = {"adversarial": losses.adversarial_loss(score_rebuilt, score_sampled, score_real, judge.weights(mask))}
        if w.features:
            parts["features"] = losses.feature_loss(features_rebuilt, features_real) + losses.feature_loss(
                features_sampled, features_real, is_mean
            )
        if w.gist:
            fake, real = losses.coarsest(features_sampled), losses.coarsest(features_real)
            parts["gist"] = losses.feature_loss(fake, real, 1 - is_mean)
        return parts, [torch.cat([real, fake.detach()]) for real, fake in zip(seen_real, seen, strict=True)]


class DiscriminatorStep(nn.Module):
    """The discriminator's loss on what it saw in the generator's step."""

    def __init__(self, judge: Judge, slope: float) -> None:
        super().__init__()
        self.judge, self.slope = judge, slope

    def forward(self, seen: list[Tensor], mask: Tensor, step: int) -> Tensor:
        weights = self.judge.weights(mask)
        penalised = self.slope > 0 and step % SLOPE_EVERY == 0
        seen = [each.detach().requires_grad_(penalised) for each in seen]
        scores, _ = self.judge(seen, torch.cat([mask, mask, mask]))
        real, *fakes = scores.chunk(3)
        loss = losses.discriminator_loss(real, *fakes, weights)
        if penalised:
            loss = loss + SLOPE_EVERY * self.slope * losses.slope_penalty(real, seen, weights)
        return loss
