"""`picme inspect`: check a bundle and describe it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

HELP = "check a bundle and print what is in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle")
    parser.add_argument("--json", action="store_true", help="the manifest as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Check every file of a bundle and print what is in it."""
    from picme_sdk.bundle.bundle import Bundle

    bundle = Bundle(options.bundle)
    bundle.verify()
    manifest = bundle.manifest
    if options.json:
        print(json.dumps(asdict(manifest)))
        return 0
    print(
        f"{manifest.name}: {manifest.image_size}x{manifest.image_size}, {manifest.primitives} primitives, latent {manifest.latent}"
    )
    if manifest.knows:
        print(f"knows {manifest.knows}")
    print(f"licence {manifest.licence} | {manifest.made_by} | model {manifest.model_id[:16]} | every hash matches")
    for graph in manifest.graphs:
        print(
            f"  graph   {graph.graph:8} {graph.precision:8} {graph.bytes / 1e6:8.2f} MB  {graph.file}, weights in {graph.storage}"
        )
    for engine in manifest.engines:
        print(
            f"  engine  {engine.graph:8} {engine.precision:8} {engine.bytes / 1e6:8.2f} MB  {engine.builder} {engine.version} for {engine.target}"
        )
    for check in manifest.verified:
        print(
            f"  check   {check.graph:8} {check.compared:16} {check.measure:8} {check.value:9.3g} (limit {check.limit:.3g}; {check.input})"
        )
    for time in manifest.measured:
        print(
            f"  time    {time.graph:8} {time.precision:8} {time.p50_ms:8.2f} ms (p99 {time.p99_ms:.2f}; {time.results} results, {time.backend}, {time.device})"
        )
    for name, text in asdict(manifest.card).items():
        if text:
            print(f"  card    {name}: {text}")
    return 0
