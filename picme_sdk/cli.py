"""The `picme` command: complete, batch, video, bench, studio, serve, inspect, doctor, demo. Exit codes: 0 ok, 1 some inputs failed, 2 usage or nothing done."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from picme_sdk import __version__, commands
from picme_sdk.contract import (
    BROWSER_FORMATS,
    DEFAULT_BATCH_RESULTS,
    DEFAULT_DEVICE,
    DEFAULT_PRECISION,
    DEFAULT_RESULTS,
    DEFAULT_STRATEGY,
    DEFAULT_TEMPERATURE,
    DEVICES,
    STRATEGIES,
)
from picme_sdk.errors import PicmeError
from picme_sdk.terminal import standard_streams


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="picme", description="fill the hole of a photo in several different ways")
    top.add_argument("--version", action="version", version=f"picme-sdk {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, runs_model: bool = True
    ) -> argparse.ArgumentParser:
        made = subparsers.add_parser(name, help=text, description=run.__doc__)
        made.set_defaults(run=run)
        if runs_model:
            made.add_argument("--bundle", help="folder or .picme file (the model that ships with the package)")
            made.add_argument("--device", default=DEFAULT_DEVICE, help=f"{', '.join(DEVICES)} ({DEFAULT_DEVICE})")
            made.add_argument(
                "--threads", type=int, help="CPU threads (one a core; batch: one a photo, with photos side by side)"
            )
            made.add_argument(
                "--precision", help=f"float32, or int8 or float16 where the bundle has it ({DEFAULT_PRECISION})"
            )
            made.add_argument("--force", action="store_true", help="replace existing files")
        return made

    def sampling(made: argparse.ArgumentParser, n: int, seed: int | None) -> None:
        made.add_argument("-n", type=int, default=n, help=f"results ({n})")
        made.add_argument(
            "--seed", type=int, default=seed, help=f"0 to 2**64 - 1 ({'random' if seed is None else seed})"
        )
        made.add_argument("--strategy", default=DEFAULT_STRATEGY, choices=STRATEGIES, help=f"({DEFAULT_STRATEGY})")
        made.add_argument(
            "--temperature",
            type=float,
            default=DEFAULT_TEMPERATURE,
            help=f"of noise and weights ({DEFAULT_TEMPERATURE})",
        )

    one = command("complete", commands.complete, "complete one photo")
    one.add_argument("photo", help="picture file, or - for standard input")
    one.add_argument(
        "mask", nargs="?", help="picture of the same size, light = hole; without it, transparent pixels are the hole"
    )
    one.add_argument(
        "-o",
        "--out",
        required=True,
        help="folder, FILE.png (a contact sheet for several results), or - for standard output",
    )
    sampling(one, DEFAULT_RESULTS, None)
    one.add_argument("--primitive", type=int, help="only this idea")
    one.add_argument("--context", type=int, help="smallest side of the square around the hole, pixels")
    one.add_argument("--json", action="store_true", help="report as one line of JSON")

    many = command("batch", commands.batch, "complete a folder of photos")
    many.add_argument("photos", help="folder")
    many.add_argument("--mask", help="one mask for all, a folder of masks of the same names, or alpha (the default)")
    many.add_argument(
        "-o", "--out", required=True, help="folder of results: NAME-1.png and so on; what is there is skipped"
    )
    sampling(many, DEFAULT_BATCH_RESULTS, 0)
    many.add_argument("--watch", action="store_true", help="go on with photos that come into the folder, until Ctrl-C")
    many.add_argument(
        "--json", metavar="REPORT", help="write a report, - for standard output; with --ray also FILE.parquet"
    )
    many.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="on a Ray cluster; without an address, one on this machine",
    )

    moving = command("video", commands.video, "complete a video without flicker")
    moving.add_argument("video", metavar="IN", help="video file")
    moving.add_argument("out", metavar="OUT", nargs="?", help="new video: .mp4, .m4v, .mov, .mkv or .webm")
    moving.add_argument(
        "--mask", required=True, help="picture for all frames, or a video with a mask for each; light = hole"
    )
    moving.add_argument("--primitive", type=int, help="the idea to follow (the heaviest of the first frame)")
    moving.add_argument("--seed", type=int, default=0, help="0 to 2**64 - 1 (0)")
    moving.add_argument("--temperature", type=float, default=DEFAULT_TEMPERATURE, help="of the noise (1.0)")
    moving.add_argument("--smoothing", type=float, default=0.8, help="share of the past in the idea, 0 to 1 (0.8)")
    moving.add_argument("--preview", metavar="SHEET.png", help="write every idea for the first frame with a hole")
    moving.add_argument("--json", action="store_true", help="report as one line of JSON")

    timed = command("bench", commands.bench, "measure latency")
    timed.add_argument("--rounds", type=int, default=20, help="(20)")
    timed.add_argument("--plot", metavar="FILE.png", help="draw cost against the number of results")
    timed.add_argument("--json", action="store_true", help="as one line of JSON")
    shown = command("demo", commands.demo, "complete a sample photo, write a labelled contact sheet")
    shown.add_argument("-o", "--out", default="picme-demo.png", help="(picme-demo.png)")
    local = command("studio", commands.studio, "paint holes and choose fills on a local page")
    local.add_argument("photo", nargs="?", help=f"picture to open with: {', '.join(BROWSER_FORMATS)}")
    local.add_argument("--port", type=int, default=0, help="(any that is free)")
    local.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    local.add_argument(
        "--host", default="127.0.0.1", help="where to listen (127.0.0.1); beyond this machine needs --token"
    )
    local.add_argument("--token", help="at least 16 characters (random)")
    remote = command("serve", commands.serve, "the studio's HTTP API on several replicas, for many users")
    remote.add_argument("--port", type=int, default=8000, help="(8000)")
    remote.add_argument(
        "--host", default="127.0.0.1", help="where to listen (127.0.0.1); beyond this machine needs --token"
    )
    remote.add_argument("--token", help="at least 16 characters (random)")
    remote.add_argument("--replicas", default="1", metavar="N or MIN:MAX", help="models; MIN:MAX follows the load (1)")
    remote.add_argument("--ongoing", type=int, default=4, help="requests that a replica works on at once (4)")
    remote.add_argument("--queue", type=int, default=16, help="requests that may wait; others get 429 (16)")
    remote.add_argument("--deadline", type=float, default=30.0, help="seconds from a request's arrival to its end (30)")
    remote.add_argument("--ray", default="local", metavar="ADDRESS", help="of a Ray cluster (one on this machine)")
    checked = command("inspect", commands.inspect, "check a bundle and print what is in it", runs_model=False)
    checked.add_argument("bundle")
    checked.add_argument("--json", action="store_true", help="the manifest as one line of JSON")
    asked = command("doctor", commands.doctor, "what this machine has, what auto picks and why", runs_model=False)
    asked.add_argument("--bundle", help="try this bundle (the one that ships with the package)")
    asked.add_argument("--json", action="store_true", help="as one line of JSON")
    return top


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        with standard_streams():
            return int(options.run(options))
    except (PicmeError, OSError) as error:
        print(f"picme: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1


if __name__ == "__main__":
    sys.exit(main())
