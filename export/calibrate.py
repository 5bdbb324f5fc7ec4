"""Inputs for INT8 calibration: real photos through the float32 graphs, as the runtime would run them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from export.verify import Chain, Feed, latents
from training.config import MaskMix
from training.data import Pictures, find_images
from training.masks import MaskSource

PHOTOS = 48
RESULTS = 2  # latents per photo; enough to cover the decoder's range without hours of calibration


def calibration_feeds(graphs: dict[str, onnx.ModelProto], folder: Path, size: int) -> dict[str, list[Feed]]:
    """Inputs of encoder and decoder from up to 48 pictures of a folder."""
    pictures = Pictures(find_images(folder), size)
    masks = MaskSource(MaskMix(center=1, rectangles=1, strokes=1), size)
    step = max(1, len(pictures) // PHOTOS)
    photos = {}
    for index in range(0, min(len(pictures), step * PHOTOS), step):
        mask = masks.draw(np.random.default_rng(index)) * np.uint8(255)
        photos[str(index)] = (pictures[index][0][None].copy(), mask[None, ..., None])
    chain = Chain.of_onnx(graphs, "float32")
    encoded, mixture = chain.encode(photos)
    decoder = []
    for each, mix in zip(encoded, mixture, strict=True):
        skips = {name: value for name, value in each.items() if name.startswith("skip_")}
        decoder += [{**skips, "z": z[None]} for z in latents(mix, RESULTS)]
    return {"encoder": [{"image": image, "mask": mask} for image, mask in photos.values()], "decoder": decoder}
