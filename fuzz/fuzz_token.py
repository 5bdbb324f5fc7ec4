"""Tokens: any text, and any recipe behind a correct header and checksum. A recipe that can be read must survive writing and reading again."""

import base64
import struct
import zlib

from picme_sdk.errors import BadToken
from picme_sdk.mixture import token

MODEL_ID = "55" * 32


def sealed(recipe: bytes) -> str:
    """A token whose version, model and checksum are correct, so that only its recipe can be wrong."""
    body = bytes([token.VERSION]) + bytes.fromhex(MODEL_ID)[:8] + recipe
    return base64.urlsafe_b64encode(body + struct.pack("<I", zlib.crc32(body))).decode().rstrip("=")


def check(data: bytes) -> None:
    for text in (data.decode("utf-8", "surrogateescape"), sealed(data)):
        try:
            recipe = token.decode(text, MODEL_ID)
        except BadToken as error:
            str(error).encode()
            continue
        if token.decode(token.encode(recipe, MODEL_ID), MODEL_ID) != recipe:
            raise AssertionError(f"{recipe} changed when it was written and read")
