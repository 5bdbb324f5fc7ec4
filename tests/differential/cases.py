"""Random photos, masks and wishes. A case is its number: the same on every machine and in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from picme_sdk.contract import STRATEGIES
from tests.cpp.native import BGR, BGRA, GRAY, RGB, RGBA

CHANNELS = {RGB: 3, BGR: 3, RGBA: 4, BGRA: 4, GRAY: 1}


@dataclass(frozen=True)
class Case:
    """A photo in a pixel format of the C library, its mask, and the arguments of `encode` and `sample`."""

    photo: np.ndarray  # [h, w, channels], in the order of `format`
    mask: np.ndarray
    format: int
    context: int | None
    wish: dict[str, Any]

    @property
    def upright(self) -> np.ndarray:
        """The photo as Python takes it: red first."""
        return self.swap(self.photo)

    def swap(self, pixels: np.ndarray) -> np.ndarray:
        return pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if self.format in (BGR, BGRA) else pixels


def case(number: int, primitives: int) -> Case:
    random = np.random.default_rng([2022, number])
    width, height = (int(v) for v in random.integers(5, 180, 2))
    form = int(random.choice(list(CHANNELS)))
    wish = {
        "n": int(random.integers(1, 4)),
        "seed": int(random.integers(0, 1 << 64, dtype=np.uint64)),
        "strategy": str(random.choice(STRATEGIES)),
        "primitive": int(random.integers(primitives)) if random.random() < 0.2 else None,
        "temperature": float(np.float32(random.choice([0.0, 0.3, 1.0, 1.0, 2.0]))),
    }
    context = int(random.integers(8, 150)) if random.random() < 0.3 else None
    return Case(_photo(random, width, height, CHANNELS[form]), _mask(random, width, height), form, context, wish)


def _photo(random: np.random.Generator, width: int, height: int, channels: int) -> np.ndarray:
    """Smooth, noisy, flat or both."""
    y, x, c = np.ogrid[:height, :width, :channels]
    period = random.uniform(3, 40)
    smooth = 128 + random.uniform(0, 127) * np.sin(x / period + c) * np.cos(y / period - c)
    noise = random.normal(0, random.choice([0, 5, 80]), (height, width, channels))
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)


def _mask(random: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Boxes, lines or islands; hard, soft or of 0 and 1. Now and then one that must be refused."""
    mask = np.zeros((height, width), np.uint8)
    kind = random.choice(["boxes", "lines", "islands", "soft", "binary", "refused"], p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05])
    if kind == "refused":
        return mask if random.random() < 0.5 else np.full_like(mask, 255)
    for _ in range(int(random.integers(1, 5 if kind != "islands" else 40))):
        x, y = int(random.integers(width)), int(random.integers(height))
        if kind == "lines":
            steps = np.linspace(0, 1, 200)
            ends = random.integers(0, [width, height], (2, 2))
            points = (ends[0] + (ends[1] - ends[0]) * steps[:, None]).astype(int)
            mask[points[:, 1], points[:, 0]] = 255
            continue
        far = 4 if kind == "islands" else max(2, min(width, height) // 2)
        value = random.integers(1, 256) if kind == "soft" else 1 if kind == "binary" else 255
        mask[y : y + int(random.integers(1, far)), x : x + int(random.integers(1, far))] = value
    return mask
