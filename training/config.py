"""A training configuration: one TOML file -> frozen dataclasses. Unknown keys are errors; `base` inherits another file."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from training.model import PicmeConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MOST_BLOCKS = 64  # of a stage
MOST_BASES = 8  # of each other; a file that is its own base has no end


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
    strokes: float = 0.0  # short lines, circles and ellipses all over
    pic_random: float = 0.0  # PIC's random masks: about half of the picture
    blob: float = 0.0  # an object-like blob or polygon, 3 to 35 % of the picture
    several: float = 0.0  # two to five smaller ones
    border: float = 0.0  # holes that leave the picture
    scribble: float = 0.0  # thick freehand strokes
    wires: float = 0.0  # thin wires and scratches
    text: float = 0.0  # letters
    folder: float = 0.0  # pictures from --masks DIR, light = hole


@dataclass(frozen=True)
class LossWeights:
    """Factors of the losses. The defaults are the paper's; the last group are departures that are off in the paper."""

    reconstruction: float = 1.0  # L_R
    adversarial: float = 0.05  # L_A
    frequency: float = 1.0  # L_F
    back_max: float = 1.0  # L_BM, summed over latent dimensions
    elbo: float = 1.0  # L_ELBO

    visible_noise: float = 1.0  # scale of the noise around what L_ELBO rebuilds of I_m
    posterior: float = 1.0  # share of L_BM's gradient that the posterior follows; the mixture follows all of it
    hole: float = 1.0  # how much more a pixel in the hole counts in the reconstruction
    winner: float = 0.0  # L1 in the hole of the decoded mean of the best primitive
    choice: float = 0.0  # L1 in the hole of the best of all primitives' sketches
    visibility: float = 0.0  # distances between means agree with those between their sketches
    visible_unit: float = 0.3  # latent distance (root mean square) of means whose sketches differ by 1
    features: float = 0.0  # distance of the features that the discriminator uses: reconstruction and decoded means
    gist: float = 0.0  # the same for samples, of the coarsest features only
    slope: float = 1.0  # penalty on the discriminator's slope at real pictures
    balance: float = 0.0  # nats by which a primitive that is e times likelier must be nearer to be the best one
    warm_share: float = 0.0  # share of L_BM on all primitives at the start ...
    warm_images: int = 1  # ... falling to zero by this many images
    means: float = 0.0  # share of the sampled batch that decodes the best primitive's mean
    categorical: float = 0.0  # share that samples a primitive by weight, as at test time
    even: float = 0.0  # share that samples every primitive equally often; the rest samples the best one


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run, apart from where the pictures are."""

    name: str
    model: PicmeConfig = field(default_factory=PicmeConfig)
    phases: tuple[Phase, ...] = ()
    masks: MaskMix = field(default_factory=MaskMix)
    losses: LossWeights = field(default_factory=LossWeights)
    betas: tuple[float, float] = (0.0, 0.999)  # of Adam
    judge_rate: float = 1.0  # learning rate of the discriminator, as a multiple of the generator's
    clip: float = 0.0  # largest gradient norm; 0 = no clipping
    ema: float = 0.999  # decay of the averaged weights, per step
    judge: str = "pyramid"  # the discriminator: "pyramid" learns all it knows, "backbone" sees with a frozen network
    bfloat16: bool = (
        False  # run the generator's convolutions in half precision; about twice as fast where the CPU has AMX
    )
    nearest: float = 1.0  # side of the smallest crop, as a share of the picture's; 1 = always the whole picture
    recolour: bool = False  # vary exposure, contrast, white balance and JPEG quality of training pictures
    seed: int = 0

    def phase_at(self, images: int) -> tuple[int, Phase]:
        """The phase in force after `images` were seen."""
        for index, phase in enumerate(self.phases[:-1]):
            if images < phase.images:
                return index, phase
            images -= phase.images
        return len(self.phases) - 1, self.phases[-1]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value has the type that its field is declared with."""
    if get_origin(kind) is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and abs(value) < 1e30
    return type(value) is kind


