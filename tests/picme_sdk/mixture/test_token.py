import numpy as np
import pytest

from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.recipe import Blend, Draw, Recipe, Variation, f32
from picme_sdk.mixture.token import LONGEST, decode, encode

MODEL, OTHER = "ab" * 32, "cd" * 32
DRAW = Draw((3,), 2**64 - 1, 12, f32(0.7))


@pytest.mark.parametrize(
    "recipe",
    [
        DRAW,
        Draw((0, 65535, 2), 0, 2**32 - 1, 0.0),
        Variation(DRAW, 5, 1, f32(0.3)),
        Blend(DRAW, Variation(DRAW, 5, 1, 1.0), 0.5),
    ],
)
def test_a_token_gives_its_recipe_back(recipe: Recipe) -> None:
    assert decode(encode(recipe, MODEL), MODEL) == recipe


def test_tokens_are_short_and_safe_in_urls_and_shells() -> None:
    token = encode(DRAW, MODEL)
    assert len(token) <= 48
    assert token.replace("-", "").replace("_", "").isalnum()


def test_tokens_of_another_model_are_refused() -> None:
    with pytest.raises(BadToken, match="model"):
        decode(encode(DRAW, MODEL), OTHER)


def test_every_single_change_is_refused() -> None:
    token = encode(Variation(DRAW, 5, 1, f32(0.3)), MODEL)
    for position in range(len(token)):
        for letter in ("A", "z", "-", "\u00e9", " "):
            if token[position] != letter:
                forged = token[:position] + letter + token[position + 1 :]
                try:
                    # The last letter of base64 has unused bits: such a change is none.
                    assert decode(forged, MODEL) == decode(token, MODEL)
                    assert position == len(token) - 1
                except BadToken:
                    continue


@pytest.mark.parametrize("token", ["", "x", "AAAA", "=" * 40, "\0" * 40, "A" * (LONGEST + 1), "AA+/", None, 7, b"AAAA"])
def test_what_is_no_token_is_refused(token: object) -> None:
    with pytest.raises(BadToken):
        decode(token, MODEL)


def test_a_blend_of_different_numbers_of_holes_is_refused() -> None:
    with pytest.raises(BadToken):
        decode(encode(Blend(DRAW, Draw((1, 2), 0, 0, 1.0), 0.5), MODEL), MODEL)


def test_random_bytes_are_refused() -> None:
    import base64
    import zlib

    random = np.random.default_rng(0)
    for length in range(1, 80):
        body = b"\x01" + bytes.fromhex(MODEL)[:8] + random.bytes(length)
        forged = base64.urlsafe_b64encode(body + zlib.crc32(body).to_bytes(4, "little")).decode().rstrip("=")
        try:
            assert encode(decode(forged, MODEL), MODEL) == forged, (
                "whoever computes the check sum may write a valid recipe"
            )
        except BadToken:
            continue


def test_recipes_do_not_grow_without_end() -> None:
    recipe: Recipe = DRAW
    for _ in range(20):
        recipe = Variation(recipe, 1, 0, 0.5)
    assert decode(encode(recipe, MODEL), MODEL) == recipe
    for _ in range(80):
        recipe = Variation(recipe, 1, 0, 0.5)
    with pytest.raises(BadArgument, match="generations"):
        encode(recipe, MODEL)
