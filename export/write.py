"""Writing a bundle: all files into a temporary folder beside the target, then one rename. A bundle exists whole or not at all."""

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

from export.onnx_files import ExportError
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import File, Manifest, manifest_bytes
from picme_sdk.contract import MANIFEST

AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE = -100, 1, 2  # of Linux's renameat2


def entry(name: str, data: bytes) -> dict[str, str | int]:
    """file, sha256 and bytes, as every manifest entry has them."""
    return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def write_bundle(
    out: Path, manifest: Manifest, contents: dict[str, bytes], extras: dict[str, bytes], force: bool
) -> None:
    """Write `contents` (named in the manifest already) and `extras` (added to it) as a folder, or as one file if `out` ends in .picme."""
    check_free(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    listed = tuple(File(**entry(name, data)) for name, data in sorted(extras.items()))  # type: ignore[arg-type]
    sealed = manifest_bytes(replace(manifest, files=listed))
    everything = {MANIFEST: sealed, **contents, **extras}
    workshop = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        made = workshop / "made"
        _write_zip(made, everything) if out.suffix == ".picme" else _write_folder(made, everything)
        Bundle(made).verify()  # what was written is what will be loaded
        _put(made, out, force)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def check_free(out: Path, force: bool) -> None:
    """Refuse early, before minutes of work, to overwrite something."""
    if out.exists() and not force:
        raise _exists(out)
    if out.exists() and not _is_bundle(out):
        raise ExportError(f"{out} is no bundle | expected a bundle to replace | choose another --out")


def _exists(out: Path) -> ExportError:
    return ExportError(f"{out} exists | expected a new name | choose another --out, or --force to replace it")


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


def _put(made: Path, out: Path, force: bool) -> None:
    """Move into place in one step: a killed exporter leaves the old bundle or the new one, and no other exporter's is overwritten."""
    replaces = force and out.exists()
    fault = _renameat2(made, out, RENAME_EXCHANGE if replaces else RENAME_NOREPLACE)
    if fault in (errno.ENOSYS, errno.EINVAL):  # not with this system or disk
        _put_in_steps(made, out, replaces)
    elif fault == errno.EEXIST:
        raise _exists(out)
    elif fault:
        raise OSError(fault, os.strerror(fault), str(out))


def _put_in_steps(made: Path, out: Path, replaces: bool) -> None:
    """Files replace each other; an old folder steps aside, and comes back if the new one can't take its place."""
    if replaces and made.is_file() and out.is_file():
        made.replace(out)
        return
    aside = made.with_name("old")
    if replaces:
        out.rename(aside)
    try:
        if out.exists():
            raise _exists(out)
        made.rename(out)
    except BaseException:
        if replaces and not out.exists():
            aside.rename(out)
        raise


def _renameat2(source: Path, target: Path, flag: int) -> int:
    """Linux's rename with a condition, in one step; Python has none. Returns 0 or the error number."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    done = rename(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flag)
    return ctypes.get_errno() if done else 0
