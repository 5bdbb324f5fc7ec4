"""Standard input and output as a command needs them: every file name can be printed, and failed writes are reported."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def standard_streams() -> Iterator[None]:
    """Around everything that a command does. When it ends, all output has been written, or an OSError says why not."""
    warnings.filterwarnings("ignore", module="PIL")  # about pictures that we then read or refuse with our own error
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (closed by the parent process)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names are bytes, and need not be valid text
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # otherwise the interpreter would fail again at exit
            raise
