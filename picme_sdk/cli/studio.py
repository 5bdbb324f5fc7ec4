"""`picme studio`: the local page."""

from __future__ import annotations

import argparse

from picme_sdk.cli.options import add_address, add_model, open_completer
from picme_sdk.contract import BROWSER_FORMATS

HELP = "paint holes and choose fills on a local page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("photo", nargs="?", help=f"picture to open with: {', '.join(BROWSER_FORMATS)}")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    add_address(parser, 0, "any free port")


def run(options: argparse.Namespace) -> int:
    """Serve a page on this machine to paint holes and choose among their fills, and open it. Ctrl-C stops it."""
    from picme_sdk.studio.app import Options, serve

    chosen = Options(options.photo, options.host, options.port, options.token, not options.no_browser)
    with open_completer(options) as completer:
        serve(completer, chosen, lambda address: print(address, flush=True))
    return 0
