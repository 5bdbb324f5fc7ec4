"""A training configuration: one TOML file -> frozen dataclasses. Unknown keys are errors; `base` inherits from another file."""

from __future__ import annotations

import dataclasses
import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from picme_sdk.errors import BadConfig
from training.model import PicmeConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger("training")
T = TypeVar("T")

MAX_BLOCKS = 64  # per stage
MAX_BASES = 8  # in a chain of files; a file that is its own base would have no end

# Keys of earlier versions, in files and in checkpoints. They are read with a warning.
RENAMED = {
    "judge": "discriminator",
    "judge_rate": "discriminator_rate",
    "nearest": "min_crop",
    "recolour": "photometric_jitter",
    "model.context": "model.code",
    "model.pixel_width": "model.pixel_path_width",
    "losses.visible_noise": "losses.elbo_noise",
    "losses.posterior": "losses.posterior_gradient",
    "losses.hole": "losses.hole_weight",
    "losses.choice": "losses.best_sketch",
    "losses.visibility": "losses.mean_spacing",
    "losses.visible_unit": "losses.spacing_unit",
    "losses.gist": "losses.sample_layout",
    "losses.slope": "losses.gradient_penalty",
    "losses.balance": "losses.win_handicap",
    "losses.means": "decode_mix.winner_mean",
    "losses.categorical": "decode_mix.by_weight",
    "losses.even": "decode_mix.uniform",
}


@dataclass(frozen=True)
class Phase:
    """One stretch of progressive training."""

    size: int  # side of the pictures, pixels
    images: int  # length of the phase; the last one continues until the run is stopped
    batch: int  # images per step, over all processes together
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
    border: float = 0.0  # holes that extend beyond the picture
    scribble: float = 0.0  # thick freehand strokes
    wires: float = 0.0  # thin wires and scratches
    text: float = 0.0  # letters
    folder: float = 0.0  # pictures from --masks DIR, light = hole


@dataclass(frozen=True)
class LossWeights:
    """Factors of the losses. The defaults are the paper's; the second group are departures, which the paper does not have."""

    reconstruction: float = 1.0  # L_R
    adversarial: float = 0.05  # L_A
    frequency: float = 1.0  # L_F
    back_max: float = 1.0  # L_BM, summed over latent dimensions
    elbo: float = 1.0  # L_ELBO

    elbo_noise: float = 1.0  # scale of the Laplace distribution around what L_ELBO reconstructs of I_m
    posterior_gradient: float = 1.0  # share of L_BM's gradient that reaches the posterior; the mixture gets all of it
    hole_weight: float = 1.0  # weight of a pixel in the hole in the reconstruction loss; a visible pixel has 1
    winner: float = 0.0  # L1 in the hole of the decoded mean of the best primitive
    best_sketch: float = 0.0  # L1 in the hole of the best of all primitives' sketches
    mean_spacing: float = 0.0  # distances between means match the distances between their sketches
    spacing_unit: float = 0.3  # latent distance (root mean square) of two means whose sketches differ by 1
    features: float = 0.0  # perceptual distance of reconstructions and decoded means, in the discriminator's features
    sample_layout: float = 0.0  # the same for samples, in the coarsest features only: what is where
    gradient_penalty: float = 1.0  # R1 penalty on the discriminator at real pictures
    win_handicap: float = 0.0  # nats by which a primitive that is e times likelier must be nearer to be the best one
    warm_share: float = 0.0  # share of L_BM on all primitives at the start ...
    warm_images: int = 1  # ... falling to zero by this many images


