"""A stand-in for PIC (Zheng et al., "Pluralistic Image Completion", 2019), to measure against: its published architecture with random weights.

Written from the facts of the publication: an encoder of five residual stages (32-64-128-128-128 channels at 128 to 8 pixels, pooling after the
convolutions), a prior head of six residual blocks to a latent of 128x8x8, a decoder of five transposed-convolution residual stages
(128-128-128-64-32) with affine instance norm, self-attention and attention to the encoder at 32x32, and RGB outputs at 32, 64, 128 and 256
that are fed back. Spectral norm is left out: it folds into the weights. Latency does not depend on the weights.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1


def act(x: Tensor) -> Tensor:
    return F.leaky_relu(x, SLOPE)


class DownBlock(nn.Module):
    """Pre-activation residual block; pooling comes last, so the convolutions run at the high resolution."""

    def __init__(self, inputs: int, outputs: int, hidden: int, down: bool = True, first: bool = False) -> None:
        super().__init__()
        self.down, self.first = down, first
        self.conv1 = nn.Conv2d(inputs, hidden, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(act(self.conv1(x if self.first else act(x))))
        if not self.down:
            return h + self.shortcut(x)
        if self.first:
            return F.avg_pool2d(h, 2) + self.shortcut(F.avg_pool2d(x, 2))
        return F.avg_pool2d(h + self.shortcut(x), 2)


class UpBlock(nn.Module):
    """Instance norm and transposed convolutions, in the main path and in the shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1 = nn.InstanceNorm2d(inputs, affine=True)
        self.norm2 = nn.InstanceNorm2d(outputs, affine=True)
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.up = nn.ConvTranspose2d(outputs, outputs, 3, stride=2, padding=1, output_padding=1)
        self.shortcut = nn.ConvTranspose2d(inputs, outputs, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(act(self.norm2(self.conv(act(self.norm1(x)))))) + self.shortcut(x)


class Attention(nn.Module):
    """Self-attention at 32x32 whose map also moves encoder features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Conv2d(width, width // 4, 1)
        self.merge = DownBlock(2 * width, width, width, down=False)

    def forward(self, x: Tensor, encoded: Tensor, mask: Tensor) -> Tensor:
        b, c, h, w = x.shape
        query = self.query(x).flatten(2)
        attention = torch.softmax(query.transpose(1, 2) @ query, dim=-1).transpose(1, 2)
        out = (x.flatten(2) @ attention).reshape(b, c, h, w) + x
        moved = (encoded.flatten(2).expand(b, -1, -1) @ attention).reshape(b, c, h, w)
        return self.merge(torch.cat([out, (1 - mask) * moved + mask * encoded], 1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (32, 64, 128, 128, 128)
        self.first = DownBlock(3, 32, 32, first=True)
        self.stages = nn.ModuleList(DownBlock(a, b, a) for a, b in pairwise(widths))
        self.prior = nn.Sequential(
            *(DownBlock(128, 128, 128, down=False) for _ in range(6)), DownBlock(128, 256, 128, down=False)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Latent mean and scale [b, 128, 8, 8], and the features at 32x32 for the attention."""
        x = self.first(image)
        kept = x
        for stage in self.stages:
            x = stage(x)
            kept = x if x.shape[-1] == 32 else kept
        mean, scale = self.prior(x).chunk(2, 1)
        return mean, F.softplus(scale), kept


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = DownBlock(128, 128, 128, down=False)
        self.ups = nn.ModuleList(
            [UpBlock(128, 128), UpBlock(128, 128), UpBlock(131, 128), UpBlock(131, 64), UpBlock(67, 32)]
        )
        self.heads = nn.ModuleList(nn.Conv2d(width, 3, 3) for width in (128, 128, 64, 32))
        self.attention = Attention(128)

    def forward(self, z: Tensor, encoded: Tensor, mask: Tensor) -> Tensor:
        x = self.start(z)
        rgb = x
        for i, up in enumerate(self.ups):
            x = up(x)
            if i == 1:
                x = self.attention(x, encoded, mask)
            if i >= 1:
                rgb = torch.tanh(self.heads[i - 1](F.pad(act(x), (1, 1, 1, 1), mode="reflect")))
                x = torch.cat([x, rgb], 1)
        return rgb
