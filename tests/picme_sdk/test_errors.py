"""The family of errors."""

from __future__ import annotations

import inspect
import pickle

import pytest

from picme_sdk import errors
from picme_sdk.errors import BadImage, PicmeError, describe

FAMILY = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", FAMILY)
def test_each_says_given_expected_and_cure_and_travels_between_processes(kind: type[PicmeError]) -> None:
    error = pickle.loads(pickle.dumps(kind("a", "b", "c")))  # noqa: S301 (our own)
    assert issubclass(kind, PicmeError)
    assert type(error) is kind
    assert str(error) == "a | expected b | c"
    assert (error.given, error.expected, error.cure) == ("a", "b", "c")


def test_a_report_names_the_type_of_foreign_errors_only() -> None:
    assert describe(BadImage("a", "b", "c")) == "a | expected b | c"
    assert describe(OSError("disk full")) == "disk full"
    assert describe(KeyError("x")) == "KeyError: 'x'"
