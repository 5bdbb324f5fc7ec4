"""How a run is monitored: the contact sheet, and numbers on held-out pictures that tell whether training works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from picme_sdk.io import replacing
from training.data import Batch, Pictures, spread, to_batch
from training.losses import best_primitive, primitive_kl
from training.masks import MaskSource
from training.model import Picme
from training.step import pick

SAMPLES = 6
CHUNK = 25  # pictures per batch
DEAD = 0.01  # a primitive with a smaller share of wins is reported as dead


def fixed_batches(pictures: Pictures, masks: MaskSource, count: int, seed: int = 0) -> list[Batch]:
    """`count` pictures spread over the whole set, with masks that never change, so that numbers can be compared over time."""
    indices = spread(len(pictures))[:count]
    batches = []
    for start in range(0, len(indices), CHUNK):
        part = indices[start : start + CHUNK]
        items = [pictures[i] for i in part]
        drawn = [masks.draw(np.random.default_rng([seed, 3, i])) for i in part]
        batches.append(to_batch([p for p, _ in items], drawn, [f for _, f in items]))
    return batches


@torch.no_grad()
def complete(
    model: Picme, batch: Batch, generator: torch.Generator, samples: int = SAMPLES
) -> tuple[Tensor, Tensor, Tensor]:
    """Reconstruction [b, 3, s, s], samples [n, b, 3, s, s] by weight (Algorithm 2), and each sample's primitive [n, b]."""
    image_m = batch.image * (1 - batch.mask)
    encoded = model.encode(image_m, batch.mask)
    mixture = model.mixture(encoded.code)
    rebuilt = model.decode(encoded.skips, model.posterior(batch.image * batch.mask, batch.mask).mean)
    weights = mixture.log_weights.exp().cpu()  # drawn on the CPU, so that the draws do not depend on the device
    primitives = torch.multinomial(weights, samples, replacement=True, generator=generator).T.to(batch.image.device)
    drawn = []
    for primitive in primitives:
        noise = torch.randn(len(primitive), model.config.latent, generator=generator)
        drawn.append(model.decode(encoded.skips, pick(mixture, primitive, noise.to(primitive.device))))
    return rebuilt, torch.stack(drawn), primitives


@torch.no_grad()
def held_out_numbers(model: Picme, batches: list[Batch]) -> dict[str, Any]:
    """Numbers on held-out pictures, all inside the hole only and on a scale of 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    totals: dict[str, list[Tensor]] = {"rebuilt_l1": [], "best_of_six_l1": [], "pair_l1": [], "ambiguity": [], "kl": []}
    wins = torch.zeros(model.config.primitives)
    for batch in batches:
        area = 3 * batch.mask.sum((1, 2, 3)).clamp_min(1)

        def distance(a: Tensor, b: Tensor, hole: Tensor = batch.mask, area: Tensor = area) -> Tensor:
            return ((a.clamp(-1, 1) - b.clamp(-1, 1)).abs() * hole).sum((-3, -2, -1)) / (2 * area)

        rebuilt, samples, _ = complete(model, batch, generator)
        mixture = model.mixture(model.encode(batch.image * (1 - batch.mask), batch.mask).code)
        kl = primitive_kl(mixture, model.posterior(batch.image * batch.mask, batch.mask))
        wins += torch.bincount(best_primitive(kl), minlength=len(wins)).cpu()
        totals["kl"].append(kl.min(1).values)
        totals["rebuilt_l1"].append(distance(rebuilt, batch.image))
        totals["best_of_six_l1"].append(distance(samples, batch.image).min(0).values)
        pairs = [distance(samples[i], samples[j]) for i in range(SAMPLES) for j in range(i)]
        totals["pair_l1"].append(torch.stack(pairs).mean(0))
        weights = mixture.log_weights
        totals["ambiguity"].append((-(weights.exp() * weights).sum(1)).exp())
    numbers: dict[str, Any] = {name: round(float(torch.cat(values).mean()), 5) for name, values in totals.items()}
    shares = wins / wins.sum()
    numbers["wins"] = [round(float(share), 3) for share in shares]
    numbers["dead"] = [i for i, share in enumerate(shares) if share < DEAD]
    return numbers


def contact_sheet(model: Picme, batch: Batch, path: Path, cell: int = 128) -> None:
    """One row per photo: truth, input, reconstruction and six samples by weight, composited as users get them."""
    generator = torch.Generator().manual_seed(1)
    rebuilt, samples, _ = complete(model, batch, generator)
    visible = batch.image * (1 - batch.mask)
    columns = [batch.image, visible, visible + rebuilt * batch.mask, *(visible + s * batch.mask for s in samples)]
    sheet = Image.new("RGB", (len(columns) * cell, len(batch.image) * cell))
    for x, column in enumerate(columns):
        pixels = ((column.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        for y, picture in enumerate(pixels):
            resized = Image.fromarray(picture).resize((cell, cell), Image.Resampling.BICUBIC)
            sheet.paste(resized, (x * cell, y * cell))
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG")
