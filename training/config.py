"""A training configuration: one TOML file -> frozen dataclasses. Unknown keys are errors; `base` inherits another file."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.model import PicmeConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Phase:
    """One stretch of progressive training."""

    size: int  # side of the pictures, pixels
    images: int  # images seen in this phase; the last phase goes on as long as it is let
    batch: int  # images a step, over all processes together
    learning_rate: float = 1e-4


@dataclass(frozen=True)
class MaskMix:
    """Weights of the kinds of masks; they need not add up to 1."""

    center: float = 1.0  # the middle square, half the side
    rectangles: float = 0.0  # 1 to 5 random ones
    strokes: float = 0.0  # free-form lines, circles and ellipses
    folder: float = 0.0  # pictures from --masks DIR, light = hole


@dataclass(frozen=True)
class LossWeights:
    """Factors of the losses. The defaults are the paper's; the last group are departures that are off in the paper."""

    reconstruction: float = 1.0  # L_R
    adversarial: float = 0.05  # L_A
    frequency: float = 1.0  # L_F
    back_max: float = 1.0  # L_BM, summed over latent dimensions
    elbo: float = 1.0  # L_ELBO

    hole: float = 1.0  # how much more a pixel in the hole counts in the reconstruction
    winner: float = 0.0  # L1 in the hole of the decoded mean of the best primitive
    features: float = 0.0  # distance of discriminator features
    warm_share: float = 0.0  # share of L_BM on all primitives at the start ...
    warm_images: int = 1  # ... falling to zero by this many images
    means: float = 0.0  # share of the sampled batch that decodes the best primitive's mean
    categorical: float = 0.0  # share that samples a primitive by weight, as at test time; the rest samples the best one


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run, apart from where the pictures are."""

    name: str
    model: PicmeConfig = field(default_factory=PicmeConfig)
    phases: tuple[Phase, ...] = ()
    masks: MaskMix = field(default_factory=MaskMix)
    losses: LossWeights = field(default_factory=LossWeights)
    betas: tuple[float, float] = (0.0, 0.999)  # of Adam
    clip: float = 0.0  # largest gradient norm; 0 = no clipping
    ema: float = 0.999  # decay of the averaged weights, per step
    seed: int = 0

    def phase_at(self, images: int) -> tuple[int, Phase]:
        """The phase in force after `images` were seen."""
        for index, phase in enumerate(self.phases[:-1]):
            if images < phase.images:
                return index, phase
            images -= phase.images
        return len(self.phases) - 1, self.phases[-1]


def _build(kind: type, table: Any, where: str) -> Any:
    names = {f.name for f in dataclasses.fields(kind)}
    if not isinstance(table, dict) or set(table) - names:
        given = sorted(set(table) - names) if isinstance(table, dict) else table
        raise ValueError(f"{where}: {given} | expected keys among {sorted(names)} | mend the configuration")
    return kind(**table)


def from_dict(table: dict[str, Any], where: str) -> TrainConfig:
    """The inverse of `dataclasses.asdict`, for checkpoints and TOML files alike."""
    table = dict(table)
    table["model"] = _build(PicmeConfig, table.get("model", {}), f"{where} [model]")
    table["masks"] = _build(MaskMix, table.get("masks", {}), f"{where} [masks]")
    table["losses"] = _build(LossWeights, table.get("losses", {}), f"{where} [losses]")
    table["phases"] = tuple(_build(Phase, phase, f"{where} [[phases]]") for phase in table.get("phases", ()))
    table["betas"] = tuple(table.get("betas", TrainConfig.betas))
    if not table["phases"]:
        raise ValueError(f"{where}: no [[phases]] | expected at least one size to train at | add one")
    config: TrainConfig = _build(TrainConfig, table, where)
    for phase in config.phases:
        config.model.at(phase.size)  # raises when the network has no such size
    return config


def _read(path: Path) -> dict[str, Any]:
    table = tomllib.loads(path.read_text())
    if "base" not in table:
        return table
    merged = _read(path.parent / table.pop("base"))
    for key, value in table.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def load(path: Path) -> TrainConfig:
    """Read a TOML file; its name is the model's name."""
    return from_dict({"name": path.stem, **_read(path)}, path.name)
