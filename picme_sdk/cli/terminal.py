"""Standard input and output as a command needs them: every file name can be printed, and what could not be written is told."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def standard_streams() -> Iterator[None]:
    """Around all that a command does. When it ends, everything printed has left, or an OSError says why not."""
    warnings.filterwarnings("ignore", module="PIL")  # of pictures that are then read or refused in our own words
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (closed by who started us)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files are bytes, and need not be text
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would fail at it again
            raise
