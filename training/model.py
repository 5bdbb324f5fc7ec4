"""The PICME network, written to be cut into three graphs: encoder, mixture head, decoder.

    photo + mask -> encode  (once)  -> context z_m, skips (already projected for the decoder)
    context      -> mixture (once)  -> log_weights, means, log_scales of q(z_c | z_m)
    skips + z_c  -> decode  (n times)

Everything that does not depend on z_c happens in `encode`; `decode` only *adds* the skips, so skips of batch 1 broadcast
against n latents. The network works on 4x4 pixel patches and each stage halves the grid. A stage also sees the picture
itself, averaged down to its grid, and also paints its own coarse picture. That makes a smaller network a part of the next
larger one: `grow` adds an outer stage that starts as "no change", and progressive training keeps what was learned.

    python -m training.model --config training/configs/pets256.toml [--json]     parameters and GFLOP of each part
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1  # of the leaky ReLUs


@dataclass(frozen=True)
class PicmeConfig:
    """The architecture; saved with every checkpoint."""

    image_size: int = 256  # side of the square picture, pixels
    patch: int = 4  # pixels a side that the stem folds into channels
    widths: tuple[int, ...] = (32, 64, 128, 192)  # channels of the stages, finest grid first
    encoder_blocks: tuple[int, ...] = (1, 1, 2, 2)  # residual blocks of each stage
    decoder_blocks: tuple[int, ...] = (1, 1, 1, 1)
    context: int = 256  # dimensions of z_m
    latent: int = 128  # dimensions of z_c
    primitives: int = 6  # k, Gaussians in the mixture
    attention: int = 0  # side of the grid on which the encoder attends to the whole picture; 0 = nowhere
    pixel_width: int = (
        0  # channels of the encoder's pixel path; 0 = none. Only at `image_size`, not at the smaller sizes of `at`
    )

    def __post_init__(self) -> None:
        for name in ("widths", "encoder_blocks", "decoder_blocks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        stages = len(self.widths)
        if not stages == len(self.encoder_blocks) == len(self.decoder_blocks):
            raise ValueError(
                f"{stages} widths, {len(self.encoder_blocks)} encoder_blocks, {len(self.decoder_blocks)} decoder_blocks"
                " | expected one of each per stage | give lists of one length"
            )
        if self.image_size % (self.patch << (stages - 1)) or min(self.grids) < 2:
            raise ValueError(
                f"image_size {self.image_size} with patch {self.patch} and {stages} stages"
                f" | expected a multiple of {self.patch << (stages - 1)} | change size, patch or stages"
            )
        if self.attention and self.attention not in self.grids:
            raise ValueError(
                f"attention on a grid of {self.attention} | expected 0 or one of {list(self.grids)} | choose one of them"
            )

    @property
    def grids(self) -> tuple[int, ...]:
        """Side of each stage's grid, finest first."""
        return tuple(self.image_size // self.patch >> i for i in range(len(self.widths)))

    def at(self, size: int) -> PicmeConfig:
        """The same core for pictures of `size`: the outer stages are left out."""
        drop = (self.image_size // size).bit_length() - 1
        if self.image_size >> drop != size or drop >= len(self.widths):
            raise ValueError(
                f"size {size} | expected {self.image_size} halved less than {len(self.widths)} times | choose such a size"
            )
        return replace(
            self,
            image_size=size,
            widths=self.widths[drop:],
            encoder_blocks=self.encoder_blocks[drop:],
            decoder_blocks=self.decoder_blocks[drop:],
            attention=self.attention if self.attention <= self.grids[drop] else 0,
            pixel_width=0 if drop else self.pixel_width,
        )


SURE = -2.0  # before `bounded`: a standard deviation of 0.06


class Gaussian(NamedTuple):
    """A diagonal Gaussian; `log_scale` is the logarithm of the standard deviation."""

    mean: Tensor
    log_scale: Tensor


class Mixture(NamedTuple):
    """q(z_c | z_m): log_weights [b, k], means and log_scales [b, k, d]."""

    log_weights: Tensor
    means: Tensor
    log_scales: Tensor


class Encoded(NamedTuple):
    """What `encode` gives: z_m [b, context] and one skip per stage, coarsest first, already projected; then the patches of the pixel path, if there is one."""

    context: Tensor
    skips: tuple[Tensor, ...]


def bounded(raw: Tensor) -> Tensor:
    """Log-scales between -4 and 2: without a lower bound a variance runs to zero and L_BM explodes."""
    return 3.0 * torch.tanh(raw / 3.0) - 1.0


class Block(nn.Module):
    """Residual block, activation last so that a runtime fuses convolution, sum and activation into one kernel (ONNX Runtime
    does that with a plain ReLU only)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        with torch.no_grad():  # no norm layers: start near the identity instead
            self.second.weight.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(F.leaky_relu(self.first(x), SLOPE)))


class Attention(nn.Module):
    """Self-attention over all cells of a grid, so that a far part of the picture can tell what belongs here. Starts as the identity."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.ask = nn.Conv2d(width, 3 * width, 1)
        self.answer = nn.Conv2d(width, width, 1)
        with torch.no_grad():
            self.answer.weight.zero_()
            self.answer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        _, width, height, side = x.shape
        each = width // self.heads
        query, key, value = self.ask(x).reshape(-1, 3, self.heads, each, height * side).unbind(1)
        weights = torch.softmax(query.transpose(2, 3) @ key * each**-0.5, -1)
        return x + self.answer((value @ weights.transpose(2, 3)).reshape(-1, width, height, side))


class Pyramid(nn.Module):
    """Features of a picture on successively halved grids, finest first. The picture enters at every grid."""

    def __init__(
        self,
        channels: int,
        patch: int,
        size: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        attention: int = 0,
    ) -> None:
        super().__init__()
        self.grids = [size // patch >> i for i in range(len(widths))]
        self.stems, self.downs, self.stages = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for i, (grid, width, count) in enumerate(zip(self.grids, widths, blocks, strict=True)):
            self.stems[str(grid)] = nn.Conv2d(channels, width, patch, stride=patch)
            if i:
                self.downs[str(grid)] = nn.Conv2d(widths[i - 1], width, 3, stride=2, padding=1)
            self.stages[str(grid)] = nn.Sequential(*(Block(width) for _ in range(count)))
            if grid == attention:
                self.stages[str(grid)].append(Attention(width))

    def forward(self, picture: Tensor) -> list[Tensor]:
        entries = []
        for grid in map(str, self.grids):
            if entries:
                picture = F.avg_pool2d(picture, 2)
            entries.append(self.stems[grid](picture))
        return self.climb(entries)

    def climb(self, entries: Sequence[Tensor]) -> list[Tensor]:
        """Features from what the stems gave at every grid."""
        features: list[Tensor] = []
        for grid, x in zip(map(str, self.grids), entries, strict=True):
            if features:
                x = x + self.downs[grid](features[-1])
            features.append(self.stages[grid](F.leaky_relu(x, SLOPE)))
        return features


def pull_push(patches: Tensor, seen: Tensor) -> Tensor:
    """The holes of a coarse picture filled from their surroundings: [b, 3, g, g] sums of visible colours and [b, 1, g, g] how many
    there are -> [b, 3, g, g] colours. Sums are added up down to a grid of 2 or 3; each cell takes its own average as far as there is one."""
    if patches.shape[-1] <= 3:
        average = patches.mean((2, 3), keepdim=True) / seen.mean((2, 3), keepdim=True).clamp_min(1e-3)
        return average.expand_as(patches)
    coarse = pull_push(F.avg_pool2d(patches, 2), F.avg_pool2d(seen, 2))
    coarse = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
    # A cell with few visible pixels trusts its surroundings as much as these.
    trust = 0.05
    return (patches + trust * coarse) / (seen + trust)


class PixelPath(nn.Module):
    """What the surroundings determine, painted once per photo: patches [b, 3 p^2, g, g] that the decoder adds to its own.

    Where a hole is thin, lines must be carried on to the pixel, and the decoder's finest stage has fewer channels than a patch has
    values. This path reads the patches themselves, the hole filled in roughly, beside the encoder's features of all grids. It
    starts by painting nothing.
    """

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.patch, width = config.patch, config.pixel_width
        values = self.patch**2
        self.look = nn.Conv2d(4 * values, width, 3, padding=1)
        self.hints = nn.ModuleDict(
            {str(g): nn.Conv2d(w, width, 1) for g, w in zip(config.grids, config.widths, strict=True)}
        )
        self.block = Block(width)
        self.paint = nn.Conv2d(width, 3 * values, 3, padding=1)
        with torch.no_grad():
            self.paint.weight.zero_()
            self.paint.bias.zero_()

    def forward(self, picture: Tensor, features: Sequence[Tensor]) -> Tensor:
        """`picture` [b, 4, s, s]: colours, 0 in the hole, and the hole."""
        values = self.patch**2
        patches = F.pixel_unshuffle(picture, self.patch)
        colours, hole = patches[:, : 3 * values], patches[:, 3 * values :]
        averages = F.avg_pool2d(picture, self.patch)
        guess = pull_push(averages[:, :3], 1 - averages[:, 3:])
        filled = colours + hole.repeat(1, 3, 1, 1) * guess.repeat_interleave(values, 1)
        x = self.look(torch.cat([filled, hole], 1)) + self.hint(features)
        return self.paint(self.block(F.leaky_relu(x, SLOPE)))

    def hint(self, features: Sequence[Tensor]) -> Tensor:
        """What all grids know, on the finest."""
        hints = [conv(feature) for conv, feature in zip(self.hints.values(), features, strict=True)]
        total = hints[-1]
        for hint in hints[-2::-1]:
            total = hint + F.interpolate(total, scale_factor=2.0)
        return total


class GaussianHead(nn.Module):
    """Coarsest feature map -> one Gaussian over the whole picture."""

    def __init__(self, width: int, grid: int, dimensions: int, sure: bool = False) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width, 32, 1)
        self.out = nn.Linear(32 * grid * grid, 2 * dimensions)
        if sure:  # a code that starts as noise is never listened to, and stays noise: start with little of it
            with torch.no_grad():
                self.out.bias[dimensions:].fill_(SURE)

    def forward(self, coarse: Tensor) -> Gaussian:
        mean, log_scale = self.out(F.leaky_relu(self.squeeze(coarse), SLOPE).flatten(1)).chunk(2, 1)
        return Gaussian(mean, bounded(log_scale))


class MixtureHead(nn.Module):
    """z_m -> alpha, mu, Sigma of the k primitives."""

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.shape = (config.primitives, config.latent)
        outputs = config.primitives * config.latent
        self.trunk = nn.Linear(config.context, 512)
        self.alpha = nn.Linear(512, config.primitives)
        self.mu = nn.Linear(512, outputs)
        self.sigma = nn.Linear(512, outputs)
        with torch.no_grad():
            self.alpha.weight.zero_()  # all primitives start equally likely ...
            self.alpha.bias.zero_()
            nn.init.normal_(self.mu.bias)  # ... and in different places

    def forward(self, context: Tensor) -> Mixture:
        x = F.leaky_relu(self.trunk(context), SLOPE)
        log_weights = F.log_softmax(self.alpha(x), dim=1)
        means = self.mu(x).reshape(-1, *self.shape)
        return Mixture(log_weights, means, bounded(self.sigma(x)).reshape(-1, *self.shape))


class Decoder(nn.Module):
    """skips + z_c -> picture. z_c places structure on the coarsest grid and scales and shifts the stages after it."""

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.patch = config.patch
        self.grids = config.grids[::-1]  # coarsest first, as they are run
        widths = config.widths[::-1]
        self.place = nn.Linear(config.latent, 48 * self.grids[0] ** 2)
        self.spread = nn.Conv2d(48, widths[0], 1)
        self.ups, self.films = nn.ModuleDict(), nn.ModuleDict()
        self.stages, self.heads, self.lifts = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for i, grid in enumerate(self.grids):
            name, width = str(grid), widths[i]
            if i:
                self.ups[name] = nn.Conv2d(widths[i - 1], width, 1)
                self.lifts[name] = self._lift()
            if i < 3:  # finer stages only add texture: steering them costs time and changes nothing visible
                self.films[name] = nn.Linear(config.latent, 2 * width)
            self.stages[name] = nn.Sequential(*(Block(width) for _ in range(config.decoder_blocks[::-1][i])))
            self.heads[name] = nn.Conv2d(width, 3 * self.patch**2, 1)

    def _lift(self) -> nn.Conv2d:
        """Coarse picture -> patches of one twice the size; starts as nearest-neighbour enlargement."""
        half = self.patch // 2
        lift = nn.Conv2d(3, 3 * self.patch**2, half, stride=half, bias=False)
        one_pixel_each = torch.eye(3 * half**2).reshape(-1, 3, half, half)
        with torch.no_grad():
            enlarged = F.interpolate(one_pixel_each, scale_factor=2.0)
            lift.weight.copy_(F.pixel_unshuffle(enlarged, self.patch)[..., 0, 0].T.reshape(lift.weight.shape))
        return lift

    def steer(self, z: Tensor) -> list[Tensor]:
        """All that a latent says: what it places on the coarsest grid, then a scale and a shift for each of the first stages."""
        steering = [self.place(z)]
        for film in self.films.values():
            scale, shift = film(z).chunk(2, 1)
            steering += [1 + scale, shift]
        return steering

    def features(self, skips: Sequence[Tensor], steering: Sequence[Tensor]) -> list[Tensor]:
        """What each stage knows, coarsest first."""
        placed, *films = steering
        x = self.spread(placed.reshape(-1, 48, self.grids[0], self.grids[0]))
        found: list[Tensor] = []
        for i, (grid, skip) in enumerate(zip(map(str, self.grids), skips, strict=True)):
            if found:
                x = F.interpolate(self.ups[grid](x), scale_factor=2.0)
            x = x + skip
            if grid in self.films:
                scale, shift = (each[..., None, None] for each in films[2 * i : 2 * i + 2])
                x = x * scale + shift
            x = self.stages[grid](F.leaky_relu(x, SLOPE))
            found.append(x)
        return found

    def sketch(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """The picture that the coarsest stage paints alone: what is where, in a tenth of the time."""
        grid = str(self.grids[0])
        placed, scale, shift, *_ = self.steer(z)
        x = self.spread(placed.reshape(-1, 48, self.grids[0], self.grids[0])) + skips[0]
        x = self.stages[grid](F.leaky_relu(x * scale[..., None, None] + shift[..., None, None], SLOPE))
        return F.pixel_shuffle(self.heads[grid](x), self.patch)

    def forward(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """The picture: each stage paints on the enlarged picture of the stage before."""
        picture: Tensor | None = None
        skips, pixels = skips[: len(self.grids)], skips[len(self.grids) :]
        for grid, x in zip(map(str, self.grids), self.features(skips, self.steer(z)), strict=True):
            patches = self.heads[grid](x)
            if picture is not None:
                patches = patches + self.lifts[grid](picture)
            if pixels and grid == str(self.grids[-1]):
                patches = patches + pixels[0]
            picture = F.pixel_shuffle(patches, self.patch)
        return picture


class Picme(nn.Module):
    """Encoder f, mixture head and decoder g of the paper, and the training-only parts around them.

    Pictures are float RGB [b, 3, s, s] in [-1, 1] with what may not be seen set to 0; masks are [b, 1, s, s] with 1 = hole.
    Nothing here is random or depends on batch statistics; noise is drawn by the caller.
    """

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.config = config
        width, grid = config.widths[-1], config.grids[-1]
        self.encoder = Pyramid(
            4, config.patch, config.image_size, config.widths, config.encoder_blocks, config.attention
        )
        self.pixel_path = PixelPath(config) if config.pixel_width else None
        self.context_head = GaussianHead(width, grid, config.context, sure=True)
        self.context_to_skip = nn.Linear(config.context, width)
        with torch.no_grad():  # the skips say enough until z_m has something to add
            self.context_to_skip.weight.zero_()
            self.context_to_skip.bias.zero_()
        self.projections = nn.ModuleDict(
            {str(g): nn.Conv2d(w, w, 1) for g, w in zip(config.grids, config.widths, strict=True)}
        )
        self.mixture_head = MixtureHead(config)
        self.decoder = Decoder(config)
        # Training only: p(z_c | I_c), and the small decoder of L_ELBO that must find I_m in z_m alone.
        self.posterior_head = GaussianHead(width, grid, config.latent)
        self.visible_decoder = nn.Sequential(
            nn.Linear(config.context, 256), nn.LeakyReLU(SLOPE), nn.Linear(256, 48 * grid * grid),
            nn.Unflatten(1, (48, grid, grid)), nn.PixelShuffle(4),
        )  # fmt: skip

    @torch.no_grad()
    def standardise_code(self, image: Tensor, mask: Tensor) -> None:
        """Bring z_m to mean 0 and variance 1 over these pictures without changing what anything that reads it says.

        With ordinary random weights z_m differs between pictures by hundredths, and what reads it is nearly blind for a long time. A code
        that is mostly noise is made sure again, because nothing listens to noise, and it would stay noise.
        """
        code = self.context_head(self.encoder(torch.cat([image, mask], 1))[-1])
        offset, spread = code.mean.mean(0), code.mean.std(0).clamp_min(1e-6)
        out, size = self.context_head.out, len(offset)
        out.weight[:size] /= spread[:, None]
        out.bias[:size] = (out.bias[:size] - offset) / spread
        if code.log_scale.exp().mean() > 0.5:
            out.weight[size:] = 0
            out.bias[size:] = SURE
        for reader in (self.mixture_head.trunk, self.context_to_skip, self.visible_decoder[0]):
            reader.bias += reader.weight @ offset
            reader.weight *= spread

    def visible(self, image: Tensor, mask: Tensor) -> tuple[Gaussian, tuple[Tensor, ...]]:
        """q(z_m | I_m) and the skips; `encode` with the spread of z_m, which only L_ELBO needs."""
        picture = torch.cat([image, mask], 1)
        features = self.encoder(picture)
        code, skips = self.read(features)
        return code, skips if self.pixel_path is None else (*skips, self.pixel_path(picture, features))

    def read(self, features: Sequence[Tensor]) -> tuple[Gaussian, tuple[Tensor, ...]]:
        """z_m and the skips of the stages from the encoder's features."""
        code = self.context_head(features[-1])
        skips = [self.projections[str(g)](f) for g, f in zip(self.config.grids, features, strict=True)]
        skips[-1] = skips[-1] + self.context_to_skip(code.mean)[..., None, None]
        return code, tuple(skips[::-1])

    def encode(self, image: Tensor, mask: Tensor) -> Encoded:
        """Photo with the hole zeroed, and mask -> everything that does not depend on the sample."""
        code, skips = self.visible(image, mask)
        return Encoded(code.mean, skips)

    def mixture(self, context: Tensor) -> Mixture:
        """z_m -> the Gaussian mixture over z_c."""
        return self.mixture_head(context)

    def posterior(self, image_c: Tensor, mask: Tensor) -> Gaussian:
        """p(z_c | I_c) of the missing part: the same encoder f, which now sees only what is inside the hole."""
        return self.posterior_head(self.encoder(torch.cat([image_c, 1 - mask], 1))[-1])

    def decode(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """Skips (batch 1 or n) and latents [n, d] -> n pictures [n, 3, s, s], about [-1, 1]."""
        return self.decoder(skips, z)


def grow(small: nn.Module, large: nn.Module) -> None:
    """Copy `small` into `large`, the same network with outer stages added, so that `large` starts where `small` is.

    The joints of the new stages start at zero: the new encoder stage hands nothing down and the new head paints nothing
    on top of the coarse picture, until training finds something worth adding.
    """
    kept = small.state_dict()
    new = {name for name in large.state_dict() if name not in kept}
    large.load_state_dict(kept, strict=False)
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            if name in new and any(joint in name for joint in (".downs.", ".heads.")):
                parameter.zero_()


RUNTIME_PARTS = ("encoder", "context_head", "context_to_skip", "projections", "pixel_path", "mixture_head", "decoder")


def cost(config: PicmeConfig) -> dict[str, float]:
    """Parameters at run time (millions) and GFLOP (2 x multiply-add) of encoder, mixture head and one decoder pass."""
    from torch.utils.flop_counter import FlopCounterMode

    model = Picme(config).eval()
    size = config.image_size
    image, mask = torch.zeros(1, 3, size, size), torch.zeros(1, 1, size, size)

    def gflop(run) -> tuple[float, object]:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            result = run()
        return counter.get_total_flops() / 1e9, result

    encoder, encoded = gflop(lambda: model.encode(image, mask))
    mixture, _ = gflop(lambda: model.mixture(encoded.context))
    decoder, _ = gflop(lambda: model.decode(encoded.skips, torch.zeros(1, config.latent)))
    parts = [part for name in RUNTIME_PARTS if (part := getattr(model, name)) is not None]
    parameters = sum(p.numel() for part in parts for p in part.parameters())
    return {
        "parameters_m": round(parameters / 1e6, 3),
        "encoder_gflop": round(encoder, 4),
        "mixture_gflop": round(mixture, 4),
        "decoder_gflop": round(decoder, 4),
        "image_size": size,
    }


def main() -> None:
    from training.config import load

    parser = argparse.ArgumentParser(description="parameters and GFLOP of each part of a configuration")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    arguments = parser.parse_args()
    numbers = cost(load(arguments.config).model)
    if arguments.json:
        print(json.dumps(numbers))
    else:
        for name, number in numbers.items():
            print(f"{name:15} {number:>9}")


if __name__ == "__main__":
    main()
