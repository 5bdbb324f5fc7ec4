"""Back ends: what runs the three graphs, and how one is chosen.

A back end is a small class with `name`, `device`, `run(graph, {name: array}) -> {name: array}` and `close()`. `run` may be called from several threads.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from picme_sdk.bundle import Bundle
from picme_sdk.contract import DEVICES, MAX_THREADS
from picme_sdk.errors import BackendUnavailable, BadArgument

log = logging.getLogger("picme_sdk")

Arrays = dict[str, NDArray[Any]]


class Backend(Protocol):
    """What a `Completer` needs."""

    name: str  # such as "onnxruntime 1.31.1"
    device: str  # such as "cpu"
    batch: int  # results that one decoder call should make

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        """Run "encoder", "mixture" or "decoder". Inputs are not kept; outputs belong to the caller."""
        ...

    def close(self) -> None:
        """Free everything. Calls that are under way finish."""
        ...


def nvidia_capability() -> int | None:
    """Compute capability of the first card (89 for sm_89), None without a driver or card. Asks the driver itself: no package needed."""
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
            return None
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    except (OSError, AttributeError):
        return None
    return 10 * major.value + minor.value


Opener = Callable[[Bundle, int | None, str], Backend]  # bundle, threads, precision


@dataclass(frozen=True)
class Option:
    """One way to run a bundle."""

    device: str
    title: str
    open: Opener


def _onnxruntime(device: str) -> Opener:
    def open_it(bundle: Bundle, threads: int | None, precision: str) -> Backend:
        from picme_sdk.backends.onnxruntime import OnnxRuntime

        return OnnxRuntime(bundle, device, threads, precision)

    return open_it


def _engines(module: str) -> Opener:
    def open_it(bundle: Bundle, threads: int | None, precision: str) -> Backend:
        from picme_sdk.backends.tensorrt import TensorRt

        return TensorRt(bundle, module)

    return open_it


# Best first; several ways to one device are tried in order.
OPTIONS = (
    Option("tensorrt", "engines of the bundle in TensorRT", _engines("tensorrt")),
    Option("tensorrt", "ONNX Runtime with TensorRT", _onnxruntime("tensorrt")),
    Option("rtx", "engines of the bundle in TensorRT-RTX", _engines("tensorrt_rtx")),
    Option("rtx", "ONNX Runtime with TensorRT-RTX", _onnxruntime("rtx")),
    Option("cuda", "ONNX Runtime with CUDA", _onnxruntime("cuda")),
    Option("cpu", "ONNX Runtime on the CPU", _onnxruntime("cpu")),
)


def open_backend(bundle: Bundle, device: str, threads: int | None, precision: str = "float32") -> Backend:
    """The back end for a device. A named device is had or raises; "auto" takes the best that works and logs one warning if a
    card is there but can't be used."""
    if device not in DEVICES:
        raise BadArgument(f"device={device!r}", f"one of {', '.join(DEVICES)}", "choose one of them")
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS
    ):
        raise BadArgument(f"threads={threads!r}", f"None or an integer from 1 to {MAX_THREADS}", "choose another")
    if precision not in bundle.manifest.precisions():
        have = ", ".join(bundle.manifest.precisions())
        raise BadArgument(
            f"precision={precision!r}", f"one that the bundle has: {have}", "choose one, or export with it"
        )
    graphics = device != "auto" or nvidia_capability() is not None
    failures: list[BackendUnavailable] = []
    for option in OPTIONS:
        if device not in ("auto", option.device) or (not graphics and option.device != "cpu"):
            continue
        try:
            backend = option.open(bundle, threads, precision)
        except BackendUnavailable as error:
            failures.append(error)
            continue
        if device == "auto" and failures:
            reasons = "; ".join(f"{error.given} ({error.cure})" for error in failures)
            log.warning("running on %s although a GPU is there: %s", backend.device, reasons)
        return backend
    reasons = "; ".join(error.given for error in failures)
    raise BackendUnavailable(reasons, f"a working back end for device {device!r}", failures[-1].cure)
