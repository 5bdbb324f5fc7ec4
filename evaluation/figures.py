"""The figures of the evaluation, each by one command.

    python evaluation/figures.py comparison --data DIR --methods picme=BUNDLE,telea --out FILE.png [--mask center] [--rows 6] [--samples 2]
    python evaluation/figures.py primitives --data DIR --methods picme=BUNDLE --out FILE.png [--mask center] [--count 20] [--lpips FILE]
    python evaluation/figures.py latents    --data DIR --methods picme=BUNDLE --out FILE.png [--mask center] [--points 600]
    python evaluation/figures.py hole-size  --data DIR --methods picme=BUNDLE,pic=BUNDLE --out FILE.png [--count 20] --lpips FILE

comparison   rows are inputs, columns methods, the truth last
primitives   a row of six samples for each primitive of one photo; below, how much results of one primitive and of different ones differ
latents      samples of one photo's mixture in two dimensions (t-SNE, or PCA without scikit-learn), coloured by primitive
hole-size    diversity of six results against the side of a centred hole
All take --size (256), --seed (0) and --force. Exit codes: 0 done, 2 nothing was written and the last line says why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from evaluation.cases import Case, Cases
from evaluation.evaluate import add_common, check, floats, guarded
from evaluation.lpips import Lpips, load_lpips, whole
from evaluation.methods import bundles, parse_methods
from evaluation.metrics import Estimate, bootstrap_mean, perceptual_scores
from picme_sdk.completer import Completer
from picme_sdk.errors import BadArgument, FileExists
from picme_sdk.io import replacing
from picme_sdk.mixture.philox import normals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL, GAP, LINE = 128, 4, 20  # pixels
PAPER, INK, HOLE = (250, 250, 250), (30, 30, 30), (150, 150, 150)
SIX = 6
SIDES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75)  # of the hole, as shares of the picture's
PERPLEXITY = 30


def save(picture: Image.Image, out: Path) -> None:
    """Write a PNG whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        picture.save(temporary, "PNG")


