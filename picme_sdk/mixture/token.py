"""Result tokens: a short text that replays a result on any device, and the recipe inside it.

A recipe is a `Draw`, a `Variation` of a recipe, or a `Blend` of two. The text is base64url of: version, first 8 bytes of the model id, recipe, CRC-32.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib

from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.recipe import MAX_TEMPERATURE, Blend, Draw, Recipe, Variation, generations, hole_count

VERSION = 1
LONGEST = 2048  # characters
DEEPEST = 32
_LETTERS = re.compile(r"[A-Za-z0-9_-]+")


def _pack(recipe: Recipe) -> bytes:
    if isinstance(recipe, Draw):
        head = struct.pack("<BB", 0, len(recipe.primitives)) + struct.pack(
            f"<{len(recipe.primitives)}H", *recipe.primitives
        )
        return head + struct.pack("<QIf", recipe.seed, recipe.index, recipe.temperature)
    if isinstance(recipe, Variation):
        return struct.pack("<BQIf", 1, recipe.seed, recipe.index, recipe.strength) + _pack(recipe.parent)
    return struct.pack("<Bf", 2, recipe.position) + _pack(recipe.first) + _pack(recipe.second)


def encode(recipe: Recipe, model_id: str) -> str:
    """The token of a recipe for the model with this id."""
    data = bytes([VERSION]) + bytes.fromhex(model_id)[:8] + _pack(recipe)
    text = base64.urlsafe_b64encode(data + struct.pack("<I", zlib.crc32(data))).decode().rstrip("=")
    if len(text) > LONGEST or generations(recipe) > DEEPEST:
        raise BadArgument("a variation of very many variations", f"at most {DEEPEST} generations", "sample anew")
    return text


class _Unpacker:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[int | float, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def recipe(self, depth: int = 0) -> Recipe:
        if depth > DEEPEST:
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
            if not 0 <= strength <= 1:
                raise ValueError("range")
            return Variation(self.recipe(depth + 1), int(seed), int(index), float(strength))
        if kind == 2:
            (position,) = self.take("<f")
            if not 0 <= position <= 1:
                raise ValueError("range")
            return Blend(self.recipe(depth + 1), self.recipe(depth + 1), float(position))
        raise ValueError("kind")


def decode(token: str, model_id: str) -> Recipe:
    """The recipe of a token; `BadToken` if it is damaged or of another model."""
    shown = repr(token)[:60]
    try:
        if not isinstance(token, str) or len(token) > LONGEST or not _LETTERS.fullmatch(token):
            raise ValueError("form")
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        body, (check,) = data[:-4], struct.unpack("<I", data[-4:])
        if len(body) < 10 or zlib.crc32(body) != check or body[0] != VERSION:
            raise ValueError("check")
        reader = _Unpacker(body)
        reader.at = 9
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
    return recipe
