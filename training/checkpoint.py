"""Checkpoints without pickle: safetensors with a JSON header, each file written whole or not at all.

    NAME.safetensors        the averaged (EMA) weights, what export takes; its metadata repeats NAME.json
    NAME.json               configuration and progress, for people and scripts
    last.state.safetensors  everything that --resume needs: weights, EMA, discriminator, Adam moments, progress

`--resume` reads the state file alone, so a kill between two writes can't mix two moments of a run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Adam

from picme_sdk.io import replacing
from training.config import TrainConfig, build, from_dict
from training.model import Picme, PicmeConfig

KEY = "picme"  # of the metadata entry


class CheckpointError(ValueError):
    """A checkpoint can't be used: the message says what was found, what was expected and what to do."""


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    images: int = 0  # seen in all phases
    step: int = 0
    seconds: float = 0.0  # of training, all stretches together
    best: float | None = None  # lowest validation score so far


def _write(path: Path, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={KEY: json.dumps(note)})
        except SafetensorError as error:
            raise CheckpointError(
                f"{path}: {error} | expected a place to write to | free some, then --resume"
            ) from error
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt") as file:
            note = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: {error} | expected a PICME checkpoint | check the path, or train anew"
        ) from error
    if not isinstance(note, dict) or "config" not in note:
        raise CheckpointError(
            f"{path}: no PICME metadata | expected a file that training/train.py wrote | check the path"
        )
    return tensors, note


def save_weights(
    path: Path, model: nn.Module, config: TrainConfig, size: int, progress: Progress, numbers: dict[str, Any]
) -> None:
    """Write the averaged weights and, beside them, the JSON that describes them."""
    note = {
        "config": dataclasses.asdict(config),
        "size": size,
        "progress": dataclasses.asdict(progress),
        "numbers": numbers,
    }
    _write(path, model.state_dict(), note)
    with replacing(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(note, indent=1) + "\n")


def _read_pt(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A .pt file with {"config", "size", "weights"}. Only plain tensors are unpickled, whatever the file asks for."""
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many exceptions on damaged data, IndexError and TypeError among them
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: {reason} | expected a file of tensors only | save as .safetensors") from error
    known = (
        isinstance(table, dict) and {"config", "size", "weights"} <= table.keys() and isinstance(table["weights"], dict)
    )
    if not known:
        has = sorted(map(str, table))[:5] if isinstance(table, dict) else type(table).__name__
        raise CheckpointError(
            f'{path}: holds {has} | expected {{"config", "size", "weights"}} | export OUT/last.safetensors of a training run'
        )
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in table["weights"].items()}
    return tensors, {key: table[key] for key in ("config", "size")}


def _check_shapes(config: PicmeConfig, tensors: dict[str, Tensor]) -> None:
    """A small file may describe a network that no memory holds: compare before one is made."""
    with torch.device("meta"):
        wanted = {name: tuple(tensor.shape) for name, tensor in Picme(config).state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ValueError(f"{name} is {found.get(name, 'missing')}, not {wanted.get(name, 'known')}")


def load_weights(path: Path) -> tuple[Picme, TrainConfig, dict[str, Any]]:
    """A model in eval mode at the size it was trained at, its training configuration, and the rest of the metadata.

    Takes `.safetensors` of a training run, or a `.pt` with the same contents.
    """
    tensors, note = _read_pt(path) if path.suffix in (".pt", ".pth") else _read(path)
    try:
        config = from_dict(note["config"], str(path))
        note["progress"] = dataclasses.asdict(build(Progress, note.get("progress", {}), str(path)))
        _check_shapes(config.model.at(note["size"]), tensors)
        model = Picme(config.model.at(note["size"]))
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})  # weights may be kept in half
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path}: {reason} | expected weights that fit their configuration | train anew"
        ) from error
    bad = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise CheckpointError(f"{path}: not finite: {bad[0]} | expected finite weights | take an earlier checkpoint")
    return model.eval(), config, note


@dataclass
class Trainee:
    """All that a run changes: networks, averaged weights, optimizers."""

    model: Picme
    average: Picme
    judge: nn.Module
    optimizers: dict[str, Adam]

    def _networks(self) -> dict[str, nn.Module]:
        return {"model": self.model, "average": self.average, "judge": self.judge}

    def state(self) -> dict[str, Tensor]:
        tensors = {f"{who}.{name}": t for who, net in self._networks().items() for name, t in net.state_dict().items()}
        for who, optimizer in self.optimizers.items():
            for i, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"adam.{who}.{i}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for who, net in self._networks().items():
            own = {name[len(who) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{who}.")}
            net.load_state_dict(own)
        for who, optimizer in self.optimizers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in tensors.items():
                if name.startswith(f"adam.{who}."):
                    _, _, i, moment = name.split(".")
                    owner = optimizer.param_groups[0]["params"][int(i)]
                    if tensor.shape == owner.shape:  # the fused optimizer reads memory in the order of the parameter's
                        tensor = torch.empty_like(owner).copy_(tensor)
                    state.setdefault(int(i), {})[moment] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def save_state(path: Path, trainee: Trainee, config: TrainConfig, progress: Progress) -> None:
    note = {"config": dataclasses.asdict(config), "progress": dataclasses.asdict(progress)}
    _write(path, trainee.state(), note)


def read_state(path: Path) -> tuple[dict[str, Tensor], TrainConfig, Progress]:
    tensors, note = _read(path)
    try:
        return tensors, from_dict(note["config"], str(path)), build(Progress, note["progress"], str(path))
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(f"{path}: {error} | expected the state of a run | choose another --out") from error
