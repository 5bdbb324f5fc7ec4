"""What the commands share: options of the model and of sampling, a progress bar."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from picme_sdk.contract import (
    DEFAULT_DEVICE,
    DEFAULT_PRECISION,
    DEFAULT_STRATEGY,
    DEFAULT_TEMPERATURE,
    DEVICES,
    STRATEGIES,
)

if TYPE_CHECKING:
    from picme_sdk.completer import Completer, CompleterOptions


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", help="folder or .picme file (the model that ships with the package)")
    parser.add_argument("--device", default=DEFAULT_DEVICE, help=f"{', '.join(DEVICES)} ({DEFAULT_DEVICE})")
    parser.add_argument(
        "--threads", type=int, help="CPU threads (one per core; batch: one per photo, with photos side by side)"
    )
    parser.add_argument("--precision", help=f"float32, or int8 or float16 if the bundle has it ({DEFAULT_PRECISION})")
    parser.add_argument("--force", action="store_true", help="replace existing files")


def add_sampling(parser: argparse.ArgumentParser, n: int, seed: int | None) -> None:
    parser.add_argument("-n", type=int, default=n, help=f"number of results ({n})")
    parser.add_argument("--seed", type=int, default=seed, help=f"0 to 2**64 - 1 ({'random' if seed is None else seed})")
    parser.add_argument("--strategy", default=DEFAULT_STRATEGY, choices=STRATEGIES, help=f"({DEFAULT_STRATEGY})")
    parser.add_argument(
        "--temperature", type=float, default=DEFAULT_TEMPERATURE, help=f"of noise and weights ({DEFAULT_TEMPERATURE})"
    )


def add_address(parser: argparse.ArgumentParser, port: int, shown: str) -> None:
    parser.add_argument("--port", type=int, default=port, help=f"({shown})")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (127.0.0.1); beyond this machine it needs --token"
    )
    parser.add_argument("--token", help="at least 16 characters (random)")


def open_completer(options: argparse.Namespace) -> Completer:
    from picme_sdk.completer import Completer

    return Completer(options.bundle, options.device, options.threads, options.precision)


def completer_options(options: argparse.Namespace, threads: int | None) -> CompleterOptions:
    """For other processes, whose working directory may be another."""
    from picme_sdk.completer import CompleterOptions

    bundle = None if options.bundle is None else os.path.abspath(options.bundle)
    return CompleterOptions(bundle, options.device, threads, options.precision)


def check_sampling(options: argparse.Namespace) -> None:
    """Before any work: a list of a billion names would take all memory, and with no results every photo would count as finished."""
    from picme_sdk.mixture.recipe import check_arguments

    check_arguments(options.n, options.seed or 0, options.strategy, None, options.temperature, 1)


@contextmanager
def stop_on(*signals: signal.Signals) -> Iterator[threading.Event]:
    """An event that the first of these signals sets; a second one acts as usual.

    An exception at any point could hit the main thread while it holds a lock that worker threads wait for. The handler sets the event from a thread of its
    own, because the main thread may be holding the event's lock.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(*_: object) -> None:
        restore()
        threading.Thread(target=stop.set).start()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield stop
    finally:
        restore()


@contextmanager
def progress(total: int | None) -> Iterator[Callable[..., None]]:
    """A progress bar if rich is installed and the output is a terminal; silence otherwise."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda text, total=None: None
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, total=None: bar.update(task, advance=1, description=text, total=total)
