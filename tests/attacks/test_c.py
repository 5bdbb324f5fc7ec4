"""Attack 25: the C library through ctypes, in a process of its own. Allowed: a status and a text; never a word on a stream, never an exit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.cpp.native import built

SCRIPT = """
import ctypes, json, sys, threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_size_t, c_uint8, c_void_p
from pathlib import Path
import numpy as np
from tests.attacks.conftest import MASK, PHOTO
from tests.cpp import native as n
from tests.cpp.native import EncodeParams, LoadParams, Native, NativeError, Result, SampleParams, SceneInfo, CompleterInfo, VariationParams, _sized

bundle, report = Path(sys.argv[1]), Path(sys.argv[2])
native = Native(bundle)
lib = native.library
scene = native.encode(PHOTO, MASK)
good = scene.sample(1, 5)[0]
NULL = c_void_p()
found = {}

def status(name, function, *arguments):
    found[name] = [getattr(lib, function)(*arguments), lib.picme_last_error().decode(errors="replace")]

def result(size=None, bytes_=PHOTO.nbytes, stride=0, pixels=True):
    made = _sized(Result)
    room = np.zeros(PHOTO.nbytes + 4096, np.uint8)
    made.keep = room
    made.pixels = room.ctypes.data_as(POINTER(c_uint8)) if pixels else None
    made.bytes, made.stride = bytes_, stride
    if size is not None:
        made.size = size
    return made

sample = _sized(SampleParams, 5, 1, 0, -1, 1.0)
encode = lambda **change: [setattr(p := _sized(EncodeParams, PHOTO.ctypes.data, 64, 48, 0, 0, 64 * 3, MASK.ctypes.data, 64), k, v) for k, v in change.items()] and p
out = c_void_p()

# NULL in every place
status("load NULL", "picme_load", None, None)
status("load without a bundle", "picme_load", byref(_sized(LoadParams)), byref(out))
status("load without an output", "picme_load", byref(_sized(LoadParams, str(bundle).encode())), None)
status("describe NULL", "picme_completer_describe", NULL, None)
status("describe into NULL", "picme_completer_describe", native.completer, None)
status("encode NULL", "picme_encode", NULL, None, None)
status("encode on NULL", "picme_encode", NULL, byref(encode(width=64)), byref(out))
status("encode without pixels", "picme_encode", native.completer, byref(encode(pixels=None)), byref(out))
status("encode without an output", "picme_encode", native.completer, byref(encode(width=64)), None)
status("scene describe NULL", "picme_scene_describe", NULL, None)
status("weights NULL", "picme_scene_weights", NULL, None, c_size_t(4))
status("weights into NULL", "picme_scene_weights", scene.handle, None, c_size_t(4))
status("weights into too little", "picme_scene_weights", scene.handle, (c_double * 1)(), c_size_t(1))
status("sample NULL", "picme_sample", NULL, None, None)
status("sample on NULL", "picme_sample", NULL, byref(sample), byref(result()))
status("sample into NULL", "picme_sample", scene.handle, byref(sample), None)
status("replay NULL", "picme_replay", scene.handle, None, byref(result()))
status("variations NULL", "picme_variations", scene.handle, None, None, None)
status("interpolate NULL", "picme_interpolate", scene.handle, None, None, c_int32(3), None)

# Sizes, strides, buffers
for name, change in {
    "stride below a row": {"stride": 64 * 3 - 1}, "mask stride below a row": {"mask_stride": 63}, "no width": {"width": 0},
    "negative height": {"height": -48}, "a huge photo": {"width": 2**31 - 1, "height": 2**31 - 1}, "an overflow": {"stride": 2**64 - 1},
    "an unknown format": {"format": 99}, "a negative format": {"format": -1}, "a negative context": {"context": -5},
    "struct size 0": {"size": 0}, "struct of the future": {"size": 10**6}, "struct size -1": {"size": 2**64 - 1},
}.items():
    status(name, "picme_encode", native.completer, byref(encode(**change)), byref(out))
