"""The bundle: what an exporter hands to every runtime. docs/deploy/bundle.md is the normative description.

A bundle is a folder, or one `.picme` file (a zip that only stores), with a manifest `picme.json` that names every other file with its
size and SHA-256. `Bundle.read` returns exactly the bytes that it hashed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from picme_sdk.bundle.manifest import EngineFile, File, GraphFile, parse_manifest
from picme_sdk.bundle.onnx_check import check_self_contained
from picme_sdk.contract import MANIFEST, MAX_MANIFEST_BYTES
from picme_sdk.errors import BadBundle


class Bundle:
    """An opened bundle: its manifest was checked; other files are checked when they are read. Thread-safe."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(path)
            kind = self.path.stat().st_mode
            self._zipped = not stat.S_ISDIR(kind)
            if self._zipped and not stat.S_ISREG(kind):  # opening a pipe would hang
                raise BadBundle(f"{self.path} is no regular file", "a folder or a .picme file", "check the path")
            data = self._bytes(MANIFEST, None)
        except (OSError, ValueError, TypeError) as error:  # a path may also hold a NUL, or be none at all
            what = getattr(error, "strerror", None) or str(error)
            raise BadBundle(
                f"{path}: {what}", "a bundle: a folder or .picme file with a picme.json", "check the path"
            ) from error
        self.manifest = parse_manifest(data)

    def read(self, entry: GraphFile | EngineFile | File) -> bytes:
        """The file's bytes, if their number and hash are the manifest's. ONNX graphs must also be self-contained."""
        try:
            data = self._bytes(entry.file, entry.bytes)
        except OSError as error:
            raise BadBundle(
                f"{entry.file}: {error.strerror or error}", "a readable file", "copy or export the bundle again"
            ) from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise BadBundle(f"{entry.file} was changed", f"SHA-256 {entry.sha256}", "copy or export the bundle again")
        if isinstance(entry, GraphFile):
            check_self_contained(data, entry.file)
        return data

    def verify(self) -> None:
        """Check every file, and that there is no file which the manifest does not list."""
        listed = {entry.file for entry in self.manifest.listed()} | {MANIFEST}
        extra = sorted(set(self._names()) - listed)
        if extra:
            raise BadBundle(f"{extra[0]} is not in the manifest", "listed files only", "remove it or export again")
        for entry in self.manifest.listed():
            self.read(entry)

    def _bytes(self, name: str, size: int | None) -> bytes:
        return self._zip_bytes(name, size) if self._zipped else self._folder_bytes(name, size)

    def _folder_bytes(self, name: str, size: int | None) -> bytes:
        path = self.path
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise BadBundle(f"{name} is a symbolic link", "plain files", "copy the bundle with its files")
        # Non-blocking, or a pipe in the place of a file would hang here.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadBundle(f"{name} is no regular file", "plain files", "copy or export the bundle again")
            limit = self._limit(name, status.st_size, size)
            return file.read(limit + 1)

    def _zip_bytes(self, name: str, size: int | None) -> bytes:
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = [info for info in archive.infolist() if info.filename == name]
                if len(entries) != 1:
                    raise BadBundle(
                        f"{self.path.name} has {len(entries)} files {name}", "one", "copy or export the bundle again"
                    )
                info = entries[0]
                if (
                    info.compress_type != zipfile.ZIP_STORED
                    or info.compress_size != info.file_size
                    or info.flag_bits & 1
                ):
                    raise BadBundle(
                        f"{name} is compressed or encrypted", "files that are only stored", "export the bundle again"
                    )
                limit = self._limit(name, info.file_size, size)
                with archive.open(info) as file:
                    return file.read(limit + 1)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
            raise BadBundle(
                f"{self.path}: {error}", "a bundle: a folder or .picme file with a picme.json", "check the path"
            ) from error

    def _limit(self, name: str, found: int, size: int | None) -> int:
        if size is None:
            size = MAX_MANIFEST_BYTES
            if found > size:
                raise BadBundle(f"{name}: {found} bytes", f"at most {size}", "export the bundle again")
        elif found != size:
            raise BadBundle(f"{name} has {found} bytes", f"{size}", "copy or export the bundle again")
        return size

    def _names(self) -> Iterator[str]:
        if self._zipped:
            with zipfile.ZipFile(self.path) as archive:
                yield from archive.namelist()
        else:
            for path in self.path.rglob("*"):
                if not path.is_dir() or path.is_symlink():
                    yield path.relative_to(self.path).as_posix()
