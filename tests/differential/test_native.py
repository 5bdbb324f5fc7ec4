"""500 random photos, masks and seeds: the C library gives what Python gives, and both leave every other pixel alone."""

from pathlib import Path

from picme_sdk.completer import Completer
from tests.cpp.native import Native
from tests.differential.cases import case
from tests.differential.compare import Totals, compare

CASES = 500


def test_the_c_library_agrees_with_python(bundle_folder: Path) -> None:
    totals, native = Totals(), Native(bundle_folder)
    with Completer(bundle_folder, device="cpu", threads=1) as python:
        for number in range(CASES):
            compare(native, python, case(number, python.manifest.primitives), totals)
    native.close()
    assert totals.cases == CASES
    assert 0 < totals.refused < CASES / 5
    assert totals.results > CASES
    assert totals.different <= totals.values / 1000
