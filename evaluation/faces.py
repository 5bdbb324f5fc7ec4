"""Drawn faces: any number of pictures without a data set. Their features are independent, so the odds of a hidden part are known.

python evaluation/faces.py --out DIR [--count 200] [--size 64] [--seed 0]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SKINS = ((255, 219, 172), (224, 172, 105), (141, 85, 36), (198, 134, 66))
SMILE = 0.7  # probability that a face smiles; it frowns otherwise
EYES = ((40, 90, 200), (70, 140, 60), (60, 40, 20))


def face(seed: int, size: int = 64) -> Image.Image:
    """One face. Background, skin, eye colour and mouth are drawn independently of each other."""
    random = np.random.default_rng(seed)
    big = 4 * size  # drawn large and scaled down, for smooth edges
    picture = Image.new("RGB", (big, big), tuple(int(v) for v in random.integers(60, 256, 3)))
    draw = ImageDraw.Draw(picture)

    def box(x: float, y: float, rx: float, ry: float) -> list[float]:
        return [big * (x - rx), big * (y - ry), big * (x + rx), big * (y + ry)]

    draw.ellipse(box(0.5, 0.5, 0.42, 0.46), fill=SKINS[random.integers(len(SKINS))])
    eyes = EYES[random.integers(len(EYES))]
    for x in (0.36, 0.64):
        draw.ellipse(box(x, 0.42, 0.07, 0.05), fill=(255, 255, 255))
        draw.ellipse(box(x, 0.42, 0.035, 0.045), fill=eyes)
    smiles = random.uniform() < SMILE
    start, y = (20, 0.62) if smiles else (200, 0.74)
    draw.arc(box(0.5, y, 0.16, 0.1), start, start + 140, fill=(150, 30, 40), width=big // 30)
    return picture.resize((size, size), Image.Resampling.BOX)


def write_faces(folder: Path, count: int, size: int = 64, seed: int = 0) -> None:
    """Write `count` faces as PNG; the same arguments write the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        face(seed * 1_000_003 + number, size).save(folder / f"face_{number:05d}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="draw faces to train on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_faces(options.out, options.count, options.size, options.seed)


if __name__ == "__main__":
    main()
