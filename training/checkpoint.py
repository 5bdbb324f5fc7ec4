"""Checkpoints without pickle: safetensors with a JSON header, each file written whole or not at all.

    NAME.safetensors        the averaged (EMA) weights, what export takes; its metadata repeats NAME.json
    NAME.json               configuration and progress, for people and scripts
    last.state.safetensors  everything that --resume needs: weights, EMA, discriminator, Adam moments, progress

`--resume` reads the state file alone, so a process killed between two writes can't leave a mix of two moments.
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

from picme_sdk.errors import CheckpointError
from picme_sdk.io import replacing
from training.config import TrainConfig, build, from_dict
from training.model import Picme, PicmeConfig

KEY = "picme"  # name of the metadata entry
# Prefixes of tensors in the state files of earlier versions.
RENAMED_PREFIXES = {"judge.": "discriminator.", "adam.judge.": "adam.discriminator."}


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    images: int = 0  # trained on so far, over all phases
    step: int = 0
    seconds: float = 0.0  # of training, over all resumptions
    best: float | None = None  # lowest validation score so far


def _write(path: Path, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={KEY: json.dumps(note)})
        except SafetensorError as error:
            raise CheckpointError(
                f"{path}: {error}", "a place to write to", "free some space, then --resume"
            ) from error
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt") as file:
            note = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {error}", "a PICME checkpoint", "check the path, or train again") from error
    if not isinstance(note, dict) or "config" not in note:
        raise CheckpointError(f"{path}: no PICME metadata", "a file that training/train.py wrote", "check the path")
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
    """A .pt file with {"config", "size", "weights"}. Only plain tensors are unpickled, whatever the file contains."""
    try:
        table = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many exceptions on damaged data, IndexError and TypeError among them
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: {reason}", "a file of tensors only", "save it as .safetensors") from error
    known = (
        isinstance(table, dict) and {"config", "size", "weights"} <= table.keys() and isinstance(table["weights"], dict)
    )
    if not known:
        has = sorted(map(str, table))[:5] if isinstance(table, dict) else type(table).__name__
        raise CheckpointError(
            f"{path}: holds {has}", '{"config", "size", "weights"}', "export OUT/last.safetensors of a training run"
        )
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in table["weights"].items()}
    return tensors, {key: table[key] for key in ("config", "size")}


def _check_shapes(config: PicmeConfig, tensors: dict[str, Tensor]) -> None:
    """Compare before the network is allocated: a small file may describe one that fits into no memory."""
    with torch.device("meta"):
        wanted = {name: tuple(tensor.shape) for name, tensor in Picme(config).state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise ValueError(f"{name} is {given.get(name, 'missing')}, not {wanted.get(name, 'known')}")


def load_weights(path: Path) -> tuple[Picme, TrainConfig, dict[str, Any]]:
    """A model in eval mode at the size it was trained at, its training configuration, and the rest of the metadata.

    Reads `.safetensors` of a training run, or a `.pt` with the same contents. Keys of earlier versions of the configuration are
    read with a warning in the log.
    """
    tensors, note = _read_pt(path) if path.suffix in (".pt", ".pth") else _read(path)
    try:
        config = from_dict(note["config"], str(path))
        note["progress"] = dataclasses.asdict(build(Progress, note.get("progress", {}), str(path)))
        _check_shapes(config.model.at(note["size"]), tensors)
        model = Picme(config.model.at(note["size"]))
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})  # files may be float16
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: {reason}", "weights that fit their configuration", "train again") from error
    bad = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise CheckpointError(f"{path}: {bad[0]} is not finite", "finite weights", "use an earlier checkpoint")
    return model.eval(), config, note


def save_state(path: Path, tensors: dict[str, Tensor], config: TrainConfig, progress: Progress) -> None:
    """Write everything that `--resume` needs; `tensors` are those of `Trainee.state`."""
    _write(path, tensors, {"config": dataclasses.asdict(config), "progress": dataclasses.asdict(progress)})


def read_state(path: Path) -> tuple[dict[str, Tensor], TrainConfig, Progress]:
    """The inverse of `save_state`."""
    tensors, note = _read(path)
    tensors = {_current_name(name): tensor for name, tensor in tensors.items()}
    try:
        return tensors, from_dict(note["config"], str(path)), build(Progress, note["progress"], str(path))
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(f"{path}: {error}", "the state of a run", "choose another --out") from error


def _current_name(name: str) -> str:
    for old, new in RENAMED_PREFIXES.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name
