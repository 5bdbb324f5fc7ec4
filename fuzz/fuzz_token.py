"""Tokens: any text, and any settings and recipe behind a correct header and checksum. What can be read must survive writing and reading again."""

import base64
import struct
import zlib

from picme_sdk.errors import BadToken
from picme_sdk.mixture import token

MODEL_ID = "55" * 32


def sealed(recipe: bytes, version: int) -> str:
    """A token whose version, model and checksum are correct, so that only what follows can be wrong."""
    body = bytes([version]) + bytes.fromhex(MODEL_ID)[:8] + recipe
    return base64.urlsafe_b64encode(body + struct.pack("<I", zlib.crc32(body))).decode().rstrip("=")


def check(data: bytes) -> None:
    for text in (data.decode("utf-8", "surrogateescape"), sealed(data, 1), sealed(data, 2)):
        try:
            recipe, settings = token.decode(text, MODEL_ID)
        except BadToken as error:
            str(error).encode()
            continue
        settings = settings or token.Settings()
        if token.decode(token.encode(recipe, MODEL_ID, settings), MODEL_ID) != (recipe, settings):
            raise AssertionError(f"{recipe} with {settings} changed when it was written and read")
