"""Compare methods on the same pictures, holes and seeds.

    python evaluation/evaluate.py --data DIR --methods picme=BUNDLE,pic=BUNDLE,telea,navier-stokes --out DIR
        [--masks center,random] [--count N] [--samples 6] [--size 256] [--seed 0] [--lpips FILE] [--inception FILE] [--pictures]

Writes OUT/results.json and OUT/results.md, and with --pictures the inputs and results as PNG. OUT appears whole or not at all, and an
existing one is never changed. docs/train/evaluation.md defines the numbers. Exit codes: 0 done, 2 nothing was written and the last line says why.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch import Tensor

from evaluation import metrics
from evaluation.cases import SEEDS, Case, Cases
from evaluation.inception import Inception, load_inception
from evaluation.lpips import MIN_SIDE, Lpips, load_lpips
from evaluation.methods import Method, parse_methods
from evaluation.tables import PAPER, markdown
from picme_sdk.batch import result_path
from picme_sdk.errors import BadArgument, DataError, FileExists, PicmeError

NO_LPIPS = "No LPIPS weights were given (`--lpips FILE`): LPIPS, diversity and the Frechet distance on AlexNet features are missing."
NO_FID = "No Inception weights were given (`--inception FILE`), so there is no FID; a Frechet distance on other features is not an FID."


class Networks:
    """The networks of the perceptual metrics, as far as their weights were given."""

    def __init__(self, lpips_file: Path | None, inception_file: Path | None) -> None:
        self.lpips: Lpips | None = load_lpips(lpips_file) if lpips_file else None
        self.inception: Inception | None = load_inception(inception_file) if inception_file else None

    def notes(self) -> list[str]:
        return [note for network, note in ((self.lpips, NO_LPIPS), (self.inception, NO_FID)) if network is None]


class Tally:
    """The scores of one method with one kind of mask, picture by picture."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float | None]] = []
        self.counts: list[int] = []
        self.features: dict[str, list[Tensor]] = {}  # by network, a picture's results [n, d]

    def numbers(self, truth: dict[str, list[Tensor]]) -> dict[str, dict[str, float | None]]:
        """Every number over all pictures; `truth` holds the same features of the photos."""
        estimates = {}
        for key in self.rows[0]:
            values = [row[key] for row in self.rows]
            if None not in values:  # a method with only one result for some picture has no diversity
                estimates[key] = metrics.bootstrap_mean(np.array(values))
        n = min(self.counts)
        if len(self.rows) > 1:
            for network, names in (
                ("inception", ("fid", "div_fid")),
                ("lpips", ("frechet_alexnet", "div_frechet_alexnet")),
            ):
                if network in truth:
                    results = torch.stack([f[:n] for f in self.features[network]], 1)
                    estimates |= frechet_numbers(results, torch.stack(truth[network]), names)
        return {key: estimate._asdict() for key, estimate in estimates.items()}


def frechet_numbers(results: Tensor, truth: Tensor, names: tuple[str, str]) -> dict[str, metrics.Estimate]:
    """Results [n, pictures, d] against the truths [pictures, d], and among themselves."""
    to_truth, between = names
    estimates = {
        to_truth: metrics.bootstrap_frechet(lambda i: metrics.frechet_to_truth(results[:, i], truth[i]), len(truth))
    }
    if len(results) > 1:
        estimates[between] = metrics.bootstrap_frechet(lambda i: metrics.frechet_between(results[:, i]), len(truth))
    return estimates


def floats(pictures: np.ndarray) -> Tensor:
    """uint8 [.., s, s, 3] -> float [.., 3, s, s] in 0..1."""
    return torch.from_numpy(pictures.copy()).movedim(-1, -3).float() / 255


def evaluate_masks(
    cases: Cases, kind: str, methods: list[Method], samples: int, networks: Networks, keep: Callable[..., None]
) -> dict[str, Any]:
    """All methods with one kind of mask. `keep(case, method name, results)` may store pictures."""
    tallies = {method.name: Tally() for method in methods}
    truth: dict[str, list[Tensor]] = {}
    for method in methods:
        method.seconds = 0.0
    console = Console(stderr=True)
    progress = track(cases.of(kind), f"{kind} masks", len(cases), console=console, disable=not console.is_terminal)
    for case in progress:
        photo, hole = floats(case.photo), torch.from_numpy(case.mask > 0).float()
        if networks.lpips:
            photo_activations = networks.lpips.embed(photo[None])
            truth.setdefault("lpips", []).append(photo_activations.features[0])
        if networks.inception:
            truth.setdefault("inception", []).append(networks.inception(photo[None])[0])
        for method in methods:
            pictures = method.results(case, samples)
            keep(case, method.name, pictures)
            results, tally = floats(pictures), tallies[method.name]
            row: dict[str, float | None] = {**metrics.pixel_scores(results, photo)}
            if networks.lpips:
                activations = networks.lpips.embed(results)
                row |= metrics.perceptual_scores(networks.lpips, activations, photo_activations, hole)
                tally.features.setdefault("lpips", []).append(activations.features)
            if networks.inception:
                tally.features.setdefault("inception", []).append(networks.inception(results))
            tally.rows.append(row)
            tally.counts.append(len(pictures))
    if not any(tally.rows for tally in tallies.values()):
        raise DataError("no picture that can be read", "at least one", "see the lines above")
    return {
        method.name: {
            "results": min(tallies[method.name].counts),
            "pictures": len(tallies[method.name].rows),
            "ms": 1000 * method.seconds / len(tallies[method.name].rows),
            "numbers": tallies[method.name].numbers(truth),
        }
        for method in methods
    }


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A new folder that becomes `out` if there was no error, and is removed otherwise."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExists(f"{out} exists", "a new or empty folder", "choose another --out, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        temporary.chmod(0o755)
        yield temporary
        temporary.rename(out)  # replaces an empty folder, and fails on any other
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_pictures(folder: Path, case: Case, method: str, results: np.ndarray) -> None:
    """inputs/MASK/photos/NAME.png, inputs/MASK/masks/NAME.png and METHOD/MASK/NAME.png-1.png, as a folder method reads them."""
    inputs = folder / "inputs" / case.kind
    outputs = folder / method / case.kind
    for place in (inputs / "photos", inputs / "masks", outputs):
        place.mkdir(parents=True, exist_ok=True)
    Image.fromarray(case.photo).save(inputs / "photos" / case.name)
    Image.fromarray(case.mask).save(inputs / "masks" / case.name)
    for number, picture in enumerate(results, 1):
        Image.fromarray(picture).save(result_path(outputs, Path(case.name), number))


