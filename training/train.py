"""Train PICME.

    python training/train.py --config training/configs/pets256.toml --data DIR --out runs/pets
        [--preset NAME] [--valid DIR] [--masks DIR] [--init CHECKPOINT] [--minutes N | --steps N] [--save-minutes 5] [--resume]
    torchrun --nproc-per-node 2 training/train.py ...         the same run on several processes

Writes to OUT: last.* and best.* (see training/checkpoint.py), metrics.jsonl, sheets/IMAGES.png. Ctrl-C or SIGTERM saves and leaves;
`--resume` continues bit-equally on a CPU, and starts the run where there is none yet. The size of the pictures grows by the
phases of the configuration.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # run from anywhere; the script's own folder is no import root

import torch.distributed as dist
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from picme_sdk.errors import PicmeError
from training.checkpoint import CheckpointError
from training.config import load
from training.data import DataError
from training.run import NotFiniteError, Run

log = logging.getLogger("training")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train PICME", epilog="docs/training.md explains the configuration")
    parser.add_argument("--config", type=Path, required=True, help="a TOML file of training/configs")
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="WHERE",
        help="folders of pictures (recursive) or lists of files; WHERE*3 counts three times",
    )
    parser.add_argument("--preset", help="layout of a known data set below --data (and --valid), see training/data.py")
    parser.add_argument("--valid", type=Path, help="held-out pictures for numbers and sheets")
    parser.add_argument("--masks", type=Path, help="folder of masks, light = hole, for masks.folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--init", type=Path, help="begin a new run with the weights of this checkpoint")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="train this long now")
    length.add_argument("--steps", type=int, help="train until this step of the run")
    parser.add_argument("--save-minutes", type=float, default=5, help="minutes between checkpoints (5)")
    parser.add_argument("--log-steps", type=int, default=50, help="steps between lines of metrics.jsonl (50)")
    parser.add_argument("--resume", action="store_true", help="continue the run in OUT, if there is one")
    options = parser.parse_args()
    if options.log_steps < 1 or not all(
        0 <= minutes < float("inf") for minutes in (options.minutes or 0, options.save_minutes)
    ):
        parser.error("--log-steps, --minutes, --save-minutes | expected at least 1, and finite times | choose others")
    return options


def main() -> int:
    options = arguments()
    console = Console(stderr=True)
    quiet = int(os.environ.get("RANK", "0")) > 0
    terminal = console.is_terminal
    handler = RichHandler(console=console, show_path=False) if terminal else logging.StreamHandler()
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, format="%(message)s", handlers=[handler])
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        run = Run(load(options.config), options)

        def stop(*_: object) -> None:
            run.stopping = True

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Bar(*columns, console=console, disable=quiet or not terminal) as bar:
            run.train(bar)
    except (DataError, CheckpointError, NotFiniteError, PicmeError, ValueError, OSError) as error:
        log.error("%s", error)
        return 1 if isinstance(error, NotFiniteError) else 2
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
