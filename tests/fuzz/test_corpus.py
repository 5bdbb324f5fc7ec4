"""Every input of the fuzzers' corpora, once: seeds, and what once failed. No fuzzer is needed.

The C++ targets replay theirs in ctest, but for the one that needs a model: it is here.
"""

import importlib
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fuzz import fuzz_http, fuzz_token
from fuzz.fill import fill
from picme_sdk.mixture import token
from picme_sdk.pixels import photo as imaging
from tests.conftest import ROOT
from tests.cpp.native import built, runtime_library

CORPUS = ROOT / "fuzz" / "corpus"
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in (ROOT / "fuzz").glob("fuzz_*.py"))
INPUTS = [path for target in TARGETS for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, on damaged metadata
@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_ends_as_a_result_or_a_picme_error(path: Path) -> None:
    importlib.import_module(f"fuzz.fuzz_{path.parent.name}").check(path.read_bytes())


def test_the_c_entry_points_answer_with_a_status(bundle_folder: Path) -> None:
    named = {"PICME_TEST_BUNDLE": str(bundle_folder), "PICME_ONNXRUNTIME": str(runtime_library())}
    command = [built("fuzz/fuzz_contract"), CORPUS / "contract"]
    done = subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(list((CORPUS / "contract").iterdir()))


def test_every_target_has_a_corpus_and_the_corpora_stay_small() -> None:
    native = [path.stem.removeprefix("fuzz_") for path in (ROOT / "cpp_bindings" / "fuzz").glob("fuzz_*.cpp")]
    assert {path.name for path in CORPUS.iterdir()} == {*TARGETS, *native}
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 64 << 10


def broken(*_: object) -> None:
    raise IndexError("not a PicmeError")


def test_an_error_of_another_family_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token._Unpacker, "recipe", broken)
    with pytest.raises(IndexError):
        fuzz_token.check((CORPUS / "token" / "draw").read_bytes())


def test_a_changed_pixel_outside_the_hole_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    photo, mask = np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9), np.uint8)
    mask[2, 2] = mask[6, 6] = 255
    fill(photo, mask)
    monkeypatch.setattr(imaging, "_blend_into", lambda part, *_: part.fill(77))
    with pytest.raises(AssertionError, match="outside"):
        fill(photo, mask)


def test_an_internal_error_of_the_studio_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz_http.check((CORPUS / "http" / "samples").read_bytes())
    monkeypatch.setattr("picme_sdk.studio.app.read", broken)
    with pytest.raises(AssertionError, match="500"):
        fuzz_http.check((CORPUS / "http" / "samples").read_bytes())
