"""The card, and CUDA memory, streams and graphs: cuda-python, or pycuda where that is installed. Never run on a GPU by us yet.

Pointers and streams are plain integers, which is what TensorRT takes.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from picme_sdk.errors import BackendUnavailable

INSTALL = "pip install cuda-python"


def nvidia_capability() -> int | None:
    """Compute capability of the first card (89 for sm_89), None without a driver or card. Asks the driver itself, so no package is needed."""
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


def card_present() -> bool:
    return nvidia_capability() is not None


class CudaPython:
    """The runtime API through cuda-python. Its calls *return* an error code first."""

    def __init__(self) -> None:
        from cuda.bindings import runtime

        self.api: Any = runtime
        if self._call("cudaDriverGetVersion")[0] == 0:
            raise BackendUnavailable("no CUDA driver", "an NVIDIA driver", "install it, or use device='cpu'")

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        code, *results = getattr(self.api, name)(*arguments)
        if int(code) != 0:
            raise BackendUnavailable(
                f"{name} failed: {code}", "a working CUDA device", "check nvidia-smi; fewer results need less memory"
            )
        return tuple(results)

    def malloc(self, size: int) -> int:
        return int(self._call("cudaMalloc", size)[0])

    def free(self, pointer: int) -> None:
        self.api.cudaFree(pointer)  # at exit the driver may be gone already, so errors are ignored

    def stream(self) -> int:
        return int(self._call("cudaStreamCreate")[0])

    def upload(self, pointer: int, array: NDArray[Any], stream: int) -> None:
        self._call(
            "cudaMemcpyAsync",
            pointer,
            array.ctypes.data,
            array.nbytes,
            self.api.cudaMemcpyKind.cudaMemcpyHostToDevice,
            stream,
        )

    def download(self, array: NDArray[Any], pointer: int, stream: int) -> None:
        self._call(
            "cudaMemcpyAsync",
            array.ctypes.data,
            pointer,
            array.nbytes,
            self.api.cudaMemcpyKind.cudaMemcpyDeviceToHost,
            stream,
        )

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._call("cudaMemcpyAsync", target, source, size, self.api.cudaMemcpyKind.cudaMemcpyDeviceToDevice, stream)

    def wait(self, stream: int) -> None:
        self._call("cudaStreamSynchronize", stream)

    def record(self, stream: int, work: Callable[[], None]) -> Callable[[], None]:
        """Capture `work` into a graph; the returned function replays it with one launch."""
        self._call("cudaStreamBeginCapture", stream, self.api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
        work()
        (graph,) = self._call("cudaStreamEndCapture", stream)
        (executable,) = self._call("cudaGraphInstantiate", graph, 0)
        self._call("cudaGraphDestroy", graph)
        return lambda: void(self._call("cudaGraphLaunch", executable, stream))


class PyCuda:
    """pycuda, for applications that hold a pycuda context. It has no graphs, so work is launched directly."""

    def __init__(self) -> None:
        import pycuda.autoprimaryctx  # noqa: F401 (makes a context current)
        import pycuda.driver as driver

        self.driver: Any = driver
        self._streams: dict[int, Any] = {}

    def malloc(self, size: int) -> int:
        return int(self.driver.mem_alloc(size).__index__())

    def free(self, pointer: int) -> None:
        self.driver.DeviceAllocation(pointer).free()

    def stream(self) -> int:
        stream = self.driver.Stream()
        self._streams[stream.handle] = stream
        return int(stream.handle)

    def upload(self, pointer: int, array: NDArray[Any], stream: int) -> None:
        self.driver.memcpy_htod_async(pointer, array, self._streams[stream])

    def download(self, array: NDArray[Any], pointer: int, stream: int) -> None:
        self.driver.memcpy_dtoh_async(array, pointer, self._streams[stream])

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self.driver.memcpy_dtod_async(target, source, size, self._streams[stream])

    def wait(self, stream: int) -> None:
        self._streams[stream].synchronize()

    def record(self, stream: int, work: Callable[[], None]) -> Callable[[], None]:
        work()
        return work


def void(_: object) -> None:
    return None


Cuda = CudaPython | PyCuda


def open_cuda() -> Cuda:
    """cuda-python if it is installed, else pycuda, else an error with the pip line."""
    try:
        return CudaPython()
    except ImportError:
        pass
    try:
        return PyCuda()
    except ImportError as error:
        raise BackendUnavailable("neither cuda-python nor pycuda is installed", "one of them", INSTALL) from error
    except Exception as error:  # pycuda raises its own exceptions without a driver
        raise BackendUnavailable(
            f"pycuda: {error}", "a working CUDA device", "install the driver, or use device='cpu'"
        ) from error


class DeviceArray:
    """Device memory with a shape; freed with the last reference to it. Only the back end that allocated it can use it."""

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], nbytes: int) -> None:
        self.shape, self.nbytes = shape, nbytes
        self.pointer = cuda.malloc(nbytes)
        weakref.finalize(self, cuda.free, self.pointer)
