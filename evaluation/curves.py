"""Training curves: the metrics.jsonl of one or more runs as one picture.

    python evaluation/curves.py runs/pets [runs/pets-2 ...] --out curves.png [--force]

Several runs are drawn one after another: a run that started from the weights of the previous one (`--init`) counts its images from zero, and a line
marks where it starts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from picme_sdk.errors import BadArgument, FileExists, PicmeError
from picme_sdk.io import replacing

# Title, whether it is measured on held-out pictures, and the numbers to draw.
PANELS = (
    ("held out, L1 in the hole (0..1)", True, ("rebuilt_l1", "best_of_six_l1", "pair_l1")),
    ("held out, best primitive's KL (nats)", True, ("kl",)),
    ("adversarial", False, ("discriminator", "adversarial")),
    ("how often each primitive wins", True, ("wins",)),
)
SMOOTH = 0.9  # decay of the running average of the losses


def read(runs: list[Path]) -> tuple[list[dict[str, Any]], list[int]]:
    """All lines, with images counted over all runs, and where each run after the first starts."""
    lines: list[dict[str, Any]] = []
    starts: list[int] = []
    for run in runs:
        path = run / "metrics.jsonl"
        if not path.is_file():
            raise BadArgument(f"{path}, which does not exist", "the metrics of a training run", "check the path")
        before = lines[-1]["images"] if lines else 0
        if lines:
            starts.append(before)
        lines += [line | {"images": line["images"] + before} for line in map(json.loads, path.read_text().splitlines())]
    return lines, starts


def smoothed(values: list[float]) -> list[float]:
    """A running average, so that the trend shows despite the noise of single steps."""
    averages: list[float] = []
    for value in values:
        averages.append(SMOOTH * averages[-1] + (1 - SMOOTH) * value if averages else value)
    return averages


def draw(runs: list[Path], out: Path) -> None:
    """Write the curves of several runs as a PNG."""
    from matplotlib.figure import Figure

    lines, starts = read(runs)
    figure = Figure(figsize=(11, 6), layout="constrained")
    for axes, (title, held_out, names) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        rows = [
            line["valid"] | {"images": line["images"]} if held_out else line
            for line in lines
            if ("valid" in line) is held_out
        ]
        images = [row["images"] for row in rows]
        for name in names:
            if name == "wins":
                for i, wins in enumerate(zip(*(row["wins"] for row in rows), strict=True)):
                    axes.plot(images, wins, label=f"primitive {i}")
            else:
                values = [row[name] for row in rows]
                axes.plot(images, values if held_out else smoothed(values), label=name)
        for start in starts:
            axes.axvline(start, color="grey", linewidth=0.8, linestyle=":")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("images trained on", fontsize=8)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)
    with replacing(out) as temporary:
        figure.savefig(temporary, dpi=80, format="png")


def main() -> int:
    parser = argparse.ArgumentParser(description="draw training curves")
    parser.add_argument(
        "runs", type=Path, nargs="+", help="folders that training/train.py wrote, in the order of training"
    )
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    options = parser.parse_args()
    try:
        if options.out.exists() and not options.force:
            raise FileExists(f"{options.out} exists", "a new file", "choose another, or add --force")
        draw(options.runs, options.out)
    except (PicmeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
