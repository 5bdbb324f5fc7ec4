"""`picme demo`: the sample photo."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from picme_sdk.cli.options import add_model, open_completer
from picme_sdk.io import check_free

HELP = "complete a sample photo, write a labelled contact sheet"
HOLE = (120, 70, 200, 150)  # one eye, except for its inner corner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("-o", "--out", default="picme-demo.png", help="(picme-demo.png)")


def run(options: argparse.Namespace) -> int:
    """Complete the photo that comes with the package."""
    from PIL import Image

    from picme_sdk.pixels.png import save_png
    from picme_sdk.sheet import results_sheet

    out = check_free(Path(options.out), options.force)
    with Image.open(str(files("picme_sdk") / "samples" / "chelsea.jpg")) as opened:
        photo = opened.convert("RGB")
    mask = Image.new("L", photo.size)
    mask.paste(255, HOLE)
    with open_completer(options) as completer:
        scene = completer.encode(photo, mask)
        results = scene.sample(6, seed=7, strategy="diverse")
        save_png(results_sheet(photo, mask, results), out)
        decode = sum(r.timings.decode_ms for r in results)
        print(
            f"{completer.manifest.name} on {completer.device} ({completer.backend}): encode {scene.encode_ms:.1f} ms, six results {decode:.1f} ms"
        )
        print(
            f"about {scene.ambiguity:.1f} equally likely answers; weights "
            + " ".join(f"{i}:{w:.2f}" for i, w in scene.primitives)
        )
    print(out)
    return 0
