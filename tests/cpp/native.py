"""picme.h through ctypes: just enough to compare the C library with Python."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picme_sdk.contract import DEFAULT_STRATEGY, STRATEGIES

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("PICME_CPP_BUILD", ROOT / "build" / "cpp"))
RGB, BGR, RGBA, BGRA, GRAY = range(5)
OK, BAD_ARGUMENT, BAD_IMAGE, BAD_MASK, BAD_BUNDLE, BAD_TOKEN, BACKEND_UNAVAILABLE = range(7)


def built(name: str) -> Path:
    """A file that `make cpp` builds; without it the test is skipped, but never in CI."""
    path = BUILT / name
    if not path.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is missing: CI builds the C++ library first (make cpp)")
        pytest.skip(f"{path} is not built: run make cpp")
    return path


def runtime_library() -> Path:
    """The library inside the onnxruntime wheel."""
    import onnxruntime

    return next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))


class LoadParams(Structure):
    _fields_ = [("size", c_size_t), ("bundle", c_char_p), ("runtime", c_char_p), ("provider", c_char_p),
                ("precision", c_char_p), ("threads", c_int32)]  # fmt: skip


class CompleterInfo(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char * 65), ("model_id", c_char * 65), ("backend", c_char * 64), ("device", c_char * 16),
                ("image_size", c_int32), ("primitives", c_int32), ("latent", c_int32), ("max_batch", c_int32), ("load_ms", c_double),
                ("knows", c_char * 804)]  # fmt: skip


class EncodeParams(Structure):
    _fields_ = [("size", c_size_t), ("pixels", c_void_p), ("width", c_int32), ("height", c_int32), ("format", c_int32),
                ("context", c_int32), ("stride", c_size_t), ("mask", c_void_p), ("mask_stride", c_size_t)]  # fmt: skip


class SceneInfo(Structure):
    _fields_ = [("size", c_size_t), ("width", c_int32), ("height", c_int32), ("format", c_int32), ("holes", c_int32),
                ("primitives", c_int32), ("reserved", c_int32), ("ambiguity", c_double), ("encode_ms", c_double)]  # fmt: skip


class Result(Structure):
    _fields_ = [("size", c_size_t), ("pixels", POINTER(c_uint8)), ("bytes", c_size_t), ("stride", c_size_t), ("primitive", c_int32),
                ("reserved", c_int32), ("weight", c_double), ("log_density", c_double), ("decode_ms", c_double), ("token", c_char * 2056)]  # fmt: skip


class SampleParams(Structure):
    _fields_ = [("size", c_size_t), ("seed", c_uint64), ("n", c_int32), ("strategy", c_int32), ("primitive", c_int32), ("temperature", c_float)]  # fmt: skip


class VariationParams(Structure):
    _fields_ = [("size", c_size_t), ("seed", c_uint64), ("n", c_int32), ("strength", c_float)]


class NativeError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class NativeResult:
    image: np.ndarray
    primitive: int
    weight: float
    log_density: float
    token: str


def _sized(kind: Any, *values: Any) -> Any:
    return kind(ctypes.sizeof(kind), *values)


class Native:
    """The library, with one completer."""

    def __init__(self, bundle: Path, threads: int = 1, provider: str = "cpu", precision: str = "float32") -> None:
        self.library = ctypes.CDLL(str(built("libpicme.so")))
        self.library.picme_last_error.restype = self.library.picme_version.restype = c_char_p
        self.completer = c_void_p()
        paths = str(bundle).encode(), str(runtime_library()).encode(), provider.encode(), precision.encode()
        self._call("picme_load", ctypes.byref(_sized(LoadParams, *paths, threads)), ctypes.byref(self.completer))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status != OK:
            raise NativeError(status, self.library.picme_last_error().decode())

    def info(self) -> Any:
        info = _sized(CompleterInfo)
        self._call("picme_completer_describe", self.completer, ctypes.byref(info))
        return info

    def encode(self, photo: np.ndarray, mask: np.ndarray | None, form: int = RGB, context: int = 0) -> NativeScene:
        return NativeScene(self, photo, mask, form, context)

    def close(self) -> None:
        self._call("picme_completer_destroy", ctypes.byref(self.completer))


class NativeScene:
    def __init__(self, native: Native, photo: np.ndarray, mask: np.ndarray | None, form: int, context: int) -> None:
        self.native, self.shape = native, photo.shape
        self.handle = c_void_p()
        params = _sized(
            EncodeParams, photo.ctypes.data, photo.shape[1], photo.shape[0], form, context, photo.strides[0]
        )
        if mask is not None:
            params.mask, params.mask_stride = mask.ctypes.data, mask.strides[0]
        native._call("picme_encode", native.completer, ctypes.byref(params), ctypes.byref(self.handle))

    def info(self) -> Any:
        info = _sized(SceneInfo)
        self.native._call("picme_scene_describe", self.handle, ctypes.byref(info))
        return info

    def weights(self) -> list[float]:
        values = (c_double * self.info().primitives)()
        self.native._call("picme_scene_weights", self.handle, values, c_size_t(len(values)))
        return list(values)

    def _results(self, n: int, name: str, *arguments: Any) -> list[NativeResult]:
        n = max(n, 1)  # what can't be had is the library's to refuse
        images = np.zeros((n, *self.shape), np.uint8)
        step = images[0].nbytes
        results = (Result * n)(*(_sized(Result, images[i].ctypes.data_as(POINTER(c_uint8)), step) for i in range(n)))
        self.native._call(name, self.handle, *arguments, results)
        return [NativeResult(images[i], r.primitive, r.weight, r.log_density, r.token.decode()) for i, r in enumerate(results)]  # fmt: skip

    def sample(self, n: int, seed: int, strategy: str = DEFAULT_STRATEGY, primitive: int = -1, temperature: float = 1.0) -> list[NativeResult]:  # fmt: skip
        params = _sized(SampleParams, seed, n, STRATEGIES.index(strategy), primitive, temperature)
        return self._results(n, "picme_sample", ctypes.byref(params))

    def variations(self, token: str, n: int, strength: float, seed: int) -> list[NativeResult]:
        params = _sized(VariationParams, seed, n, strength)
        return self._results(n, "picme_variations", token.encode(), ctypes.byref(params))

    def replay(self, token: str) -> NativeResult:
        return self._results(1, "picme_replay", token.encode())[0]

    def interpolate(self, first: str, second: str, steps: int) -> list[NativeResult]:
        return self._results(steps, "picme_interpolate", first.encode(), second.encode(), c_int32(steps))

    def close(self) -> None:
        self.native._call("picme_scene_destroy", ctypes.byref(self.handle))
