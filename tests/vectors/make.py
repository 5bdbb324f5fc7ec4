"""Writes the vectors that Python and C++ must both reproduce: python tests/vectors/make.py

sampling.json   Philox words, uniforms, normals (as float32 bit patterns), chosen primitives, tokens
holes.json      squares around holes, grouping of holes, and whole compositions (pixels as base64)

Photos, masks and decoded squares are made by formulas, so that no other file is needed:
photo[y, x, c] = (7 y + 5 x + 31 c + (x y) // 16) mod 256, decoded[y, x, c] = (3 y + 11 x + 67 c + 90) mod 256.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from picme_sdk.bundle.manifest import Ambiguity  # noqa: E402
from picme_sdk.contract import STRATEGIES  # noqa: E402
from picme_sdk.mixture import philox, recipe, token  # noqa: E402
from picme_sdk.mixture.mixture import Mixture  # noqa: E402
from picme_sdk.pixels.crops import find_crops  # noqa: E402
from picme_sdk.pixels.mask import load_mask  # noqa: E402
from picme_sdk.pixels.photo import load  # noqa: E402

MODEL = "0123456789abcdef" * 4
SEEDS = (0, 7, 2**32 - 1, 2**32, 2**64 - 1)
SETTINGS = (token.Settings(), token.Settings(512), token.Settings(None, "auto"), token.Settings(2**20, "auto"))
# As version 1 wrote them: nothing writes them any more, and they must be read for ever.
VERSION_1 = {
    "draw": "AQEjRWeJq83vAAECAAcAAAAAAAAAAwAAADMzMz8rlT-G",
    "two holes": "AQEjRWeJq83vAAICAAQA__________8AAAAAAACAPxuQLn4",
    "variation": "AQEjRWeJq83vAWMAAAAAAAAAAQAAAJqZmT4AAQIABwAAAAAAAAADAAAAMzMzP_C9aPM",
    "blend": "AQEjRWeJq83vAgAAgD4AAQIABwAAAAAAAAADAAAAMzMzPwFjAAAAAAAAAAEAAACamZk-AAECAAcAAAAAAAAAAwAAADMzMz_8biV0",
}
SIZE = 32  # of the model in holes.json


def photo(width: int, height: int) -> np.ndarray:
    y, x, c = np.ogrid[:height, :width, :3]
    return ((7 * y + 5 * x + 31 * c + (x * y) // 16) % 256).astype(np.uint8)


def decoded(size: int) -> np.ndarray:
    y, x, c = np.ogrid[:size, :size, :3]
    return ((3 * y + 11 * x + 67 * c + 90) % 256).astype(np.uint8)


def sampling_vectors() -> dict[str, Any]:
    counters = [(0, 0, 0, 0), (1, 2, 3, 4), (2**32 - 1,) * 4, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    blocks = []
    for counter in counters:
        for seed in SEEDS:
            words = philox.philox(np.array(counter, np.uint64)[:, None], seed)[:, 0]
            blocks.append({"counter": counter, "seed": str(seed), "words": words.tolist()})
    uniforms = [
        {"seed": str(s), "result": r, "hole": h, "value": philox.uniform(s, r, h)}
        for s in SEEDS
        for r, h in ((0, 0), (1, 0), (9, 2))
    ]
    normals = []
    for seed in SEEDS:
        for result, hole, purpose, count in ((0, 0, 1, 10), (5, 1, 1, 7), (12, 0, 2, 4)):
            bits = philox.normals(seed, result, count, hole, purpose).view(np.uint32).tolist()
            normals.append({"seed": str(seed), "result": result, "hole": hole, "purpose": purpose, "bits": bits})
    log_weights = np.log(np.array([[0.4, 0.05, 0.3, 0.15, 0.1]], np.float32))
    means = np.array([[[0, 1], [3, 3], [0.001, 1.001], [-2, 2], [5, -5]]], np.float32)
    log_scales = np.array([[[0, 0], [-1, -1], [0, 0], [0.5, -0.5], [-2, 0]]], np.float32)
    mixture = Mixture.of(log_weights, means, log_scales)
    choices = []
    for strategy in STRATEGIES:
        for seed in (7, 2**64 - 1):
            for temperature in (0.0, 0.5, 1.0, 2.0):
                made = recipe.draws([mixture, mixture], 8, seed, strategy, None, temperature)
                choices.append({"strategy": strategy, "seed": str(seed), "temperature": temperature, "n": 8,
                                "primitives": [d.primitives for d in made], "indices": [d.index for d in made],
                                "temperatures": [d.temperature for d in made]})  # fmt: skip
    draw = recipe.Draw((2,), 7, 3, recipe.f32(0.7))
    two = recipe.Draw((2, 4), 2**64 - 1, 0, 1.0)
    varied = recipe.Variation(draw, 99, 1, recipe.f32(0.3))
    calibrated = [(1.0, 2.0, None), (2.5, 1.0, None), (0.7, 1.5, (0.25, 4.0)), (1e-9, 16.0, None), (1e9, 1.0, None)]
    recipes = {"draw": draw, "two holes": two, "variation": varied, "blend": recipe.Blend(draw, varied, 0.25)}
    noise = mixture.means[0] * 0 + np.array([0.5, -1.5])
    return {
        "philox": blocks,
        "uniform": uniforms,
        "normals": normals,
        "mixture": {"log_weights": log_weights[0].tolist(), "means": means[0].tolist(), "log_scales": log_scales[0].tolist(),
                    "order": mixture.order(), "ideas": mixture.ideas(), "ambiguity": mixture.ambiguity,
                    "calibrated": [{"scale": scale, "power": power, "weights": weights,
                                    "value": replace(mixture, calibration=Ambiguity(scale, power, weights)).ambiguity}
                                   for scale, power, weights in calibrated],
                    "log_density": {"primitive": 3, "noise": noise.tolist(), "value": mixture.log_density(3, noise)}},
        "choices": choices,
        "tokens": {"model_id": MODEL, "version 1": VERSION_1, "version 2": [
            {"name": name, "context": settings.context, "detail": settings.detail, "token": token.encode(value, MODEL, settings)}
            for settings in SETTINGS for name, value in recipes.items()
        ]},
    }  # fmt: skip


CASES: dict[str, dict[str, Any]] = {  # photo size, hole rectangles (left, top, right, bottom, value), context
    "same size": {"photo": (32, 32), "rectangles": [(8, 8, 24, 20, 255)], "context": None},
    "larger photo": {"photo": (100, 80), "rectangles": [(40, 30, 60, 45, 255)], "context": None},
    "smaller photo": {"photo": (20, 20), "rectangles": [(3, 5, 9, 12, 255)], "context": None},
    "wide photo": {"photo": (90, 12), "rectangles": [(40, 2, 60, 10, 255)], "context": None},
    "corner": {"photo": (64, 64), "rectangles": [(0, 0, 10, 14, 255)], "context": None},
    "soft edge": {"photo": (40, 40), "rectangles": [(10, 10, 30, 30, 128), (14, 14, 26, 26, 255)], "context": None},
    "two far holes": {"photo": (150, 100), "rectangles": [(5, 5, 11, 15, 255), (125, 75, 140, 85, 255)], "context": None},
    "two near holes": {"photo": (64, 64), "rectangles": [(20, 20, 28, 28, 255), (36, 36, 44, 44, 255)], "context": None},
    "wide context": {"photo": (128, 128), "rectangles": [(60, 60, 70, 70, 255)], "context": 96},
}  # fmt: skip


def hole_vectors() -> list[dict[str, Any]]:
    made = []
    for name, case in CASES.items():
        width, height = case["photo"]
        mask = np.zeros((height, width), np.uint8)
        for left, top, right, bottom, value in case["rectangles"]:
            mask[top:bottom, left:right] = value
        given = load(photo(width, height))
        crops = find_crops(given, load_mask(mask, given), SIZE, case["context"])
        patches = []
        for crop in crops:
            square = decoded(SIZE)[None].copy()
            crop.seam.heal(square)
            patches.append(crop.patch(square[0]))
        pixels = given.compose(patches)
        inputs = [{"square": c.square, "box": c.box, "image": _text(c.image), "mask": _text(c.mask)} for c in crops]
        made.append({"name": name, **case, "size": SIZE, "holes": inputs, "composed": _text(pixels)})
    return made


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def main() -> None:
    (HERE / "sampling.json").write_text(json.dumps(sampling_vectors(), indent=1) + "\n")
    (HERE / "holes.json").write_text(json.dumps(hole_vectors(), indent=1) + "\n")


if __name__ == "__main__":
    main()