@dataclass(frozen=True)
class DecodeMix:
    """What the second decoder pass of a step decodes, as shares of the batch; the rest samples the best primitive."""

    winner_mean: float = 0.0  # the mean of the best primitive
    by_weight: float = 0.0  # a sample of a primitive drawn by weight, as at test time
    uniform: float = 0.0  # a sample of a primitive drawn uniformly


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a training run, apart from where the pictures are."""

    name: str
    model: PicmeConfig = field(default_factory=PicmeConfig)
    phases: tuple[Phase, ...] = ()
    masks: MaskMix = field(default_factory=MaskMix)
    losses: LossWeights = field(default_factory=LossWeights)
    decode_mix: DecodeMix = field(default_factory=DecodeMix)
    betas: tuple[float, float] = (0.0, 0.999)  # of Adam
    discriminator: str = "pyramid"  # "pyramid" is trained from scratch, "backbone" reads a frozen network's features
    discriminator_rate: float = 1.0  # its learning rate, as a multiple of the generator's
    clip: float = 0.0  # largest gradient norm; 0 = no clipping
    ema: float = 0.999  # decay of the averaged weights, per step
    bfloat16: bool = (
        False  # run the generator's convolutions in bfloat16; docs/train/training.md says where that is faster
    )
    min_crop: float = 1.0  # side of the smallest crop, as a share of the picture's; 1 = always the whole picture
    photometric_jitter: bool = False  # vary exposure, contrast, white balance and JPEG quality of training pictures
    seed: int = 0

    def phase_at(self, images: int) -> tuple[int, Phase]:
        """The phase that applies after `images` images: its number and itself."""
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


def build(kind: type[T], table: Any, where: str) -> T:
    """A dataclass from a table of a file; anything that does not fit its fields is a `BadConfig`."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    names = {f.name for f in fields}
    if not isinstance(table, dict) or set(table) - names:
        given = sorted(set(table) - names) if isinstance(table, dict) else table
        raise BadConfig(f"{where}: {given}", f"keys among {sorted(names)}", "correct the configuration")
    missing = [f.name for f in fields if f.name not in table and _is_required(f)]
    if missing:
        raise BadConfig(f"{where}: no {missing[0]}", ", ".join(missing), "add it")
    for name, wanted in get_type_hints(kind).items():
        if name in table and not _fits(table[name], wanted):
            shown = getattr(wanted, "__name__", wanted) if get_origin(wanted) is None else wanted
            raise BadConfig(f"{where}: {name} = {str(table[name])[:60]!r}", f"{shown}", "correct the configuration")
    try:
        return kind(**table)
    except ArithmeticError as error:
        raise BadConfig(f"{where}: {error}", "numbers that fit together", "correct the configuration") from error


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def with_current_names(table: dict[str, Any], where: str) -> dict[str, Any]:
    """A copy in which keys of earlier versions have their present names; one warning lists what was renamed."""
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    renamed = []
    for old, new in RENAMED.items():
        (old_section, old_key), (new_section, new_key) = _split(old), _split(new)
        source = table.get(old_section) if old_section else table
        if not isinstance(source, dict) or old_key not in source:
            continue
        target = table.setdefault(new_section, {}) if new_section else table
        if not isinstance(target, dict) or new_key in target:
            raise BadConfig(
                f"{where}: {old} and {new}", f"{new} alone, the present name of {old}", "remove one of them"
            )
        target[new_key] = source.pop(old_key)
        renamed.append(f"{old} is {new}")
    if renamed:
        log.warning("%s has keys of an earlier version: %s", where, ", ".join(renamed))
    return table


def _split(key: str) -> tuple[str, str]:
    section, _, name = key.rpartition(".")
    return section, name


def from_dict(table: dict[str, Any], where: str) -> TrainConfig:
    """The inverse of `dataclasses.asdict`, for checkpoints and TOML files alike."""
    if not isinstance(table, dict) or not isinstance(table.get("phases", ()), (list, tuple)):
        raise BadConfig(f"{where}: not a table with [[phases]]", "a configuration", "correct it")
    table = with_current_names(table, where)
    for name, kind in (("model", PicmeConfig), ("masks", MaskMix), ("losses", LossWeights), ("decode_mix", DecodeMix)):
        table[name] = build(kind, table.get(name, {}), f"{where} [{name}]")
    table["phases"] = tuple(build(Phase, phase, f"{where} [[phases]]") for phase in table.get("phases", ()))
    if isinstance(table.get("betas"), list):
        table["betas"] = tuple(table["betas"])
    if not table["phases"]:
        raise BadConfig(f"{where}: no [[phases]]", "at least one size to train at", "add one")
    config = build(TrainConfig, table, where)
    _check_ranges(config, where)
    for phase in config.phases:
        config.model.at(phase.size)  # raises when the network has no such size
    return config


def _check_ranges(config: TrainConfig, where: str) -> None:
    model, mix = config.model, config.decode_mix
    frozen = config.discriminator == "backbone"
    bad = [
        what
        for what, good in {
            "[[phases]] size, batch": all(min(p.size, p.batch) > 0 and p.images >= 0 for p in config.phases),
            "[[phases]] learning_rate": all(phase.learning_rate > 0 for phase in config.phases),
            "[model] blocks": all(0 <= blocks <= MAX_BLOCKS for blocks in (*model.encoder_blocks, *model.decoder_blocks)),
            "[model] widths, code, latent, primitives": min(*model.widths, model.code, model.latent, model.primitives) > 0,
            "[decode_mix]": min(mix.winner_mean, mix.by_weight, mix.uniform) >= 0,
            "betas": len(config.betas) == 2 and all(0 <= beta < 1 for beta in config.betas),
            "discriminator": config.discriminator in ("pyramid", "backbone"),
            '[[phases]] size with discriminator = "backbone"': not frozen or all(p.size % 16 == 0 for p in config.phases),
            "min_crop": 0 < config.min_crop <= 1,
            "clip, ema, seed": config.clip >= 0 and 0 <= config.ema <= 1 and config.seed >= 0,
        }.items()
        if not good
    ]  # fmt: skip
    if bad:
        raise BadConfig(f"{where}: {bad[0]}", "numbers that can be trained with", "correct the configuration")


def _read(path: Path, depth: int = 0) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text())
    except ValueError as error:  # not UTF-8, or not TOML
        raise BadConfig(f"{path}: {error}", "a TOML file", "correct it") from error
    table = with_current_names(table, path.name)
    if "base" not in table:
        return table
    if not isinstance(table["base"], str) or depth >= MAX_BASES:
        raise BadConfig(f"{path}: base", f"the name of a file, and a chain of at most {MAX_BASES}", "correct it")
    merged = _read(path.parent / table.pop("base"), depth + 1)
    for key, value in table.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def load(path: Path) -> TrainConfig:
    """Read a TOML file; its name is the model's name."""
    return from_dict({"name": path.stem, **_read(path)}, path.name)
