import base64
import json
import zlib

import numpy as np
import pytest

from picme_sdk.contract import MAX_CONTEXT, MAX_TOKEN_LENGTH, Detail
from picme_sdk.errors import BadArgument, BadToken
from picme_sdk.mixture.recipe import Blend, Draw, Recipe, Variation, f32
from picme_sdk.mixture.token import Settings, decode
from picme_sdk.mixture.token import encode as encode_with
from tests.conftest import ROOT

MODEL, OTHER = "ab" * 32, "cd" * 32
DRAW = Draw((3,), 2**64 - 1, 12, f32(0.7))
PLAIN = Settings()


def encode(recipe: Recipe, model_id: str) -> str:
    return encode_with(recipe, model_id, PLAIN)


def forge(body: bytes) -> str:
    """A token with a right check sum."""
    return base64.urlsafe_b64encode(body + zlib.crc32(body).to_bytes(4, "little")).decode().rstrip("=")


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
    assert decode(encode(recipe, MODEL), MODEL) == (recipe, PLAIN)


@pytest.mark.parametrize("context", [None, 1, 512, MAX_CONTEXT])
@pytest.mark.parametrize("detail", ["off", "auto"])
def test_a_token_carries_context_and_detail(context: int | None, detail: Detail) -> None:
    settings = Settings(context, detail)
    assert decode(encode_with(DRAW, MODEL, settings), MODEL) == (DRAW, settings)


def test_version_1_is_read_and_records_no_settings() -> None:
    body = bytes.fromhex("01" + "ab" * 8 + "00" + "01" + "0300" + "ff" * 8 + "0c000000" + "3333333f")
    assert decode(forge(body), MODEL) == (DRAW, None)


@pytest.mark.parametrize(
    "settings",
    ["02", "10", "70", "82" + "01000000", "80" + "00000000", "80" + "01001000", ""],
    ids=["detail", "tiles", "all tiles", "detail with context", "context 0", "huge context", "none"],
)
def test_settings_that_nobody_writes_are_refused(settings: str) -> None:
    recipe = bytes.fromhex("00" + "01" + "0300" + "ff" * 8 + "0c000000" + "3333333f")
    with pytest.raises(BadToken):
        decode(forge(bytes.fromhex("02" + "ab" * 8 + settings) + recipe), MODEL)


def test_versions_of_the_future_are_refused() -> None:
    for version in (0, 3, 255):
        body = bytes([version]) + base64.urlsafe_b64decode(encode(DRAW, MODEL) + "==")[1:-4]
        with pytest.raises(BadToken):
            decode(forge(body), MODEL)


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


@pytest.mark.parametrize(
    "token", ["", "x", "AAAA", "=" * 40, "\0" * 40, "A" * (MAX_TOKEN_LENGTH + 1), "AA+/", None, 7, b"AAAA"]
)
def test_what_is_no_token_is_refused(token: object) -> None:
    with pytest.raises(BadToken):
        decode(token, MODEL)


def test_a_blend_of_different_numbers_of_holes_is_refused() -> None:
    with pytest.raises(BadToken):
        decode(encode(Blend(DRAW, Draw((1, 2), 0, 0, 1.0), 0.5), MODEL), MODEL)


def test_random_bytes_are_refused() -> None:
    random = np.random.default_rng(0)
    for length in range(1, 80):
        forged = forge(b"\x02" + bytes.fromhex(MODEL)[:8] + random.bytes(length))
        try:
            recipe, settings = decode(forged, MODEL)
            assert encode_with(recipe, MODEL, settings or PLAIN) == forged, (
                "whoever computes the check sum may write a valid recipe"
            )
        except BadToken:
            continue


def test_recipes_do_not_grow_without_end() -> None:
    recipe: Recipe = DRAW
    for _ in range(20):
        recipe = Variation(recipe, 1, 0, 0.5)
    assert decode(encode(recipe, MODEL), MODEL)[0] == recipe
    for _ in range(80):
        recipe = Variation(recipe, 1, 0, 0.5)
    with pytest.raises(BadArgument, match="generations"):
        encode(recipe, MODEL)


def test_the_vectors_of_version_1_hold_the_recipes_of_version_2() -> None:
    vectors = json.loads((ROOT / "tests/vectors/sampling.json").read_text())["tokens"]
    recipes = {entry["name"]: decode(entry["token"], vectors["model_id"])[0] for entry in vectors["version 2"]}
    assert vectors["version 1"].keys() == recipes.keys()
    for name, text in vectors["version 1"].items():
        assert decode(text, vectors["model_id"]) == (recipes[name], None)
