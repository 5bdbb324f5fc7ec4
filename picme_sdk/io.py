"""Files that appear whole or not at all, and are never overwritten silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from picme_sdk.errors import FileExists


def check_free(path: Path, force: bool) -> Path:
    """The path, if it is free or may be replaced; `FileExists` otherwise."""
    if path.exists() and not force:
        raise FileExists(f"{path} exists", "a new name", "choose another, or --force to replace it")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden name beside `path`, of the same suffix, to write to. At the end it takes the place of `path`; after an error nothing is left."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
