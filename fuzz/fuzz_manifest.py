"""Bundles: every input is tried as a manifest (as it is, and with a new seal), as an ONNX graph and as a .picme file."""

import atexit
import os
import re
import tempfile

from picme_sdk.bundle import manifest
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.onnx_check import check_self_contained
from picme_sdk.errors import BadBundle


def scratch() -> tuple[int, str]:
    """A file that is rewritten for each input, in memory if possible, which is faster and leaves nothing behind."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("fuzz")
        return handle, f"/proc/self/fd/{handle}"
    handle, path = tempfile.mkstemp(".picme")
    atexit.register(os.unlink, path)
    return handle, path


_HANDLE, _PATH = scratch()


def resealed(data: bytes) -> bytes:
    """With the seal that fits, as an attacker would write it."""
    try:
        seal = manifest.seal_of(data)
    except BadBundle:
        return data
    return re.sub(rb'"seal": "[0-9a-f]{64}"', b'"seal": "' + seal.encode() + b'"', data)


def as_manifest(data: bytes) -> None:
    read = manifest.parse_manifest(data)
    repr(read).encode()
    read.model_id.encode()
    for entry in read.listed():
        if entry.file.startswith("/") or ".." in entry.file.split("/"):
            raise AssertionError(f"{entry.file} leaves the bundle")
    for text in (read.licence, read.made_by, *vars(read.card).values()):
        text.encode()  # `picme inspect` prints it
    if manifest.parse_manifest(manifest.manifest_bytes(read)).graphs != read.graphs:
        raise AssertionError("changed when it was written and read")


def as_file(data: bytes) -> None:
    os.ftruncate(_HANDLE, 0)
    os.pwrite(_HANDLE, data, 0)
    Bundle(_PATH).verify()


def check(data: bytes) -> None:
    for attempt in (
        lambda: as_manifest(data),
        lambda: as_manifest(resealed(data)),
        lambda: check_self_contained(data, "graph.onnx"),
        lambda: as_file(data),
    ):
        try:
            attempt()
        except BadBundle as error:
            str(error).encode()
