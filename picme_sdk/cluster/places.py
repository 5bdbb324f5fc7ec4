"""A folder on any file system that Arrow knows: a path, or an address such as s3://BUCKET/FOLDER. Ray Data reads the same."""

from __future__ import annotations

import secrets
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from picme_sdk.errors import BadArgument

# Stores where an object appears only when it is complete, and where renaming means copying.
ATOMIC = ("s3", "gcs", "abfs")


class Place:
    """Files by name below a folder. It is only a text until it is used, so it can be sent to other machines."""

    def __init__(self, where: str) -> None:
        self.where = where if "://" in where else Path(where).resolve().as_posix()

    def __str__(self) -> str:
        return self.where

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.where.rstrip('/')}/{quote(name) if '://' in self.where else name}")

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem

        try:
            system, folder = FileSystem.from_uri(self.where)
        except (ArrowException, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadArgument(f"{self.where}: {reason}", "a folder, or its address", "check it") from error
        return system, folder.rstrip("/")

    def _info(self, name: str = "") -> Any:
        system, folder = self._opened
        return system.get_file_info(f"{folder}/{name}" if name else folder)

    def is_folder(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info().type == FileType.Directory)

    def has(self, name: str = "") -> bool:
        """Whether there is a file of that name; without a name, whether the place itself is a file."""
        return bool(self._info(name).is_file)

    def names(self) -> list[str]:
        """Files of the folder, not of its subfolders, by name."""
        from pyarrow.fs import FileSelector

        system, folder = self._opened
        return sorted(info.base_name for info in system.get_file_info(FileSelector(folder)) if info.is_file)

    def read(self, name: str = "") -> bytes:
        system, folder = self._opened
        with system.open_input_file(f"{folder}/{name}" if name else folder) as stream:
            return bytes(stream.readall())

    def open(self, name: str) -> Any:
        """A file opened for reading in parts."""
        system, folder = self._opened
        return system.open_input_file(f"{folder}/{name}")

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all. Two writers of the same bytes do no harm."""
        system, folder = self._opened
        system.create_dir(folder, recursive=True)
        if system.type_name in ATOMIC:
            with system.open_output_stream(f"{folder}/{name}") as stream:
                stream.write(data)
            return
        temporary = f"{folder}/.{secrets.token_hex(8)}.part"
        with system.open_output_stream(temporary) as stream:
            stream.write(data)
        system.move(temporary, f"{folder}/{name}")
