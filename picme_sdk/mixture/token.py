"""Result tokens: a short text that replays a result on any device, and the recipe inside it.

A recipe is a `Draw`, a `Variation` of a recipe, or a `Blend` of two. The text is base64url of

    version (2), first 8 bytes of the model id, settings, recipe, CRC-32

Settings are one byte: detail in bits 0 to 3 (0 = off, 1 = auto), bits 4 to 6 reserved for how a hole is tiled (0), and bit 7 set where a
context of four bytes follows. Version 1 has no settings. Numbers are little-endian.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from dataclasses import dataclass

from picme_sdk.contract import (
    DETAILS,
    MAX_CONTEXT,
    MAX_RECIPE_DEPTH,
    MAX_STRENGTH,
    MAX_TEMPERATURE,
    MAX_TOKEN_LENGTH,
    TOKEN_VERSION,
    Detail,
)
from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.recipe import Blend, Draw, Recipe, Variation, generations, hole_count

HAS_CONTEXT = 0x80
_LETTERS = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Settings:
    """What a photo was encoded with: a recipe gives the same pixels only where these are equal."""

    context: int | None = None  # smallest side of the square around a hole; None = the model's own resolution
    detail: Detail = "off"


def _pack(recipe: Recipe) -> bytes:
    if isinstance(recipe, Draw):
        head = struct.pack("<BB", 0, len(recipe.primitives)) + struct.pack(
            f"<{len(recipe.primitives)}H", *recipe.primitives
        )
        return head + struct.pack("<QIf", recipe.seed, recipe.index, recipe.temperature)
    if isinstance(recipe, Variation):
        return struct.pack("<BQIf", 1, recipe.seed, recipe.index, recipe.strength) + _pack(recipe.parent)
    return struct.pack("<Bf", 2, recipe.position) + _pack(recipe.first) + _pack(recipe.second)


def _pack_settings(settings: Settings) -> bytes:
    detail = DETAILS.index(settings.detail)
    if settings.context is None:
        return struct.pack("<B", detail)
    return struct.pack("<BI", detail | HAS_CONTEXT, settings.context)


def encode(recipe: Recipe, model_id: str, settings: Settings) -> str:
    """The token of a recipe for the model with this id, on a photo that was encoded with these settings."""
    data = bytes([TOKEN_VERSION]) + bytes.fromhex(model_id)[:8] + _pack_settings(settings) + _pack(recipe)
    text = base64.urlsafe_b64encode(data + struct.pack("<I", zlib.crc32(data))).decode().rstrip("=")
    if len(text) > MAX_TOKEN_LENGTH or generations(recipe) > MAX_RECIPE_DEPTH:
        raise BadArgument(
            "a variation of very many variations", f"at most {MAX_RECIPE_DEPTH} generations", "sample anew"
        )
    return text


class _Unpacker:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[int | float, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def settings(self) -> Settings:
        (bits,) = self.take("<B")
        number, context = int(bits) & ~HAS_CONTEXT, None
        if int(bits) & HAS_CONTEXT:
            context = int(self.take("<I")[0])
        if number >= len(DETAILS) or (context is not None and not 1 <= context <= MAX_CONTEXT):
            raise ValueError("settings")
        return Settings(context, DETAILS[number])

    def recipe(self, depth: int = 0) -> Recipe:
        if depth > MAX_RECIPE_DEPTH:
            raise ValueError("too deep")
        (kind,) = self.take("<B")
        if kind == 0:
            (count,) = self.take("<B")
            primitives = tuple(int(p) for p in self.take(f"<{int(count)}H"))
            seed, index, temperature = self.take("<QIf")
            if not primitives or not 0 <= temperature <= MAX_TEMPERATURE:
                raise ValueError("range")
            return Draw(primitives, int(seed), int(index), float(temperature))
        if kind == 1:
            seed, index, strength = self.take("<QIf")
            if not 0 <= strength <= MAX_STRENGTH:
                raise ValueError("range")
            return Variation(self.recipe(depth + 1), int(seed), int(index), float(strength))
        if kind == 2:
            (position,) = self.take("<f")
            if not 0 <= position <= 1:
                raise ValueError("range")
            return Blend(self.recipe(depth + 1), self.recipe(depth + 1), float(position))
        raise ValueError("kind")


def decode(token: str, model_id: str) -> tuple[Recipe, Settings | None]:
    """The recipe of a token and the settings that it was made with (None: version 1 did not record them); `BadToken` if it is damaged or
    of another model."""
    shown = repr(token)[:60]
    try:
        if not isinstance(token, str) or len(token) > MAX_TOKEN_LENGTH or not _LETTERS.fullmatch(token):
            raise ValueError("form")
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        body, (check,) = data[:-4], struct.unpack("<I", data[-4:])
        if len(body) < 10 or zlib.crc32(body) != check or not 1 <= body[0] <= TOKEN_VERSION:
            raise ValueError("check")
        reader = _Unpacker(body)
        reader.at = 9
        settings = None if body[0] == 1 else reader.settings()
        recipe = reader.recipe()
        if reader.at != len(body):
            raise ValueError("length")
        hole_count(recipe)
    except (ValueError, struct.error, binascii.Error, UnicodeError) as error:
        raise BadToken(f"token {shown}", "a token as a result carries it", "copy it whole") from error
    if body[1:9] != bytes.fromhex(model_id)[:8]:
        raise BadToken(
            f"token {shown} of model {body[1:9].hex()}", f"model {model_id[:16]}", "load the bundle that made it"
        )
    return recipe, settings
