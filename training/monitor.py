"""What a run looks like: the contact sheet, and the numbers on held-out pictures that tell whether it works."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from training.data import Batch, Pictures, to_batch
from training.losses import best_primitive, primitive_kl
from training.masks import MaskSource
from training.model import Picme
from training.step import pick

SAMPLES = 6
CHUNK = 25
DEAD = 0.01  # a primitive that wins less often than this is reported as dead


def fixed_batch(pictures: Pictures, masks: MaskSource, count: int, seed: int = 0) -> list[Batch]:
    """`count` pictures from all over the set with masks that never change, so that numbers can be compared over time."""
    count = min(count, len(pictures))
    # A stride that shares no factor with the number of pictures visits all of them, neighbours (one breed, often) far apart.
    stride = next(
        s for s in range(int(0.618 * len(pictures)) + 1, 2 * len(pictures) + 2) if math.gcd(s, len(pictures)) == 1
    )
    indices = [i * stride % len(pictures) for i in range(count)]
    batches = []
    for start in range(0, count, CHUNK):
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
    mixture = model.mixture(encoded.context)
    rebuilt = model.decode(encoded.skips, model.posterior(batch.image * batch.mask, batch.mask).mean)
    weights = (
        mixture.log_weights.exp().cpu()
    )  # the generator lives on the CPU, so the draws do not depend on the device
    primitives = torch.multinomial(weights, samples, replacement=True, generator=generator).T.to(batch.image.device)
    drawn = []
    for primitive in primitives:
        noise = torch.randn(len(primitive), model.config.latent, generator=generator)
        drawn.append(model.decode(encoded.skips, pick(mixture, primitive, noise.to(primitive.device))))
    return rebuilt, torch.stack(drawn), primitives


@torch.no_grad()
def evaluate(model: Picme, batches: list[Batch]) -> dict[str, Any]:
    """Held-out numbers, all on pictures in [0, 1] and inside the hole only."""
    generator = torch.Generator().manual_seed(0)
    totals: dict[str, list[Tensor]] = {"rebuilt_l1": [], "best_of_six_l1": [], "pair_l1": [], "ambiguity": [], "kl": []}
    wins = torch.zeros(model.config.primitives)
    for batch in batches:
        area = 3 * batch.mask.sum((1, 2, 3)).clamp_min(1)

        def distance(a: Tensor, b: Tensor, hole: Tensor = batch.mask, area: Tensor = area) -> Tensor:
            return ((a.clamp(-1, 1) - b.clamp(-1, 1)).abs() * hole).sum((-3, -2, -1)) / (2 * area)

        rebuilt, samples, _ = complete(model, batch, generator)
        mixture = model.mixture(model.encode(batch.image * (1 - batch.mask), batch.mask).context)
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
    """One row a photo: truth, input, reconstruction, six samples by weight, composited as a user sees them."""
    generator = torch.Generator().manual_seed(1)
    rebuilt, samples, _ = complete(model, batch, generator)
    seen = batch.image * (1 - batch.mask)
    columns = [batch.image, seen, seen + rebuilt * batch.mask, *(seen + s * batch.mask for s in samples)]
    sheet = Image.new("RGB", (len(columns) * cell, len(batch.image) * cell))
    for x, column in enumerate(columns):
        pixels = ((column.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        for y, picture in enumerate(pixels):
            resized = Image.fromarray(picture).resize((cell, cell), Image.Resampling.BICUBIC)
            sheet.paste(resized, (x * cell, y * cell))
    temporary = path.with_name(f".{path.name}")
    sheet.save(temporary, "PNG")
    temporary.replace(path)
