"""The PICME network, written to be cut into three graphs: encoder, mixture head, decoder.

    photo + mask -> encode  (once)  -> code z_m, skips (already projected for the decoder)
    code         -> mixture (once)  -> log_weights, means, log_scales of q(z_c | z_m)
    skips + z_c  -> decode  (n times)

Everything that does not depend on z_c happens in `encode`; `decode` only *adds* the skips, so skips of batch 1 broadcast
against n latents. The network works on 4x4 pixel patches and each stage halves the grid. A stage also reads the picture
itself, averaged down to its grid, and also paints its own coarse picture. That makes a smaller network a part of the next
larger one: `grow` adds an outer stage that initially changes nothing, so progressive training keeps what was learned.

The names of parameters (`context_head`, `pixel_path.look`, ...) are the format of checkpoints and stay as they are.

    python -m training.model --config training/configs/pets256.toml [--json]     parameters and GFLOP of each part
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picme_sdk.errors import BadConfig
from training.layers import SLOPE, SURE, Block, Gaussian, GaussianHead, Pyramid, bounded, pull_push, start_at_zero

T = TypeVar("T")


@dataclass(frozen=True)
class PicmeConfig:
    """The architecture; saved with every checkpoint."""

    image_size: int = 256  # side of the square picture, pixels
    patch: int = 4  # side of the pixel patches that the stem folds into channels
    widths: tuple[int, ...] = (32, 64, 128, 192)  # channels of the stages, finest grid first
    encoder_blocks: tuple[int, ...] = (1, 1, 2, 2)  # residual blocks of each stage
    decoder_blocks: tuple[int, ...] = (1, 1, 1, 1)
    code: int = 256  # dimensions of z_m
    latent: int = 128  # dimensions of z_c
    primitives: int = 6  # k, Gaussians in the mixture
    attention: int = 0  # side of the grid on which the encoder attends to the whole picture; 0 = nowhere
    pixel_path_width: int = 0  # channels of the encoder's pixel path, 0 = none; the smaller networks of `at` have none

    def __post_init__(self) -> None:
        for name in ("widths", "encoder_blocks", "decoder_blocks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        stages = len(self.widths)
        if not stages == len(self.encoder_blocks) == len(self.decoder_blocks):
            raise BadConfig(
                f"{stages} widths, {len(self.encoder_blocks)} encoder_blocks, {len(self.decoder_blocks)} decoder_blocks",
                "one of each per stage",
                "give lists of one length",
            )
        if self.image_size % (self.patch << (stages - 1)) or min(self.grids) < 2:
            raise BadConfig(
                f"image_size {self.image_size} with patch {self.patch} and {stages} stages",
                f"a multiple of {self.patch << (stages - 1)}",
                "change size, patch or stages",
            )
        if self.attention and self.attention not in self.grids:
            raise BadConfig(
                f"attention on a grid of {self.attention}", f"0 or one of {list(self.grids)}", "choose one of them"
            )

    @property
    def grids(self) -> tuple[int, ...]:
        """Side of each stage's grid, finest first."""
        return tuple(self.image_size // self.patch >> i for i in range(len(self.widths)))

    def at(self, size: int) -> PicmeConfig:
        """The configuration of the same core for pictures of `size`, without the outer stages."""
        drop = (self.image_size // size).bit_length() - 1
        if self.image_size >> drop != size or drop >= len(self.widths):
            raise BadConfig(
                f"size {size}", f"{self.image_size} halved fewer than {len(self.widths)} times", "choose such a size"
            )
        return replace(
            self,
            image_size=size,
            widths=self.widths[drop:],
            encoder_blocks=self.encoder_blocks[drop:],
            decoder_blocks=self.decoder_blocks[drop:],
            attention=self.attention if self.attention <= self.grids[drop] else 0,
            pixel_path_width=0 if drop else self.pixel_path_width,
        )


class Mixture(NamedTuple):
    """q(z_c | z_m): log_weights [b, k], means and log_scales [b, k, d]."""

    log_weights: Tensor
    means: Tensor
    log_scales: Tensor


class Encoded(NamedTuple):
    """What `encode` returns: z_m [b, code], and one skip per stage, coarsest first, already projected for the decoder. With a pixel path,
    its patches are the last skip."""

    code: Tensor
    skips: tuple[Tensor, ...]


class PixelPath(nn.Module):
    """What the surroundings of a hole determine, painted once per photo: patches [b, 3 p^2, g, g] that the decoder adds to its own.

    Across a thin hole, lines must continue to the pixel, and the decoder's finest stage has fewer channels than a patch has
    values. This path reads the patches themselves, with the hole roughly filled, beside the encoder's features of all grids. Its
    last layer starts at zero.
    """

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.patch, width = config.patch, config.pixel_path_width
        values = self.patch**2
        self.look = nn.Conv2d(4 * values, width, 3, padding=1)
        self.hints = nn.ModuleDict(
            {str(g): nn.Conv2d(w, width, 1) for g, w in zip(config.grids, config.widths, strict=True)}
        )
        self.block = Block(width)
        self.paint = nn.Conv2d(width, 3 * values, 3, padding=1)
        start_at_zero(self.paint)

    def forward(self, picture: Tensor, features: Sequence[Tensor]) -> Tensor:
        """`picture` [b, 4, s, s]: colours, which are 0 in the hole, and the mask."""
        values = self.patch**2
        patches: Tensor = F.pixel_unshuffle(picture, self.patch)
        colours, hole = patches[:, : 3 * values], patches[:, 3 * values :]
        averages = F.avg_pool2d(picture, self.patch)
        guess = pull_push(averages[:, :3], 1 - averages[:, 3:])
        filled = colours + hole.repeat(1, 3, 1, 1) * guess.repeat_interleave(values, 1)
        x = self.look(torch.cat([filled, hole], 1)) + self.hint(features)
        patches = self.paint(self.block(F.leaky_relu(x, SLOPE)))
        return patches

    def hint(self, features: Sequence[Tensor]) -> Tensor:
        """The features of all grids, added up on the finest."""
        hints: list[Tensor] = [conv(feature) for conv, feature in zip(self.hints.values(), features, strict=True)]
        total = hints[-1]
        for hint in hints[-2::-1]:
            total = hint + F.interpolate(total, scale_factor=2.0)
        return total


class MixtureHead(nn.Module):
    """z_m -> alpha, mu, Sigma of the k primitives."""

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.shape = (config.primitives, config.latent)
        outputs = config.primitives * config.latent
        self.trunk = nn.Linear(config.code, 512)
        self.alpha = nn.Linear(512, config.primitives)
        self.mu = nn.Linear(512, outputs)
        self.sigma = nn.Linear(512, outputs)
        start_at_zero(self.alpha)  # All primitives start equally likely ...
        nn.init.normal_(self.mu.bias)  # ... and with different means.

    def forward(self, code: Tensor) -> Mixture:
        x = F.leaky_relu(self.trunk(code), SLOPE)
        log_weights = F.log_softmax(self.alpha(x), dim=1)
        means = self.mu(x).reshape(-1, *self.shape)
        return Mixture(log_weights, means, bounded(self.sigma(x)).reshape(-1, *self.shape))


class Decoder(nn.Module):
    """skips + z_c -> picture. z_c adds a map on the coarsest grid, and scales and shifts the features of the three coarsest stages."""

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
            if i < 3:  # conditioning the finer stages, which only add texture, costs time without a visible effect
                self.films[name] = nn.Linear(config.latent, 2 * width)
            self.stages[name] = nn.Sequential(*(Block(width) for _ in range(config.decoder_blocks[::-1][i])))
            self.heads[name] = nn.Conv2d(width, 3 * self.patch**2, 1)

    def _lift(self) -> nn.Conv2d:
        """Coarse picture -> patches of a picture of twice the size; starts as nearest-neighbour enlargement."""
        half = self.patch // 2
        lift = nn.Conv2d(3, 3 * self.patch**2, half, stride=half, bias=False)
        one_pixel_each = torch.eye(3 * half**2).reshape(-1, 3, half, half)
        with torch.no_grad():
            enlarged = F.interpolate(one_pixel_each, scale_factor=2.0)
            lift.weight.copy_(F.pixel_unshuffle(enlarged, self.patch)[..., 0, 0].T.reshape(lift.weight.shape))
        return lift

    def steer(self, z: Tensor) -> list[Tensor]:
        """Everything that depends on the latent alone: its map on the coarsest grid, then a scale and a shift for each of the first stages."""
        steering = [self.place(z)]
        for film in self.films.values():
            scale, shift = film(z).chunk(2, 1)
            steering += [1 + scale, shift]
        return steering

    def features(self, skips: Sequence[Tensor], steering: Sequence[Tensor]) -> list[Tensor]:
        """The feature maps of the stages, coarsest first."""
        placed, *films = steering
        x = self.spread(placed.reshape(-1, 48, self.grids[0], self.grids[0]))
        features: list[Tensor] = []
        for i, (grid, skip) in enumerate(zip(map(str, self.grids), skips, strict=True)):
            if features:
                x = F.interpolate(self.ups[grid](x), scale_factor=2.0)
            x = x + skip
            if grid in self.films:
                scale, shift = (each[..., None, None] for each in films[2 * i : 2 * i + 2])
                x = x * scale + shift
            x = self.stages[grid](F.leaky_relu(x, SLOPE))
            features.append(x)
        return features

    def sketch(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """The picture that the coarsest stage paints alone: the layout, in a tenth of the time."""
        grid = str(self.grids[0])
        placed, scale, shift, *_ = self.steer(z)
        x = self.spread(placed.reshape(-1, 48, self.grids[0], self.grids[0])) + skips[0]
        x = self.stages[grid](F.leaky_relu(x * scale[..., None, None] + shift[..., None, None], SLOPE))
        return F.pixel_shuffle(self.heads[grid](x), self.patch)

    def forward(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """The picture: each stage paints on the enlarged picture of the stage before."""
        skips, pixels = skips[: len(self.grids)], skips[len(self.grids) :]
        first, *finer = zip(map(str, self.grids), self.features(skips, self.steer(z)), strict=True)
        patches: Tensor = self.heads[first[0]](first[1])
        for grid, x in finer:
            patches = self.heads[grid](x) + self.lifts[grid](F.pixel_shuffle(patches, self.patch))
        return F.pixel_shuffle(patches + pixels[0] if pixels else patches, self.patch)


class Picme(nn.Module):
    """Encoder f, mixture head and decoder g of the paper, and the training-only parts around them.

    Pictures are float RGB [b, 3, s, s] in [-1, 1], set to 0 where the network must not read them; masks are [b, 1, s, s] with
    1 = hole. Nothing here is random or depends on batch statistics; the caller draws the noise.
    """

    def __init__(self, config: PicmeConfig) -> None:
        super().__init__()
        self.config = config
        width, grid = config.widths[-1], config.grids[-1]
        self.encoder = Pyramid(
            4, config.patch, config.image_size, config.widths, config.encoder_blocks, config.attention
        )
        self.pixel_path = PixelPath(config) if config.pixel_path_width else None
        self.context_head = GaussianHead(width, grid, config.code, sure=True)
        self.context_to_skip = nn.Linear(config.code, width)
        start_at_zero(self.context_to_skip)  # the skips say enough until z_m has something to add
        self.projections = nn.ModuleDict(
            {str(g): nn.Conv2d(w, w, 1) for g, w in zip(config.grids, config.widths, strict=True)}
        )
        self.mixture_head = MixtureHead(config)
        self.decoder = Decoder(config)
        # Training only: p(z_c | I_c), and the small decoder of L_ELBO, which reconstructs I_m from z_m alone.
        self.posterior_head = GaussianHead(width, grid, config.latent)
        self.visible_decoder = nn.Sequential(
            nn.Linear(config.code, 256), nn.LeakyReLU(SLOPE), nn.Linear(256, 48 * grid * grid),
            nn.Unflatten(1, (48, grid, grid)), nn.PixelShuffle(4),
        )  # fmt: skip

    @torch.no_grad()
    def standardise_code(self, image: Tensor, mask: Tensor) -> None:
        """Bring z_m to mean 0 and variance 1 over these pictures without changing the output of any layer that reads it.

        With ordinary random weights z_m differs between pictures by hundredths, and the layers that read it learn slowly. If the code is mostly
        noise, its scale is reset to a small one: a noisy code is ignored, and would stay noisy.
        """
        code = self.context_head(self.encoder(torch.cat([image, mask], 1))[-1])
        offset, spread = code.mean.mean(0), code.mean.std(0).clamp_min(1e-6)
        out, size = self.context_head.out, len(offset)
        out.weight[:size] /= spread[:, None]
        out.bias[:size] = (out.bias[:size] - offset) / spread
        if code.log_scale.exp().mean() > 0.5:
            out.weight[size:] = 0
            out.bias[size:] = SURE
        for reader in (self.mixture_head.trunk, self.context_to_skip, cast(nn.Linear, self.visible_decoder[0])):
            reader.bias.add_(reader.weight @ offset)
            reader.weight.mul_(spread)

    def visible(self, image: Tensor, mask: Tensor) -> tuple[Gaussian, tuple[Tensor, ...]]:
        """q(z_m | I_m) and the skips: `encode` with the standard deviation of z_m, which only L_ELBO needs."""
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
        """Photo with the hole set to 0, and mask -> everything that does not depend on the sample."""
        code, skips = self.visible(image, mask)
        return Encoded(code.mean, skips)

    def mixture(self, code: Tensor) -> Mixture:
        """z_m -> the Gaussian mixture over z_c."""
        mixture: Mixture = self.mixture_head(code)
        return mixture

    def posterior(self, image_c: Tensor, mask: Tensor) -> Gaussian:
        """p(z_c | I_c) of the missing part: the same encoder f, which now reads only what is inside the hole."""
        posterior: Gaussian = self.posterior_head(self.encoder(torch.cat([image_c, 1 - mask], 1))[-1])
        return posterior

    def decode(self, skips: Sequence[Tensor], z: Tensor) -> Tensor:
        """Skips (batch 1 or n) and latents [n, d] -> n pictures [n, 3, s, s], approximately in [-1, 1]."""
        pictures: Tensor = self.decoder(skips, z)
        return pictures


def grow(small: nn.Module, large: nn.Module) -> None:
    """Copy `small` into `large`, the same network with outer stages added, so that `large` computes what `small` does.

    The connections of the new stages start at zero: the new encoder stage passes nothing on, and the new head paints nothing
    on top of the coarse picture.
    """
    kept = small.state_dict()
    new = {name for name in large.state_dict() if name not in kept}
    large.load_state_dict(kept, strict=False)
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            if name in new and any(part in name for part in (".downs.", ".heads.")):
                parameter.zero_()


RUNTIME_PARTS = ("encoder", "context_head", "context_to_skip", "projections", "pixel_path", "mixture_head", "decoder")


def cost(config: PicmeConfig) -> dict[str, float]:
    """Parameters at run time (millions) and GFLOP (2 x multiply-add) of encoder, mixture head and one decoder pass."""
    from torch.utils.flop_counter import FlopCounterMode

    model = Picme(config).eval()
    size = config.image_size
    image, mask = torch.zeros(1, 3, size, size), torch.zeros(1, 1, size, size)

    def gflop(run: Callable[[], T]) -> tuple[float, T]:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            result = run()
        return counter.get_total_flops() / 1e9, result

    encoder, encoded = gflop(lambda: model.encode(image, mask))
    mixture, _ = gflop(lambda: model.mixture(encoded.code))
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
