"""A strict JSON reader for the manifest: closed key sets, bounded texts, lists and numbers. Everything else is a `BadBundle`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from picme_sdk.contract import BUNDLE_KEYS, MANIFEST, MAX_BUNDLE_FILES, MAX_NUMBER, MAX_TEXT_LENGTH
from picme_sdk.errors import BadBundle

_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")  # NUL, and halves of characters: neither can be written or printed

T = TypeVar("T")


def bad(given: str, expected: str) -> BadBundle:
    return BadBundle(f"{MANIFEST}: {given}", expected, "export the bundle again")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key twice")
    return table


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def load(data: bytes) -> Any:
    """JSON from bytes: UTF-8, no key twice, no NaN or Infinity."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad(
            f"not JSON ({type(error).__name__}: {str(error)[:80]})", "plain JSON without repeated keys"
        ) from error


class Reader:
    """Takes a JSON object apart; it must have exactly the keys that its kind has in the manifest's format."""

    def __init__(self, table: Any, where: str, kind: str, form: int) -> None:
        self.where, self.form = where, form
        expected = set(BUNDLE_KEYS[form][kind])
        if not isinstance(table, dict):
            raise bad(f"{where} is a {type(table).__name__}", "an object")
        if set(table) != expected:
            unknown, missing = sorted(set(table) - expected), sorted(expected - set(table))
            raise bad(f"{where} has unknown keys {unknown[:3]}, lacks {missing[:3]}", f"the keys {sorted(expected)}")
        self.table: dict[str, Any] = table

    def text(
        self,
        key: str,
        pattern: re.Pattern[str] | None = None,
        choices: tuple[str, ...] | None = None,
        length: int = MAX_TEXT_LENGTH,
    ) -> str:
        value = self.table[key]
        if not isinstance(value, str) or len(value) > length or _NO_TEXT.search(value):
            raise bad(f"{self.where}.{key} is {str(value)[:60]!r}", f"a text of at most {length:,} characters")
        if pattern is not None and not pattern.fullmatch(value):
            raise bad(f"{self.where}.{key} is {value[:60]!r}", f"a value of the form {pattern.pattern}")
        if choices is not None and value not in choices:
            raise bad(f"{self.where}.{key} is {value[:60]!r}", f"one of {choices}")
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.table[key]
        if type(value) is not int or not low <= value <= high:
            raise bad(f"{self.where}.{key} is {str(value)[:60]!r}", f"an integer from {low} to {high}")
        return value

    def number(self, key: str, low: float = -MAX_NUMBER, high: float = MAX_NUMBER) -> float:
        return number(self.table[key], f"{self.where}.{key}", low, high)

    def items(self, key: str, read: Callable[[Any, str, int], T], count: int = MAX_BUNDLE_FILES) -> tuple[T, ...]:
        value = self.table[key]
        if not isinstance(value, list) or len(value) > count:
            raise bad(f"{self.where}.{key} is {str(value)[:60]!r}", f"a list of at most {count}")
        return tuple(read(item, f"{self.where}.{key}[{i}]", self.form) for i, item in enumerate(value))


def number(value: Any, where: str, low: float, high: float) -> float:
    if type(value) not in (int, float) or not low <= value <= high:
        raise bad(f"{where} is {str(value)[:60]!r}", f"a finite number from {low:g} to {high:g}")
    return float(value)
