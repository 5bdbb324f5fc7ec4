"""The `picme` command: one module per command, each with HELP, `add_arguments` and `run`. Exit codes: 0 ok, 1 some inputs failed, 2 usage or nothing done.

A module imports the runtime inside `run`, so that `picme --help` stays fast.
"""

from __future__ import annotations

import argparse
import sys

from picme_sdk import __version__
from picme_sdk.cli import batch, bench, complete, demo, doctor, inspect, serve, studio, video
from picme_sdk.cli.terminal import standard_streams
from picme_sdk.errors import PicmeError

COMMANDS = {
    "complete": complete,
    "batch": batch,
    "video": video,
    "bench": bench,
    "demo": demo,
    "studio": studio,
    "serve": serve,
    "inspect": inspect,
    "doctor": doctor,
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="picme", description="fill the hole of a photo in several different ways")
    top.add_argument("--version", action="version", version=f"picme-sdk {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = subparsers.add_parser(name, help=command.HELP, description=command.run.__doc__)
        sub.set_defaults(run=command.run)
        command.add_arguments(sub)
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