def mask_kinds(text: str) -> list[str]:
    kinds = [part.strip() for part in text.split(",") if part.strip()]
    names = [Path(kind).name for kind in kinds]
    if not kinds or len(set(names)) < len(names):
        raise BadArgument(f"--masks {text!r}", "one or more different kinds", "such as center,random")
    return kinds


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate, write OUT, and return what was written to results.json."""
    check(options)
    kinds, cases = mask_kinds(options.masks), Cases(options.data, options.size, options.count, options.seed)
    networks, methods = Networks(options.lpips, options.inception), parse_methods(options.methods)
    with whole_folder(options.out) as folder:

        def keep(case: Case, method: str, results: np.ndarray) -> None:
            if options.pictures:
                save_pictures(folder / "pictures", case, method, results)

        masks = {
            Path(kind).name: evaluate_masks(cases, kind, methods, options.samples, networks, keep) for kind in kinds
        }
        measured = [method["pictures"] for methods_of in masks.values() for method in methods_of.values()]
        setting = {
            "data": options.data.name,
            "pictures": min(measured),
            "size": options.size,
            "samples": options.samples,
            "seed": options.seed,
        }
        sizes = {
            m.name: m.about["image_size"] for m in methods if m.about.get("image_size", options.size) != options.size
        }
        notes = networks.notes() + [
            f"{name} is a model for {size}x{size}: its fill is scaled to the picture." for name, size in sizes.items()
        ]
        report = {
            "setting": setting,
            "methods": {method.name: method.about for method in methods},
            "notes": notes,
            "masks": masks,
            "paper": PAPER,
        }
        (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n")
        (folder / "results.md").write_text(markdown(report))
    return report


def check(options: argparse.Namespace) -> None:
    """Refuse impossible numbers before anything is computed."""
    for name, low, high in (("samples", 1, 1000), ("size", MIN_SIDE, 4096), ("seed", 0, SEEDS - 1)):
        value = getattr(options, name)
        if not low <= value <= high:
            raise BadArgument(f"--{name} {value}", f"{low} to {high}", "choose another")
    if options.count is not None and options.count < 1:
        raise BadArgument(f"--count {options.count}", "at least 1", "choose another, or leave it out for all")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options that the evaluation and its figures share."""
    file = os.environ.get("PICME_LPIPS")
    parser.add_argument("--size", type=int, default=256, help="side of the pictures (256)")
    parser.add_argument("--seed", type=int, default=0, help="of masks and samples (0)")
    parser.add_argument("--lpips", type=Path, default=Path(file) if file else None, help="LPIPS weights ($PICME_LPIPS)")


def guarded(work: Callable[[], str]) -> int:
    """Print what `work` returns; bad input becomes one line and exit code 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(1)  # for thousands of small operations, threads cost more than they save
    try:
        text = work()
    except PicmeError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error} | expected files that can be read and written | check paths and space", file=sys.stderr)
        return 2
    print(text)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="compare methods", epilog="docs/train/evaluation.md defines the numbers"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of pictures (recursive) or a list of files")
    parser.add_argument(
        "--methods", required=True, help="NAME=BUNDLE|FOLDER|module:function, telea, navier-stokes; with commas"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    parser.add_argument(
        "--masks", default="center,random", help="center, random, rectangles, strokes, a folder; with commas"
    )
    parser.add_argument("--count", type=int, help="use this many pictures (all)")
    parser.add_argument("--samples", type=int, default=6, help="results per picture (6)")
    parser.add_argument("--inception", type=Path, help="weights of FID's Inception network")
    parser.add_argument("--pictures", action="store_true", help="also write inputs and results as PNG")
    add_common(parser)
    options = parser.parse_args()
    return guarded(lambda: markdown(run(options)) + f"\nwritten to {options.out}")


if __name__ == "__main__":
    sys.exit(main())
