"""Back ends: what runs the three graphs, and how one is chosen.

protocol.py      what a back end is
onnxruntime.py   ONNX Runtime with any of its providers
tensorrt.py      engines of the bundle in TensorRT or TensorRT-RTX
cuda.py          device memory, streams and graphs

A new back end is a module with an `Option`, which joins `OPTIONS` here.
"""

from __future__ import annotations

import logging

from picme_sdk.backends import onnxruntime, tensorrt
from picme_sdk.backends.protocol import Backend
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.contract import DEFAULT_PRECISION, DEVICES, MAX_THREADS
from picme_sdk.errors import BackendUnavailable, BadArgument

log = logging.getLogger("picme_sdk")

# Best first; several ways to one device are tried in order.
OPTIONS = (
    tensorrt.option("tensorrt"),
    onnxruntime.option("tensorrt"),
    tensorrt.option("rtx"),
    onnxruntime.option("rtx"),
    onnxruntime.option("cuda"),
    onnxruntime.option("cpu"),
)


def open_backend(bundle: Bundle, device: str, threads: int | None, precision: str = DEFAULT_PRECISION) -> Backend:
    """The back end for a device. A named device works or raises; "auto" takes the best that works of those that are present, and logs one
    warning if a better one is present but can't be used."""
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
    failures: list[BackendUnavailable] = []
    for option in OPTIONS:
        if option.device != device and not (device == "auto" and option.present()):
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
