"""The `picme` command."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from picme_sdk import __version__
from picme_sdk.bundle import Bundle
from picme_sdk.errors import PicmeError


def inspect(options: argparse.Namespace) -> int:
    """Check every file of a bundle and print what is in it."""
    bundle = Bundle(options.bundle)
    bundle.verify()
    manifest = bundle.manifest
    if options.json:
        print(json.dumps(asdict(manifest) | {"model_id": manifest.model_id}))
        return 0
    print(
        f"{manifest.name}: {manifest.image_size}x{manifest.image_size}, {manifest.primitives} primitives, latent {manifest.latent}"
    )
    print(f"licence {manifest.licence} | {manifest.made_by} | model {manifest.model_id[:16]} | every hash matches")
    for graph in manifest.graphs:
        print(f"  graph   {graph.graph:8} {graph.precision:8} {graph.bytes / 1e6:8.2f} MB  {graph.file}")
    for engine in manifest.engines:
        print(
            f"  engine  {engine.graph:8} {engine.precision:8} {engine.bytes / 1e6:8.2f} MB  {engine.builder} {engine.version} for {engine.target}"
        )
    for check in manifest.verified:
        print(
            f"  check   {check.graph:8} {check.compared:16} {check.measure:8} {check.value:9.3g} (limit {check.limit:.3g}; {check.input})"
        )
    for name, text in asdict(manifest.card).items():
        if text:
            print(f"  card    {name}: {text}")
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="picme", description="fill the hole of a photo in several different ways")
    top.add_argument("--version", action="version", version=f"picme-sdk {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("inspect", help="check a bundle and print what is in it")
    command.add_argument("bundle", type=Path)
    command.add_argument("--json", action="store_true", help="the manifest as one line of JSON")
    command.set_defaults(run=inspect)
    return top


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        return int(options.run(options))
    except PicmeError as error:
        print(f"picme: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
