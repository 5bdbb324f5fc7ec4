"""`picme video`: a video without flicker."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from picme_sdk.cli.options import add_model, open_completer, progress
from picme_sdk.contract import DEFAULT_TEMPERATURE
from picme_sdk.errors import BadArgument
from picme_sdk.io import check_free

HELP = "complete a video without flicker"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("video", metavar="IN", help="video file")
    parser.add_argument("out", metavar="OUT", nargs="?", help="new video: .mp4, .m4v, .mov, .mkv or .webm")
    parser.add_argument(
        "--mask", required=True, help="picture for all frames, or a video with a mask for each; light = hole"
    )
    parser.add_argument("--primitive", type=int, help="the idea to follow (the heaviest of the first frame)")
    parser.add_argument("--seed", type=int, default=0, help="0 to 2**64 - 1 (0)")
    parser.add_argument(
        "--temperature", type=float, default=DEFAULT_TEMPERATURE, help=f"of the noise ({DEFAULT_TEMPERATURE})"
    )
    parser.add_argument("--smoothing", type=float, default=0.8, help="share of the past in the idea, 0 to 1 (0.8)")
    parser.add_argument("--preview", metavar="SHEET.png", help="write every idea for the first frame with a hole")
    parser.add_argument("--json", action="store_true", help="report as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """A video: every frame's hole is filled with the same idea and noise. Without OUT, only the preview is written."""
    from picme_sdk.pixels.png import save_png
    from picme_sdk.video import complete_video, preview

    targets = [Path(name) for name in (options.preview, options.out) if name]
    if not targets:
        raise BadArgument("neither OUT nor --preview", "one of them, or both", "name the new video")
    for target in targets:
        check_free(target, options.force)
    with open_completer(options) as completer:
        if options.preview:
            sheet = preview(completer, options.video, options.mask, options.seed, options.temperature)
            save_png(sheet, Path(options.preview))
        if not options.out:
            print(json.dumps({"files": [options.preview]}) if options.json else options.preview)
            return 0
        start = time.perf_counter()
        with progress(None) as say:
            report = complete_video(
                completer, options.video, options.out, options.mask, options.primitive, options.seed, options.temperature,
                options.smoothing, options.force,
                lambda count, total: say(f"{count / (time.perf_counter() - start):.1f} frames/s", total),
            )  # fmt: skip
    if options.json:
        print(json.dumps({"files": [str(target) for target in targets], **report.as_dict()}))
        return 0
    print(report)
    for target in targets:
        print(target)
    return 0