def grid(
    rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str], labels: Sequence[str] = (), notes: Sequence[str] = ()
) -> Image.Image:
    """Pictures in rows, with a title above each column, a label before each row and lines of text below."""
    margin = 110 if labels else GAP
    width = margin + max(len(row) for row in rows) * (CELL + GAP)
    height = LINE + GAP + len(rows) * (CELL + GAP) + LINE * len(notes) + GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for x, title in enumerate(titles):
        draw.text((margin + x * (CELL + GAP), 3), title, INK, font)
    for y, row in enumerate(rows):
        top = LINE + GAP + y * (CELL + GAP)
        if labels:
            draw.multiline_text((GAP, top + CELL // 3), labels[y], INK, font)
        for x, picture in enumerate(row):
            cell = Image.fromarray(picture).resize((CELL, CELL), Image.Resampling.LANCZOS)
            sheet.paste(cell, (margin + x * (CELL + GAP), top))
    for y, note in enumerate(notes):
        draw.text((GAP, LINE + GAP + len(rows) * (CELL + GAP) + y * LINE), note, INK, font)
    return sheet


def with_hole(case: Case) -> np.ndarray:
    return np.where(case.mask[..., None] > 0, np.array(HOLE, np.uint8), case.photo)


def comparison(options: argparse.Namespace) -> Image.Image:
    """One row per input: the input, each method's results, the truth."""
    methods = parse_methods(options.methods)
    rows, counts = [], {method.name: 1 for method in methods}
    for case in Cases(options.data, options.size, options.count, options.seed).of(options.mask):
        results = {method.name: list(method.results(case, options.samples)) for method in methods}
        counts = {name: max(counts[name], len(pictures)) for name, pictures in results.items()}
        rows.append((case, results))
    titles = ["input"]
    for name, count in counts.items():
        titles += [name if count == 1 else f"{name} {number}" for number in range(1, count + 1)]
    blank = np.full((options.size, options.size, 3), PAPER, np.uint8)
    cells = []
    for case, results in rows:
        cells.append([with_hole(case)])
        for name, pictures in results.items():
            cells[-1] += pictures + [blank] * (counts[name] - len(pictures))
        cells[-1].append(case.photo)
    return grid(cells, [*titles, "truth"])


# n pictures float [n, 3, s, s], hole [s, s] -> distances of all pairs [n, n]
Distances = Callable[[Tensor, Tensor], np.ndarray]


def pair_distances(network: Lpips | None) -> tuple[str, Distances]:
    """LPIPS if its weights were given, otherwise the mean absolute difference inside the hole."""

    def pixels(pictures: Tensor, hole: Tensor) -> np.ndarray:
        inside = pictures[:, :, hole > 0].flatten(1)
        return (torch.cdist(inside, inside, p=1) / inside.shape[1]).numpy()

    if network is None:
        return "mean absolute difference in the hole", pixels

    def perceptual(pictures: Tensor, hole: Tensor) -> np.ndarray:
        activations = network.embed(pictures)
        rows = [whole(network.layers(activations.pick([i]), activations)) for i in range(len(pictures))]
        return torch.stack(rows).numpy()

    return "LPIPS", perceptual


def samples_by_primitive(completer: Completer, case: Case, n: int = SIX) -> tuple[np.ndarray, list[float]]:
    """uint8 [k, n, s, s, 3] and the k weights. Each primitive has its own noise; shared noise would make the rows similar."""
    scene = completer.encode(case.photo, case.mask)
    weights = dict(scene.primitives)
    pictures = [[r.image for r in scene.sample(n, case.seed ^ (i << 48), primitive=i)] for i in sorted(weights)]
    return np.array(pictures), [weights[i] for i in sorted(weights)]


def within_and_between(distances: np.ndarray, rows: int) -> tuple[float, float]:
    """Mean distance of pairs from one row and of pairs from different rows, for rows of equal length in sequence."""
    row = np.arange(len(distances)) * rows // len(distances)
    same, pair = row[:, None] == row[None], ~np.eye(len(distances), dtype=bool)
    return float(distances[same & pair].mean()), float(distances[~same].mean())


def one_bundle(options: argparse.Namespace) -> tuple[str, Completer]:
    methods = bundles(options.methods)
    if len(methods) != 1 or methods[0].completer is None:
        raise BadArgument(f"--methods {options.methods}", "one bundle", "give NAME=BUNDLE")
    return methods[0].name, methods[0].completer


def shown(estimate: Estimate) -> str:
    interval = "" if estimate.low is None else f" ({estimate.low:.4f} to {estimate.high:.4f})"
    return f"{estimate.value:.4f}{interval}"


def primitives(options: argparse.Namespace) -> Image.Image:
    """k x 6 samples of the first photo; the numbers under it are means over `--count` photos."""
    name, completer = one_bundle(options)
    if completer.manifest.primitives < 2:
        raise BadArgument(f"{name} with one primitive", "two or more to compare", "give a bundle with k > 1")
    title, distances = pair_distances(load_lpips(options.lpips) if options.lpips else None)
    rows: list[list[np.ndarray]] = []
    measured = []
    for case in Cases(options.data, options.size, options.count, options.seed).of(options.mask):
        samples, weights = samples_by_primitive(completer, case)
        hole = torch.from_numpy(case.mask > 0)
        between_all = distances(floats(samples.reshape(-1, *samples.shape[2:])), hole)
        measured.append(within_and_between(between_all, len(samples)))
        if not rows:
            rows = [[with_hole(case), *row] for row in samples]
            labels = [f"primitive {i}\nweight {weight:.2f}" for i, weight in enumerate(weights)]
    within, between = (bootstrap_mean(np.array(column)) for column in zip(*measured, strict=True))
    notes = [
        f"{name}: {title} between two samples, mean over {len(measured)} photos and its 95 % interval",
        f"of one primitive {shown(within)}, of different primitives {shown(between)}",
    ]
    return grid(rows, ["input", *(f"sample {i}" for i in range(1, SIX + 1))], labels, notes)


def drawing(figure: Figure) -> Image.Image:
    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])  # type: ignore[attr-defined]


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window system."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadArgument("a chart", "matplotlib", "pip install matplotlib") from error
    figure = Figure((width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def flat(points: np.ndarray, seed: int) -> tuple[str, np.ndarray]:
    """Points [n, d] in two dimensions [n, 2], and the name of the projection."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        centred = points - points.mean(0)
        return "PCA", centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
    return "t-SNE", TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)


def latents(options: argparse.Namespace) -> Image.Image:
    """The same number of samples of each primitive, so that rare ones are visible, too; the legend has the weights."""
    name, completer = one_bundle(options)
    case = next(Cases(options.data, options.size, 1, options.seed).of(options.mask))
    mixture = completer.encode(case.photo, case.mask).mixtures[0]  # of the largest hole
    each = max(2, options.points // mixture.size)
    dimensions = mixture.means.shape[1]
    noise = np.stack([normals(case.seed, i, dimensions) for i in range(each * mixture.size)])
    owner = np.repeat(np.arange(mixture.size), each)
    title, points = flat(mixture.means[owner] + mixture.scales[owner] * noise, options.seed)
    figure = new_figure(6, 5)
    axes = figure.subplots()
    for i, weight in enumerate(mixture.weights):
        axes.scatter(points[owner == i, 0], points[owner == i, 1], s=8, label=f"primitive {i}, weight {weight:.2f}")
    axes.set(title=f"{name}: {title} of {len(points)} latents of one photo ({case.name})", xticks=[], yticks=[])
    axes.legend(fontsize=8)
    return drawing(figure)


def centred_hole(size: int, side: float) -> np.ndarray:
    """uint8 [s, s], 255 in a middle square of `side` times the picture's."""
    edge = round(size * (1 - side) / 2)
    mask = np.zeros((size, size), np.uint8)
    mask[edge : size - edge, edge : size - edge] = 255
    return mask


def hole_size(options: argparse.Namespace) -> Image.Image:
    """LPIPS between six results, whole picture and hole only, for growing holes."""
    if options.lpips is None:
        raise BadArgument("no LPIPS weights", "--lpips FILE", "see docs/train/evaluation.md")
    network, methods = load_lpips(options.lpips), parse_methods(options.methods)
    cases = list(Cases(options.data, options.size, options.count, options.seed).of("center"))
    figure = new_figure(9, 4)
    for axes, key, title in zip(figure.subplots(1, 2), ("diversity", "diversity_hole"), ("whole picture", "inside the hole"), strict=True):  # fmt: skip
        axes.set(title=title, xlabel="side of the hole / side of the picture", ylabel=f"LPIPS between {SIX} results")
        axes.set_gid(key)
    for method in methods:
        estimates: dict[str, list[Estimate]] = {"diversity": [], "diversity_hole": []}
        for side in SIDES:
            scores = []
            for case in cases:
                case = replace(case, mask=centred_hole(options.size, side))
                results = network.embed(floats(method.results(case, SIX)))
                hole = torch.from_numpy(case.mask > 0).float()
                scores.append(perceptual_scores(network, results, network.embed(floats(case.photo)[None]), hole))
            if scores[0]["diversity"] is None:
                raise BadArgument(f"method {method.name} with one result", "methods with several", "leave it out")
            for key in estimates:
                estimates[key].append(bootstrap_mean(np.array([row[key] for row in scores], float)))
        for axes in figure.axes:
            values = estimates[str(axes.get_gid())]
            heights = [v.value for v in values]
            reach = [[v.value - v.low, v.high - v.value] for v in values if v.low is not None and v.high is not None]
            bars = np.transpose(reach) if reach else None  # one photo has no interval
            axes.errorbar(SIDES, heights, bars, marker="o", capsize=3, label=method.name)
    figure.axes[0].legend()
    figure.suptitle(f"{len(cases)} photos; bars: 95 % interval, bootstrap over photos", fontsize=9)
    return drawing(figure)


FIGURES = {"comparison": comparison, "primitives": primitives, "latents": latents, "hole-size": hole_size}


def main() -> int:
    parser = argparse.ArgumentParser(description="draw the figures of the evaluation")
    commands = parser.add_subparsers(dest="figure", required=True)
    for name, make in FIGURES.items():
        command = commands.add_parser(name, help=(make.__doc__ or "").splitlines()[0])
        command.add_argument("--data", type=Path, required=True, help="folder of pictures, or a list of files")
        command.add_argument("--methods", required=True, help="as for evaluation/evaluate.py")
        command.add_argument("--out", type=Path, required=True, help="PNG to write")
        command.add_argument("--force", action="store_true", help="replace OUT")
        command.set_defaults(samples=SIX, count=None)
        if name != "hole-size":
            command.add_argument("--mask", default="center", help="kind of mask, or a folder of masks (center)")
        if name in ("primitives", "hole-size"):
            command.add_argument("--count", type=int, default=20, help="photos that the numbers are means of (20)")
        add_common(command)
    commands.choices["comparison"].add_argument("--rows", dest="count", type=int, default=6, help="inputs (6)")
    commands.choices["comparison"].add_argument("--samples", type=int, default=2, help="results of each method (2)")
    commands.choices["latents"].add_argument("--points", type=int, default=600, help="latents in all (600)")
    options = parser.parse_args()

    def work() -> str:
        check(options)
        if options.out.exists() and not options.force:
            raise FileExists(f"{options.out} exists", "a new file", "choose another --out, or add --force")
        save(FIGURES[options.figure](options), options.out)
        return f"written to {options.out}"

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main())
