"""One training step: Algorithm 1 of the paper as two modules, so that DistributedDataParallel can wrap them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training import losses
from training.config import DecodeMix, LossWeights
from training.discriminator import Discriminator
from training.layers import Gaussian
from training.model import Mixture, Picme

PENALTY_EVERY = 8  # steps; the penalty costs a second backward pass and changes slowly


@dataclass(frozen=True)
class Draws:
    """All random numbers of a step, for the whole batch: a pure function of (seed, images so far)."""

    code: Tensor  # [b, code] normal, for z_m
    posterior: Tensor  # [b, d] normal, for z_c
    prior: Tensor  # [b, d] normal, for the mixture's sample
    kind: Tensor  # [b] uniform: what is decoded, by the shares of `DecodeMix`
    primitive: Tensor  # [b] uniform: which primitive is drawn

    @classmethod
    def of(cls, seed: int, images: int, batch: int, code: int, latent: int) -> Draws:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + images)
        normal = [torch.randn(batch, size, generator=generator) for size in (code, latent, latent)]
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
    """i ~ Categorical(alpha), by inverting the cumulative weights at `uniform` [b]."""
    edges = log_weights.detach().exp().cumsum(1)
    return (uniform[:, None] * edges[:, -1:] >= edges).sum(1).clamp_max(log_weights.shape[1] - 1)


def chosen_primitive(log_weights: Tensor, best: Tensor, draws: Draws, mix: DecodeMix) -> Tensor:
    """The primitive that each row decodes: the best one, one drawn by weight, or one drawn uniformly."""
    uniform = (draws.primitive * log_weights.shape[1]).long()
    choices = torch.stack([best, categorical(log_weights, draws.primitive), uniform, best])
    shares = torch.tensor([mix.winner_mean, mix.by_weight, mix.uniform], device=best.device)
    rows = torch.arange(len(best), device=best.device)
    return choices[torch.bucketize(draws.kind, shares.cumsum(0), right=True), rows]


@dataclass(frozen=True)
class GeneratorResult:
    """The loss to minimise, its named parts, the best primitives, and the discriminator's inputs for the truth, the
    reconstruction and the sample, concatenated along the batch (empty where no loss needs them). Only the loss has a gradient."""

    total: Tensor
    parts: dict[str, Tensor]
    best: Tensor
    inputs: list[Tensor]


class GeneratorStep(nn.Module):
    """Encode both parts, compare mixture and posterior, decode both latents, add up the losses."""

    def __init__(
        self, model: Picme, weights: LossWeights, mix: DecodeMix | None = None, bfloat16: bool = False
    ) -> None:
        super().__init__()
        self.model, self.weights, self.mix, self.use_bfloat16 = model, weights, mix or DecodeMix(), bfloat16

    def _half(self, image: Tensor) -> torch.autocast:
        return torch.autocast(image.device.type, torch.bfloat16, enabled=self.use_bfloat16)

    def forward(
        self, image: Tensor, mask: Tensor, draws: Draws, discriminator: Discriminator, images: int
    ) -> GeneratorResult:
        """`images` is how many the run has trained on before this step."""
        w, mix, model = self.weights, self.mix, self.model
        image_m = image * (1 - mask)
        with self._half(image):
            code, skips = model.visible(image_m, mask)
            target = model.posterior(image * mask, mask)
        # Losses and distances between Gaussians are always computed in float32.
        code, target = Gaussian(*(x.float() for x in code)), Gaussian(*(x.float() for x in target))
        mixture = model.mixture(code.mean)

        kl = losses.primitive_kl(mixture, losses.with_gradient_share(target, w.posterior_gradient))
        best = losses.best_primitive(kl, mixture.log_weights, w.win_handicap)
        share = w.warm_share * max(0.0, 1 - images / w.warm_images)

        is_mean = (draws.kind < mix.winner_mean).float()
        primitive = chosen_primitive(mixture.log_weights, best, draws, mix)
        z_sampled = pick(mixture, primitive, draws.prior * (1 - is_mean)[:, None])
        z_rebuilt = target.mean + target.log_scale.exp() * draws.posterior
        with self._half(image):
            rebuilt, sampled = model.decode(skips, z_rebuilt).float(), model.decode(skips, z_sampled).float()
        visible = model.visible_decoder(code.mean + code.log_scale.exp() * draws.code)

        parts = {
            "reconstruction": losses.reconstruction_loss(rebuilt, sampled, image, mask, w.hole_weight),
            # Equation 4 as printed: alpha is the frequency with which a primitive is the nearest, without the handicap.
            "frequency": losses.frequency_loss(mixture.log_weights, losses.best_primitive(kl)),
            "back_max": losses.back_max_loss(kl, best, share),
            "elbo": losses.elbo_loss(visible, image_m, code, w.elbo_noise),
        }
        if w.best_sketch or w.mean_spacing:
            k = mixture.means.shape[1]
            with self._half(image):
                coarse = [skips[0].repeat_interleave(k, 0)]
                sketches = model.decoder.sketch(coarse, mixture.means.flatten(0, 1)).float()
            sketches = sketches.reshape(-1, k, *sketches.shape[1:])
            parts["best_sketch"] = losses.best_sketch_loss(sketches, image, mask, share)
            parts["mean_spacing"] = losses.mean_spacing_loss(mixture.means, sketches, mask, w.spacing_unit)
        if w.winner:
            parts["winner"] = losses.winner_loss(sampled, image, mask, is_mean)
        inputs: list[Tensor] = []
        if w.adversarial or w.features or w.sample_layout:
            more, inputs = self._discriminated(discriminator, image, mask, rebuilt, sampled, is_mean)
            parts |= more
        total = torch.stack([getattr(w, name) * value for name, value in parts.items()]).sum()
        with torch.no_grad():
            parts["kl"] = kl.gather(1, best[:, None]).mean()
            parts["hole_l1"] = ((rebuilt - image).abs() * mask).sum() / (3 * mask.sum()).clamp_min(1)
        detached = {name: value.detach() for name, value in parts.items()}
        return GeneratorResult(total, detached, best, inputs)

    def _discriminated(
        self,
        discriminator: Discriminator,
        image: Tensor,
        mask: Tensor,
        rebuilt: Tensor,
        sampled: Tensor,
        is_mean: Tensor,
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The losses that need the discriminator, and its inputs. It gets what a user gets: the photo with the fill inside the hole."""
        w = self.weights
        with torch.no_grad():
            inputs_real = discriminator.inputs(image, mask)
            score_real, features_real = discriminator(inputs_real, mask)
        fakes = torch.cat([image * (1 - mask) + fill * mask for fill in (rebuilt, sampled)])
        twice = torch.cat([mask, mask])
        inputs = discriminator.inputs(fakes, twice)
        scores, features = discriminator(inputs, twice)
        score_rebuilt, score_sampled = scores.chunk(2)
        features_rebuilt, features_sampled = zip(*(feature.chunk(2) for feature in features), strict=True)
        weights = discriminator.weights(mask)
        parts = {"adversarial": losses.adversarial_loss(score_rebuilt, score_sampled, score_real, weights)}
        if w.features:
            parts["features"] = losses.feature_loss(features_rebuilt, features_real) + losses.feature_loss(
                features_sampled, features_real, is_mean
            )
        if w.sample_layout:
            fake, real = losses.coarsest(features_sampled), losses.coarsest(features_real)
            parts["sample_layout"] = losses.feature_loss(fake, real, 1 - is_mean)
        return parts, [torch.cat([real, fake.detach()]) for real, fake in zip(inputs_real, inputs, strict=True)]


class DiscriminatorStep(nn.Module):
    """The discriminator's loss on the inputs that the generator's step computed."""

    def __init__(self, discriminator: Discriminator, penalty: float) -> None:
        super().__init__()
        self.discriminator, self.penalty = discriminator, penalty

    def forward(self, inputs: list[Tensor], mask: Tensor, step: int) -> Tensor:
        weights = self.discriminator.weights(mask)
        penalised = self.penalty > 0 and step % PENALTY_EVERY == 0
        inputs = [each.detach().requires_grad_(penalised) for each in inputs]
        scores, _ = self.discriminator(inputs, torch.cat([mask, mask, mask]))
        real, rebuilt, sampled = scores.chunk(3)
        loss = losses.discriminator_loss(real, rebuilt, sampled, weights)
        if penalised:
            loss = loss + PENALTY_EVERY * self.penalty * losses.gradient_penalty(real, inputs, weights)
        return loss