def build(kind: type, table: Any, where: str) -> Any:
    """A dataclass from a table of a file; whatever does not fit its fields is a ValueError."""
    names = {f.name for f in dataclasses.fields(kind)}
    if not isinstance(table, dict) or set(table) - names:
        given = sorted(set(table) - names) if isinstance(table, dict) else table
        raise ValueError(f"{where}: {given} | expected keys among {sorted(names)} | mend the configuration")
    missing = [f.name for f in dataclasses.fields(kind) if f.name not in table and _is_required(f)]
    if missing:
        raise ValueError(f"{where}: no {missing[0]} | expected {', '.join(missing)} | add it")
    for name, wanted in get_type_hints(kind).items():
        if name in table and not _fits(table[name], wanted):
            shown = getattr(wanted, "__name__", wanted) if get_origin(wanted) is None else wanted
            raise ValueError(f"{where}: {name} = {str(table[name])[:60]!r} | expected {shown} | mend the configuration")
    try:
        return kind(**table)
    except ArithmeticError as error:
        raise ValueError(f"{where}: {error} | expected numbers that fit together | mend the configuration") from error


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def from_dict(table: dict[str, Any], where: str) -> TrainConfig:
    """The inverse of `dataclasses.asdict`, for checkpoints and TOML files alike."""
    if not isinstance(table, dict) or not isinstance(table.get("phases", ()), (list, tuple)):
        raise ValueError(f"{where}: not a table with [[phases]] | expected a configuration | mend it")
    table = dict(table)
    table["model"] = build(PicmeConfig, table.get("model", {}), f"{where} [model]")
    table["masks"] = build(MaskMix, table.get("masks", {}), f"{where} [masks]")
    table["losses"] = build(LossWeights, table.get("losses", {}), f"{where} [losses]")
    table["phases"] = tuple(build(Phase, phase, f"{where} [[phases]]") for phase in table.get("phases", ()))
    if isinstance(table.get("betas"), list):
        table["betas"] = tuple(table["betas"])
    if not table["phases"]:
        raise ValueError(f"{where}: no [[phases]] | expected at least one size to train at | add one")
    config: TrainConfig = build(TrainConfig, table, where)
    _check_ranges(config, where)
    for phase in config.phases:
        config.model.at(phase.size)  # raises when the network has no such size
    return config


def _check_ranges(config: TrainConfig, where: str) -> None:
    model = config.model
    bad = [
        what
        for what, good in {
            "[[phases]] size, batch": all(min(p.size, p.batch) > 0 and p.images >= 0 for p in config.phases),
            "[[phases]] learning_rate": all(phase.learning_rate > 0 for phase in config.phases),
            "[model] blocks": all(0 <= blocks <= MOST_BLOCKS for blocks in (*model.encoder_blocks, *model.decoder_blocks)),
            "[model] widths, context, latent, primitives": min(*model.widths, model.context, model.latent, model.primitives) > 0,
            "betas": len(config.betas) == 2 and all(0 <= beta < 1 for beta in config.betas),
            "judge": config.judge in ("pyramid", "backbone"),
            '[[phases]] size with judge = "backbone"': config.judge != "backbone" or all(p.size % 16 == 0 for p in config.phases),
            "nearest": 0 < config.nearest <= 1,
            "clip, ema, seed": config.clip >= 0 and 0 <= config.ema <= 1 and config.seed >= 0,
        }.items()
        if not good
    ]  # fmt: skip
    if bad:
        raise ValueError(f"{where}: {bad[0]} | expected numbers that can be trained with | mend the configuration")


def _read(path: Path, depth: int = 0) -> dict[str, Any]:
    table = tomllib.loads(path.read_text())
    if "base" not in table:
        return table
    if not isinstance(table["base"], str) or depth >= MOST_BASES:
        raise ValueError(f"{path}: base | expected the name of a file, and at most {MOST_BASES} in a row | mend it")
    merged = _read(path.parent / table.pop("base"), depth + 1)
    for key, value in table.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def load(path: Path) -> TrainConfig:
    """Read a TOML file; its name is the model's name."""
    return from_dict({"name": path.stem, **_read(path)}, path.name)
