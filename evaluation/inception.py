"""The Inception network of the Frechet Inception Distance, with its original weights of 2015-12-05, which the user provides.

FID is defined by exactly these weights, so files with another hash are refused, and nothing else is called FID.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picme_sdk.errors import BadArgument

# The name under which pytorch-fid publishes it (torch-fidelity: weights-...); it ends with the first digits of the hash.
FILE = "pt_inception-2015-12-05-6726825d.pth"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
SIDE = 299
BATCH = 8
WIDE, TALL = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))  # kernel, stride, padding


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


def average(x: Tensor) -> Tensor:
    """Average pooling as in TensorFlow: padding does not count."""
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


class A(nn.Module):
    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inputs, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = Conv(inputs, 48, 1), Conv(48, 64, 5, padding=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inputs, 64, 1), Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3, self.branch_pool = Conv(96, 96, 3, padding=1), Conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat(
            [self.branch1x1(x), self.branch5x5_2(self.branch5x5_1(x)), double, self.branch_pool(average(x))], 1
        )


class B(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(inputs, 384, 3, 2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inputs, 64, 1), Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Conv(96, 96, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, 2)], 1)


class C(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(768, 192, 1)
        self.branch7x7_1, self.branch7x7_2 = Conv(768, width, 1), Conv(width, width, *WIDE)
        self.branch7x7_3 = Conv(width, 192, *TALL)
        self.branch7x7dbl_1, self.branch7x7dbl_2 = Conv(768, width, 1), Conv(width, width, *TALL)
        self.branch7x7dbl_3, self.branch7x7dbl_4 = Conv(width, width, *WIDE), Conv(width, width, *TALL)
        self.branch7x7dbl_5, self.branch_pool = Conv(width, 192, *WIDE), Conv(768, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), single, double, self.branch_pool(average(x))], 1)


class D(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = Conv(768, 192, 1), Conv(192, 320, 3, 2)
        self.branch7x7x3_1, self.branch7x7x3_2 = Conv(768, 192, 1), Conv(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7x3_3, self.branch7x7x3_4 = Conv(192, 192, (7, 1), padding=(3, 0)), Conv(192, 192, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), seven, F.max_pool2d(x, 3, 2)], 1)


class E(nn.Module):
    def __init__(self, inputs: int, maximum: bool) -> None:
        super().__init__()
        self.maximum = maximum  # the last block of the original pools by maximum
        self.branch1x1, self.branch3x3_1 = Conv(inputs, 320, 1), Conv(inputs, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = Conv(384, 384, (1, 3), padding=(0, 1)), Conv(384, 384, (3, 1), padding=(1, 0))  # fmt: skip
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inputs, 448, 1), Conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = Conv(384, 384, (1, 3), padding=(0, 1)), Conv(384, 384, (3, 1), padding=(1, 0))  # fmt: skip
        self.branch_pool = Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single, double = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch1x1(x), self.branch3x3_2a(single), self.branch3x3_2b(single)]
        parts += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)]
        pooled = F.max_pool2d(x, 3, 1, 1) if self.maximum else average(x)
        return torch.cat([*parts, self.branch_pool(pooled)], 1)


class Inception(nn.Module):
    """Pictures float [n, 3, h, w] in 0..1 -> features [n, 2048]."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Conv(3, 32, 3, 2), Conv(32, 32, 3)
        self.Conv2d_2b_3x3, self.Conv2d_3b_1x1 = Conv(32, 64, 3, padding=1), Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d, self.Mixed_6a = A(192, 32), A(256, 64), A(288, 64), B(288)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = C(128), C(160), C(160), C(192)
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = D(), E(1280, False), E(2048, True)

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        return torch.cat([self._features(part) for part in torch.split(pictures, BATCH)])

    def _features(self, pictures: Tensor) -> Tensor:
        x = (enlarge(255 * pictures, SIDE) - 128) / 128
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, 2)))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        features: Tensor = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        return features.mean((2, 3))


def enlarge(pictures: Tensor, side: int) -> Tensor:
    """Bilinear to `side` as TensorFlow 1 did it: pixel i is taken from i * old / new, without half-pixel centres."""
    for axis in (2, 3):
        length = pictures.shape[axis]
        where = torch.arange(side) * (length / side)
        low = where.floor().long()
        high = (low + 1).clamp_max(length - 1)
        share = (where - low).reshape([-1 if i == axis else 1 for i in range(4)])
        pictures = pictures.index_select(axis, low) * (1 - share) + pictures.index_select(axis, high) * share
    return pictures


def load_inception(path: Path) -> Inception:
    """The network with its weights, or `BadArgument` for any file but the one that defines FID."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadArgument(f"{path}: {error.strerror}", f"the file {FILE}", "check the path") from error
    if digest != SHA256:
        raise BadArgument(
            f"{path} with SHA-256 {digest[:8]}...",
            f"{FILE}, SHA-256 {SHA256[:8]}...: only its features make a FID",
            "leave --inception out; --lpips gives a Frechet distance under its own name",
        )
    network = Inception()
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        kept = {name: tensor for name, tensor in weights.items() if not name.startswith("fc.")}
        network.load_state_dict(kept)
    except (RuntimeError, AttributeError, pickle.UnpicklingError) as error:
        raise BadArgument(
            f"{path}: {' '.join(str(error).split())[:160]}", "the weights of FID's Inception", "download it again"
        ) from error
    return network.eval().requires_grad_(False)
