"""Everything that a run updates: the networks, the averaged weights and the optimizers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam

from training.backbone import Backbone
from training.config import TrainConfig
from training.discriminator import BackboneDiscriminator, Discriminator, PyramidDiscriminator
from training.model import Picme, grow


@dataclass
class Trainee:
    """The networks for pictures of one size. `average` is the exponential moving average of `model`, which is what gets exported."""

    model: Picme
    average: Picme
    discriminator: Discriminator
    optimizers: dict[str, Adam]  # by network: "model", "discriminator"

    @classmethod
    def new(cls, config: TrainConfig, size: int, backbone: Backbone | None, device: torch.device) -> Trainee:
        """Untrained networks, always the same for one configuration. The loop sets the learning rates before each step."""
        torch.manual_seed(config.seed)
        model = Picme(config.model.at(size))
        average = Picme(config.model.at(size)).requires_grad_(False).eval()
        average.load_state_dict(model.state_dict())
        discriminator = PyramidDiscriminator(size) if backbone is None else BackboneDiscriminator(size, backbone)
        for net in (model, average, discriminator):
            net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        trained: dict[str, nn.Module] = {"model": model, "discriminator": discriminator}
        optimizers = {name: Adam(net.parameters(), betas=config.betas, fused=True) for name, net in trained.items()}
        return cls(model, average, discriminator, optimizers)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model, "average": self.average, "discriminator": self.discriminator}

    def grow_from(self, smaller: Trainee) -> None:
        """Take over the networks of a smaller picture size; the optimizers start again."""
        for name, net in self.networks().items():
            grow(smaller.networks()[name], net)

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """All weights and Adam moments by name."""
        tensors = {f"{who}.{name}": t for who, net in self.networks().items() for name, t in net.state_dict().items()}
        for who, optimizer in self.optimizers.items():
            for i, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"adam.{who}.{i}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        for who, net in self.networks().items():
            own = {name[len(who) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{who}.")}
            net.load_state_dict(own)
        for who, optimizer in self.optimizers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in tensors.items():
                if name.startswith(f"adam.{who}."):
                    _, _, i, moment = name.split(".")
                    owner = optimizer.param_groups[0]["params"][int(i)]
                    if tensor.shape == owner.shape:  # the fused optimizer needs the memory layout of the parameter
                        tensor = torch.empty_like(owner).copy_(tensor)
                    state.setdefault(int(i), {})[moment] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
