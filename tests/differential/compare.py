"""The C library against Python, case by case. `python -m tests.differential.compare --bundle DIR --cases 500` does it outside of pytest."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from picme_sdk.completer import Completer
from picme_sdk.errors import BadMask
from tests.cpp.native import BAD_MASK, Native, NativeError
from tests.differential.cases import Case, case


@dataclass
class Totals:
    cases: int = 0
    refused: int = 0  # masks that both refused
    results: int = 0
    largest: int = 0  # difference of a value, in 255ths
    values: int = 0  # inside holes
    different: int = 0  # of them


def compare(native: Native, python: Completer, asked: Case, totals: Totals) -> None:
    """`AssertionError` unless both agree."""
    totals.cases += 1
    try:
        theirs = python.encode(asked.upright, asked.mask, context=asked.context)
    except BadMask:
        with pytest.raises(NativeError) as refused:
            native.encode(asked.photo, asked.mask, asked.format, asked.context or 0)
        assert refused.value.status == BAD_MASK
        totals.refused += 1
        return
    ours = native.encode(asked.photo, asked.mask, asked.format, asked.context or 0)
    primitive = asked.wish["primitive"]
    mine = ours.sample(**{**asked.wish, "primitive": -1 if primitive is None else primitive})
    others = theirs.sample(**asked.wish)
    ours.close()
    assert [r.token for r in mine] == [r.token for r in others]
    kept = asked.mask <= (0 if asked.mask.max() == 1 else 8)
    for own, other in zip(mine, others, strict=True):
        image = asked.swap(np.asarray(other.image).reshape(asked.photo.shape))
        assert np.array_equal(own.image[kept], asked.photo[kept])
        assert np.array_equal(image[kept], asked.photo[kept])
        difference = np.abs(own.image[~kept].astype(int) - image[~kept])
        assert difference.max(initial=0) <= 1
        assert own.primitive == other.primitive
        totals.results += 1
        totals.largest = max(totals.largest, int(difference.max(initial=0)))
        totals.values += difference.size
        totals.different += int(np.count_nonzero(difference))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split(".")[0])
    options.add_argument("--bundle", type=Path, required=True)
    options.add_argument("--cases", type=int, default=500)
    asked = options.parse_args()
    start, totals, native = time.monotonic(), Totals(), Native(asked.bundle)
    with Completer(asked.bundle, device="cpu", threads=1) as python:
        for number in range(asked.cases):
            try:
                compare(native, python, case(number, python.manifest.primitives), totals)
            except AssertionError as error:
                raise AssertionError(f"case {number}: {error}") from error
    native.close()
    print(f"{totals}, {time.monotonic() - start:.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
