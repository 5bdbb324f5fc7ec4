"""Writing a bundle: all files go to a temporary folder beside the target, then one rename. A bundle exists whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import File, Manifest, manifest_bytes
from picme_sdk.contract import MANIFEST
from picme_sdk.errors import ExportError

AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE = -100, 1, 2  # of Linux's renameat2


class Entry(TypedDict):
    file: str
    sha256: str
    bytes: int


def entry(name: str, data: bytes) -> Entry:
    """The fields file, sha256 and bytes of a manifest entry."""
    return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def write_bundle(
    out: Path, manifest: Manifest, contents: dict[str, bytes], extras: dict[str, bytes], force: bool
) -> None:
    """Write `contents` (named in the manifest already) and `extras` (added to it) as a folder, or as one file if `out` ends in .picme."""
    check_free(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    listed = tuple(File(**entry(name, data)) for name, data in sorted(extras.items()))
    sealed = manifest_bytes(replace(manifest, files=listed))
    everything = {MANIFEST: sealed, **contents, **extras}
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        new = folder / "new"
        _write_zip(new, everything) if out.suffix == ".picme" else _write_folder(new, everything)
        Bundle(new).verify()  # what was written is what will be loaded
        _put(new, out, force)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_free(out: Path, force: bool) -> None:
    """Refuse to overwrite something early, before minutes of work."""
    if out.exists() and not force:
        raise _exists(out)
    if out.exists() and not _is_bundle(out):
        raise ExportError(f"{out} is not a bundle", "a bundle to replace", "choose another --out")


def _exists(out: Path) -> ExportError:
    return ExportError(f"{out} exists", "a new name", "choose another --out, or --force to replace it")


def _is_bundle(path: Path) -> bool:
    return (path / MANIFEST).is_file() if path.is_dir() else path.suffix == ".picme"


def _write_folder(folder: Path, everything: dict[str, bytes]) -> None:
    for name, data in everything.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _write_zip(path: Path, everything: dict[str, bytes]) -> None:
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in everything.items():
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # a fixed date: the same input gives the same file
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
        file.flush()
        os.fsync(file.fileno())


def _put(new: Path, out: Path, force: bool) -> None:
    """Move into place in one step: a killed exporter leaves the old bundle or the new one, and never overwrites that of another exporter."""
    replaces = force and out.exists()
    fault = _renameat2(new, out, RENAME_EXCHANGE if replaces else RENAME_NOREPLACE)
    if fault in (errno.ENOSYS, errno.EINVAL):  # this system or file system has no such rename
        _put_in_steps(new, out, replaces)
    elif fault == errno.EEXIST:
        raise _exists(out)
    elif fault:
        raise OSError(fault, os.strerror(fault), str(out))


def _put_in_steps(new: Path, out: Path, replaces: bool) -> None:
    """A file replaces a file. An old folder is renamed first, and restored if the new one can't take its place."""
    if replaces and new.is_file() and out.is_file():
        new.replace(out)
        return
    aside = new.with_name("old")
    if replaces:
        out.rename(aside)
    try:
        if out.exists():
            raise _exists(out)
        new.rename(out)
    except BaseException:
        if replaces and not out.exists():
            aside.rename(out)
        raise


def _renameat2(source: Path, target: Path, flag: int) -> int:
    """Linux's conditional rename, which Python does not offer. Returns 0 or the error number."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    done = rename(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flag)
    return ctypes.get_errno() if done else 0
