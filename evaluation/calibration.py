"""Mode coverage and calibration of the predicted odds, on drawn faces, where the true odds of a hidden feature are known.

    python evaluation/calibration.py --bundles picme=BUNDLE,pic=BUNDLE --out DIR [--count 100] [--samples 24] [--seed 0]

The features of a drawn face (evaluation/faces.py) are independent, so nothing visible predicts a hidden one: a hidden mouth smiles in 70 % of faces, and
hidden eyes have one of three colours. If only one eye is hidden, the other determines its colour: one answer. The bundles must be trained on drawn faces.
Writes OUT/calibration.json and OUT/calibration.md. docs/train/evaluation.md defines the numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from evaluation.cases import SEEDS
from evaluation.evaluate import guarded, whole_folder
from evaluation.faces import EYES, SKINS, SMILE, face
from evaluation.methods import bundles
from evaluation.metrics import bootstrap_mean
from evaluation.tables import shown, table
from picme_sdk.completer import Completer
from picme_sdk.errors import BadArgument

SIX = 6  # results that a user compares
FIRST_SEED = 1_000_000_007  # of the faces: far from those that evaluation/faces.py writes for small seeds
MOUTH, WHITE = (150, 30, 40), (255, 255, 255)
LEFT, RIGHT = (0.36, 0.42), (0.64, 0.42)  # centres of the eyes, as shares of the side
NOSE = (0.5, 0.53)  # skin that is never hidden
SMILING, FROWNING = 0.703, 0.657  # height of the middle of the mouth's stroke ...
STROKE = 1 / 30  # ... and its width
UNCLEAR = -1


def colour(picture: np.ndarray, point: tuple[float, float], palette: Sequence[tuple[int, int, int]]) -> int:
    """Index of the palette's colour that is nearest to a point of the picture."""
    size = len(picture)
    pixel = picture[int(point[1] * size), int(point[0] * size)].astype(float)
    return int(np.linalg.norm(np.array(palette, float) - pixel, axis=1).argmin())


def eye_colour(picture: np.ndarray, eyes: Sequence[tuple[float, float]] = (LEFT, RIGHT)) -> int:
    """Index of the eyes' colour; unclear if a pupil is nearer to white or skin, or if the eyes differ."""
    colours = {colour(picture, eye, (*EYES, WHITE, *SKINS)) for eye in eyes}
    first = colours.pop()
    return first if not colours and first < len(EYES) else UNCLEAR


def left_eye(picture: np.ndarray) -> int:
    return eye_colour(picture, [LEFT])


def mouth(picture: np.ndarray) -> int:
    """0 = smile, 1 = frown, by the height of the middle of the mouth's stroke; unclear if it is faint or between the two.

    Scaling down mixes colours linearly, so each pixel's share of the mouth's colour preserves the height of the stroke exactly.
    """
    size = len(picture)
    skin = picture[int(NOSE[1] * size), int(NOSE[0] * size)].astype(float)
    rows = np.arange(round(0.6 * size), round(0.78 * size))
    columns = slice(round(0.45 * size), round(0.55 * size))
    axis = np.array(MOUTH, float) - skin
    shares = ((picture[rows, columns] - skin) @ axis / (axis @ axis)).clip(0, 1).mean(1)
    if shares.sum() < STROKE * size / 2:
        return UNCLEAR
    height = shares @ (rows + 0.5) / shares.sum() / size
    middle, reach = (SMILING + FROWNING) / 2, (SMILING - FROWNING) / 4
    if abs(height - middle) < reach:
        return UNCLEAR
    return 0 if height > middle else 1


@dataclass(frozen=True)
class Feature:
    """A feature to hide: its box (left, top, right, bottom as shares of the side), how to read it from a picture, and its possible answers."""

    box: tuple[float, float, float, float]
    read: Callable[[np.ndarray], int]
    answers: tuple[str, ...]
    odds: Callable[[np.ndarray], np.ndarray]  # of the answers, given the whole face

    def mask(self, size: int) -> np.ndarray:
        mask = np.zeros((size, size), np.uint8)
        left, top, right, bottom = (round(size * share) for share in self.box)
        mask[top:bottom, left:right] = 255
        return mask