status("a buffer too small", "picme_sample", scene.handle, byref(sample), byref(result(bytes_=PHOTO.nbytes - 1)))
status("a buffer of none", "picme_sample", scene.handle, byref(sample), byref(result(bytes_=0)))
status("a buffer that is NULL", "picme_sample", scene.handle, byref(sample), byref(result(pixels=False)))
status("result stride below a row", "picme_sample", scene.handle, byref(sample), byref(result(stride=5)))
status("result stride that overflows", "picme_sample", scene.handle, byref(sample), byref(result(bytes_=2**64 - 1, stride=2**63)))
status("result of another size", "picme_sample", scene.handle, byref(sample), byref(result(size=8)))
for name, values in {"n 0": (5, 0, 0, -1, 1.0), "n -1": (5, -1, 0, -1, 1.0), "n 10^6": (5, 10**6, 0, -1, 1.0), "strategy 9": (5, 1, 9, -1, 1.0),
                     "primitive 4": (5, 1, 0, 4, 1.0), "temperature NaN": (5, 1, 0, -1, float("nan")), "temperature -1": (5, 1, 0, -1, -1.0)}.items():
    status(name, "picme_sample", scene.handle, byref(_sized(SampleParams, *values)), byref(result()))
status("strength NaN", "picme_variations", scene.handle, good.token.encode(), byref(_sized(VariationParams, 1, 1, float("nan"))), byref(result()))
status("steps 1", "picme_interpolate", scene.handle, good.token.encode(), good.token.encode(), c_int32(1), byref(result()))
for name, token in {"no token": b"", "a forged token": b"forged", "a long token": b"A" * 100000, "bytes": b"\\xff\\xfe", "half": good.token[:20].encode()}.items():
    status(name, "picme_replay", scene.handle, token, byref(result()))

# Loading what is none
for name, values in {
    "a missing bundle": (b"/missing", None), "bytes as a path": (b"\\xff\\xfe", None), "a missing runtime": (str(bundle).encode(), b"/missing.so"),
    "an unknown provider": (str(bundle).encode(), None, b"gpu"), "an unknown precision": (str(bundle).encode(), None, b"cpu", b"int3"),
    "negative threads": (str(bundle).encode(), None, b"cpu", b"float32", -1),
}.items():
    status(name, "picme_load", byref(_sized(LoadParams, *values)), byref(out))

# After all that, the handles serve as before; a scene outlives its completer; destroying twice is allowed
same = lambda: bool(np.array_equal(scene.sample(1, 5)[0].image, good.image))
found["serves"] = same()
wrong = []

def work():
    for _ in range(20):
        own = native.encode(PHOTO, MASK)
        if not np.array_equal(own.sample(1, 5)[0].image, good.image):
            wrong.append(1)
        try:
            own.replay("forged")
        except NativeError as error:
            if "forged" not in str(error) and "token" not in str(error):
                wrong.append(str(error))
        own.close()

threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
found["threads wrong"] = wrong
native.close()
found["scene without its completer"] = same()
status("completer destroyed twice", "picme_completer_destroy", byref(native.completer))
scene.close()
status("scene destroyed twice", "picme_scene_destroy", byref(scene.handle))
status("destroy NULL", "picme_scene_destroy", None)
status("sample on the destroyed", "picme_sample", scene.handle, byref(sample), byref(result()))
report.write_text(json.dumps(found))
"""

FINE = ("completer destroyed twice", "scene destroyed twice")


@pytest.fixture(scope="module")
def abused(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    built("libpicme.so")
    report = tmp_path_factory.mktemp("c") / "report.json"
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(bundle_folder.resolve()), str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    assert (done.stdout, done.stderr) == ("", ""), "the library never prints"
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_25_every_misuse_has_a_status_and_a_text(abused: dict[str, Any]) -> None:
    """NULL in every place, sizes, strides and buffers that can't be, other structs, tokens, bundles; nothing crashed on the way here."""
    misused = {name: value for name, value in abused.items() if isinstance(value, list) and name != "threads wrong"}
    assert len(misused) > 55
    for name, (status, text) in misused.items():
        if name in FINE:
            assert status == 0, name
        elif name != "destroy NULL":
            assert 1 <= status <= 9, f"{name}: {status} {text}"
            assert text.count(" | ") >= 2, f"{name}: {text}"


def test_25_a_small_buffer_has_its_own_status(abused: dict[str, Any]) -> None:
    assert abused["a buffer too small"][0] == abused["a buffer of none"][0] == 8


def test_25_handles_serve_after_misuse_and_outlive_each_other(abused: dict[str, Any]) -> None:
    assert abused["serves"]
    assert abused["scene without its completer"]


def test_25_eight_threads(abused: dict[str, Any]) -> None:
    """Results and error texts belong to their thread."""
    assert abused["threads wrong"] == []
