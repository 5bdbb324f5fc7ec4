"""`picme complete`: one photo."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from picme_sdk.cli.options import add_model, add_sampling, check_sampling, open_completer
from picme_sdk.contract import DEFAULT_RESULTS
from picme_sdk.io import check_free

if TYPE_CHECKING:
    from PIL import Image

    from picme_sdk.pixels.mask import MaskLike
    from picme_sdk.pixels.photo import Photo

HELP = "complete one photo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("photo", help="picture file, or - for standard input")
    parser.add_argument(
        "mask", nargs="?", help="picture of the same size, light = hole; without it, transparent pixels are the hole"
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        help="folder, FILE.png (a contact sheet for several results), or - for standard output",
    )
    add_sampling(parser, DEFAULT_RESULTS, None)
    parser.add_argument("--primitive", type=int, help="only this idea")
    parser.add_argument("--context", type=int, help="smallest side of the square around the hole, pixels")
    parser.add_argument("--json", action="store_true", help="report as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """One photo. OUT is a folder for one PNG per result, or a PNG: the result if there is only one, otherwise a contact sheet."""
    from picme_sdk.pixels.photo import load
    from picme_sdk.pixels.png import png_bytes, save_png
    from picme_sdk.sheet import results_sheet

    check_sampling(options)
    out = options.out
    single = out == "-" or out.lower().endswith(".png")
    stem = "photo" if options.photo == "-" else Path(options.photo).stem
    targets = [Path(out)] if single else [Path(out) / f"{stem}-{i + 1}.png" for i in range(options.n)]
    if out != "-":
        for target in targets:
            check_free(target, options.force)
    source: Any = sys.stdin.buffer.read() if options.photo == "-" else options.photo
    photo = load(source)
    mask = None if options.mask in (None, "alpha") else options.mask
    with open_completer(options) as completer:
        scene = completer.encode(photo.pixels, mask, context=options.context)
        results = scene.sample(options.n, options.seed, options.strategy, options.primitive, options.temperature)
        if single and options.n > 1:
            pictures: list[tuple[Image.Image, str | None]] = [(results_sheet(*_shown(photo, mask), results), None)]
        else:
            pictures = [(result.image, result.token) for result in results]
        if out == "-":
            sys.stdout.buffer.write(png_bytes(pictures[0][0]))
        else:
            targets[0].parent.mkdir(parents=True, exist_ok=True)
            for target, (picture, token) in zip(targets, pictures, strict=True):
                save_png(picture, target, token)
        lines = [
            {"primitive": r.primitive, "weight": r.weight, "log_density": r.log_density, "token": r.token, "decode_ms": r.timings.decode_ms}
            for r in results
        ]  # fmt: skip
        report = {
            "backend": completer.backend, "device": completer.device, "encode_ms": scene.encode_ms, "ambiguity": scene.ambiguity,
            "files": [str(t) for t in targets] if out != "-" else [], "results": lines,
        }  # fmt: skip
    to = sys.stderr if out == "-" else sys.stdout
    if options.json:
        print(json.dumps(report), file=to)
        return 0
    for number, line in enumerate(lines, 1):
        print(
            f"{number}: primitive {line['primitive']}, weight {line['weight']:.2f}, log-density {line['log_density']:.1f}, {line['token']}",
            file=to,
        )
    for target in targets if out != "-" else []:
        print(target, file=to)
    return 0


def _shown(photo: Photo, mask: MaskLike) -> tuple[Image.Image, Image.Image]:
    """The photo and its whole mask, for the sheet."""
    from PIL import Image

    from picme_sdk.pixels.mask import load_mask

    hole = load_mask(mask, photo)
    whole = Image.new("L", photo.size)
    whole.paste(Image.fromarray(hole.values), hole.box[:2])
    assert isinstance(photo.pixels, Image.Image)  # noqa: S101 (from a path or bytes)
    return photo.pixels, whole