COLOURS = ("blue", "green", "brown")
FEATURES = {
    "mouth": Feature((0.28, 0.58, 0.72, 0.8), mouth, ("smile", "frown"), lambda face: np.array([SMILE, 1 - SMILE])),
    "eyes": Feature((0.25, 0.34, 0.75, 0.5), eye_colour, COLOURS, lambda face: np.full(3, 1 / 3)),
    # Both drawn eyes have the same colour, so the visible one determines the hidden one.
    "left eye": Feature((0.25, 0.34, 0.47, 0.5), left_eye, COLOURS, lambda face: np.eye(3)[eye_colour(face)]),
}  # fmt: skip


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of absolute differences; unclear results, which make a sum less than 1, count as an answer that is never right."""
    return float((np.abs(a - b).sum() + abs(a.sum() - b.sum())) / 2)


def frequencies(answers: Sequence[int], weights: Sequence[float], count: int) -> np.ndarray:
    """Weight of each answer, for weights that add up to 1."""
    totals = np.zeros(count)
    for answer, weight in zip(answers, weights, strict=True):
        if answer != UNCLEAR:
            totals[answer] += weight
    return totals


def expected_modes(odds: np.ndarray, n: int = SIX) -> float:
    """How many different answers n perfect samples show on average."""
    return float((1 - (1 - odds) ** n).sum())


def measure(completer: Completer, feature: Feature, count: int, samples: int, seed: int) -> dict[str, Any]:
    """One bundle, one hidden feature, `count` faces."""
    size, k = completer.manifest.image_size, len(feature.answers)
    mask = feature.mask(size)
    sampled, weighed, truths, modes, perfect = [], [], [], [], []
    random = np.random.default_rng(seed)
    for number in range(count):
        photo = np.asarray(face(FIRST_SEED + seed * SEEDS + number, size))
        scene = completer.encode(photo, mask)
        answers = [feature.read(r.image) for r in scene.sample(samples, seed * SEEDS + number, "categorical")]
        # The answer that a primitive's mean shows gets the primitive's weight.
        means = [feature.read(scene.sample(1, 0, primitive=i, temperature=0)[0].image) for i, _ in scene.primitives]
        odds = feature.odds(photo)
        sampled.append(frequencies(answers, [1 / samples] * samples, k))
        weighed.append(frequencies(means, [weight for _, weight in scene.primitives], k))
        truths.append(odds)
        modes.append(len(set(answers[:SIX]) - {UNCLEAR}))
        perfect.append(random.multinomial(samples, odds) / samples)

    def each(shares: Sequence[np.ndarray]) -> dict[str, float | None]:
        return bootstrap_mean(np.array([total_variation(s, t) for s, t in zip(shares, truths, strict=True)]))._asdict()

    truth = np.mean(truths, 0)
    return {
        "answers": list(feature.answers),
        "true": truth.tolist(),
        "sampled": np.mean(sampled, 0).tolist(),
        "weights": np.mean(weighed, 0).tolist(),
        "unclear": 1 - float(np.sum(sampled) / count),
        "distance_sampled": total_variation(np.mean(sampled, 0), truth),
        "distance_weights": total_variation(np.mean(weighed, 0), truth),
        "distance_sampled_a_face": each(sampled),
        "distance_weights_a_face": each(weighed),
        "distance_of_perfect_samples_a_face": each(perfect),
        "modes_of_six": bootstrap_mean(np.array(modes, float))._asdict(),
        "modes_of_six_perfect": float(np.mean([expected_modes(odds) for odds in truths])),
    }


def markdown(report: dict[str, Any]) -> str:
    setting = report["setting"]
    parts = [
        "# Calibration and mode coverage on drawn faces\n",
        f"{setting['count']} faces, {setting['samples']} samples each, seed {setting['seed']}. Distances are total variation: 0 = the true odds, 1 = never right."
        " In brackets: 95 % interval, bootstrap over faces. docs/train/evaluation.md defines every row.\n",
    ]
    for hidden, methods in report["features"].items():
        names, measured = list(methods), list(methods.values())
        first = measured[0]

        def row(title: str, cell: Callable[[dict[str, Any]], str], perfect: str, of: Sequence[Any] = measured) -> list[str]:  # fmt: skip
            return [title, *(cell(m) for m in of), perfect]

        rows = [
            [f"{answer}: samples / weights", *(f"{m['sampled'][i]:.3f} / {m['weights'][i]:.3f}" for m in measured), f"{first['true'][i]:.3f}"]
            for i, answer in enumerate(first["answers"])
        ]  # fmt: skip
        rows += [
            row("unclear samples", lambda m: f"{m['unclear']:.3f}", "0.000"),
            row("distance, samples ↓", lambda m: f"{m['distance_sampled']:.3f}", "0.000"),
            row("distance, weights ↓", lambda m: f"{m['distance_weights']:.3f}", "0.000"),
            row("distance per face, samples ↓", lambda m: shown(m["distance_sampled_a_face"], 3), shown(first["distance_of_perfect_samples_a_face"], 3)),
            row("distance per face, weights ↓", lambda m: shown(m["distance_weights_a_face"], 3), "0.000"),
            row(f"answers among {SIX} samples", lambda m: shown(m["modes_of_six"], 2), f"{first['modes_of_six_perfect']:.2f}"),
        ]  # fmt: skip
        parts += [f"## hidden: {hidden}\n", table(["", *names, "perfect"], rows)]
    return "\n".join(parts)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, write OUT, and return what was written."""
    for name, low, high in (("count", 1, 1_000_000), ("samples", SIX, 1000), ("seed", 0, 1 << 20)):
        if not low <= getattr(options, name) <= high:
            raise BadArgument(f"--{name} {getattr(options, name)}", f"{low} to {high}", "choose another")
    methods = bundles(options.bundles)
    with whole_folder(options.out) as folder:
        features = {
            hidden: {
                m.name: measure(m.completer, feature, options.count, options.samples, options.seed)
                for m in methods
                if m.completer
            }
            for hidden, feature in FEATURES.items()
        }
        setting = {"count": options.count, "samples": options.samples, "seed": options.seed}
        report = {"setting": setting, "methods": {m.name: m.about for m in methods}, "features": features}
        (folder / "calibration.json").write_text(json.dumps(report, indent=1) + "\n")
        (folder / "calibration.md").write_text(markdown(report))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="compare predicted odds with the true odds on drawn faces")
    parser.add_argument("--bundles", required=True, help="NAME=BUNDLE, with commas")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    parser.add_argument("--count", type=int, default=100, help="faces (100)")
    parser.add_argument("--samples", type=int, default=24, help="results per face (24)")
    parser.add_argument("--seed", type=int, default=0, help="of faces and samples (0)")
    options = parser.parse_args()
    return guarded(lambda: markdown(run(options)) + f"\nwritten to {options.out}")


if __name__ == "__main__":
    sys.exit(main())
