"""Engines of the bundle in `tensorrt` 10 and 11, or in `tensorrt_rtx`. Never run on a GPU by us yet; tests/gpu is for a machine that has one.

The engine is shared; each thread has its own execution contexts, stream and buffers, as TensorRT requires. Context and skips stay on the device: the
handle of an encoded square holds `DeviceArray`s. The decoder works on fixed buffers, so its launch is recorded once per batch size as a CUDA graph.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable
from shlex import quote
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from picme_sdk.backends.cuda import Cuda, DeviceArray, card_present, nvidia_capability, open_cuda
from picme_sdk.backends.protocol import Backend, Encoded, Option
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import EngineFile, Manifest
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import BackendUnavailable, Closed
from picme_sdk.mixture.philox import F32
from picme_sdk.pixels.photo import U8

INSTALL = {"tensorrt": "pip install 'picme-sdk[tensorrt]'", "tensorrt_rtx": "pip install 'picme-sdk[rtx]'"}
TITLES = {"tensorrt": "engines of the bundle in TensorRT", "rtx": "engines of the bundle in TensorRT-RTX"}
MODULES = {"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}
AMPERE = 80  # compute capability of the first such card


def option(device: str) -> Option:
    """The bundle's engines for a device, "tensorrt" or "rtx"."""

    def open_it(bundle: Bundle, threads: int | None, precision: str) -> Backend:
        return TensorRt(bundle, device)

    return Option(device, TITLES[device], card_present, open_it)


def rebuild(bundle: Bundle, module: str) -> str:
    """The command that builds engines for this machine."""
    builder = "tensorrt" if module == "tensorrt" else "rtx"
    path, out = quote(str(bundle.path)), quote(f"{bundle.path.stem}-here")
    return f"python export/to_trt.py --from-bundle {path} --builder {builder} --out {out}"


def fits(target: str, capability: int | None) -> bool:
    """Does an engine for `target` run on a card of this compute capability (89 for sm_89)? None = unknown, let TensorRT decide."""
    if capability is None:
        return True
    if target == "ampere+":
        return capability >= AMPERE
    return f"sm_{capability}" in target.split("+")


def choose_engines(manifest: Manifest, module: str, version: str, capability: int | None) -> dict[str, EngineFile]:
    """One engine per graph for this module, version and card; FP16 before float32. `BackendUnavailable` names what the bundle has instead."""
    mine = [e for e in manifest.engines if e.builder == module]
    right = [e for e in mine if e.version == version and fits(e.target, capability)]
    chosen = {}
    for engine in sorted(right, key=lambda e: e.precision == "float16"):
        chosen[engine.graph] = engine
    if set(chosen) != set(GRAPHS):
        have = sorted({f"{e.version} for {e.target}" for e in mine}) or ["none"]
        card = "" if capability is None else f" on sm_{capability}"
        raise BackendUnavailable(
            f"engines of {module} in the bundle: {', '.join(have)}",
            f"{version}{card}",
            "build engines for this machine",
        )
    return chosen


class _Thread:
    """What one thread needs: contexts, a stream, the decoder's fixed inputs, and its recorded launches."""

    def __init__(self, cuda: Cuda, engines: dict[str, Any]) -> None:
        self.stream = cuda.stream()
        self.contexts = {graph: engine.create_execution_context() for graph, engine in engines.items()}
        self.fixed: dict[str, DeviceArray] = {}
        self.launches: dict[int, Callable[[], None]] = {}


class TensorRt:
    """Runs the bundle's engines on the first GPU."""

    def __init__(self, bundle: Bundle, device: str) -> None:
        module = MODULES[device]
        if importlib.util.find_spec(module) is None:
            raise BackendUnavailable(f"{module} is not installed", module, INSTALL[module])
        try:
            trt: Any = importlib.import_module(module)
        except (ImportError, OSError, RuntimeError) as error:  # installed without the libraries that it needs
            raise BackendUnavailable(f"{module} can't be loaded ({error})", module, INSTALL[module]) from error
        self.cuda = open_cuda()
        self.name, self.device = f"{module} {trt.__version__}", device
        try:
            chosen = choose_engines(bundle.manifest, module, str(trt.__version__), nvidia_capability())
        except BackendUnavailable as error:
            raise BackendUnavailable(error.given, error.expected, rebuild(bundle, module)) from error
        self.batch = bundle.manifest.max_batch
        self._entries = chosen
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._runtime = runtime  # engines must not outlive it
        self._engines: dict[str, Any] = {}
        for graph, entry in chosen.items():
            engine = runtime.deserialize_cuda_engine(bundle.read(entry))  # its hash was compared
            if engine is None:
                raise BackendUnavailable(
                    f"{self.name} refuses {entry.file}", "an engine for this card", rebuild(bundle, module)
                )
            self._engines[graph] = engine
        self._local = threading.local()

    def encode(self, image: U8, mask: U8) -> Encoded:
        own = self._own()
        encoded = self._run(own, "encoder", {"image": image[None], "mask": mask[None, ..., None]})
        skips = {name: array for name, array in encoded.items() if name.startswith("skip_")}
        # Without the flag only the context is checked, since the skips stay on the device.
        flag = "finite" if "finite" in encoded else "context"
        checked = self._download(own, "encoder", flag, encoded[flag])
        mixture = self._run(own, "mixture", {"context": encoded["context"]})
        arrays = {name: self._download(own, "mixture", name, array) for name, array in mixture.items()}
        self.cuda.wait(own.stream)
        finite = bool(checked.all()) if flag == "finite" else bool(np.isfinite(checked).all())
        return Encoded(arrays["log_weights"], arrays["means"], arrays["log_scales"], skips, finite)

    def decode(self, skips: object, z: F32) -> U8:
        own = self._own()
        entry, context = self._entries["decoder"], own.contexts["decoder"]
        count = len(z)
        if not own.fixed:
            for tensor in (*entry.inputs, *entry.outputs):
                shape = tuple(self.batch if s == "n" else int(s) for s in tensor.shape)
                own.fixed[tensor.name] = self._allocate(tensor.dtype, shape)
                context.set_tensor_address(tensor.name, own.fixed[tensor.name].pointer)
        latents = np.ascontiguousarray(z, np.float32)
        self.cuda.upload(own.fixed["z"].pointer, latents, own.stream)
        for name, skip in cast(dict[str, DeviceArray], skips).items():
            self.cuda.copy(own.fixed[name].pointer, skip.pointer, skip.nbytes, own.stream)
        if count in own.launches:
            own.launches[count]()
        else:
            context.set_input_shape("z", latents.shape)

            def work() -> None:
                _succeed(context.execute_async_v3(own.stream), "decoder")

            work()  # the first call may allocate, which a recording must not
            self.cuda.wait(own.stream)
            own.launches[count] = self.cuda.record(own.stream, work)
            own.launches[count]()
        size = int(entry.outputs[0].shape[1])
        image = np.empty((count, size, size, 3), np.uint8)
        self.cuda.download(image, own.fixed["image"].pointer, own.stream)
        self.cuda.wait(own.stream)
        return image

    def close(self) -> None:
        self._engines = {}

    def _own(self) -> _Thread:
        """The calling thread's contexts, stream and buffers."""
        if not self._engines:
            raise Closed("the completer was closed", "an open one", "make a new Completer")
        if not hasattr(self._local, "own"):
            self._local.own = _Thread(self.cuda, self._engines)
        own: _Thread = self._local.own
        return own

    def _run(self, own: _Thread, graph: str, inputs: dict[str, Any]) -> dict[str, DeviceArray]:
        """Encoder or mixture head: host or device arrays in, new device arrays out, all in the order of the stream."""
        entry, context = self._entries[graph], own.contexts[graph]
        kept = []  # inputs live until the stream has passed them
        for name, array in inputs.items():
            if isinstance(array, DeviceArray):
                context.set_tensor_address(name, array.pointer)
            else:
                kept.append(self._upload(own, context, name, array))
        outputs = {t.name: self._allocate(t.dtype, tuple(int(s) for s in t.shape)) for t in entry.outputs}
        for name, array in outputs.items():
            context.set_tensor_address(name, array.pointer)
        _succeed(context.execute_async_v3(own.stream), graph)
        self.cuda.wait(own.stream)
        del kept
        return outputs

    def _download(self, own: _Thread, graph: str, name: str, array: DeviceArray) -> NDArray[Any]:
        dtype = next(tensor.dtype for tensor in self._entries[graph].outputs if tensor.name == name)
        host = np.empty(array.shape, dtype)
        self.cuda.download(host, array.pointer, own.stream)
        return host

    def _allocate(self, dtype: str, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.cuda, shape, int(np.prod(shape)) * np.dtype(dtype).itemsize)

    def _upload(self, own: _Thread, context: Any, name: str, array: Any) -> tuple[Any, DeviceArray]:
        array = np.ascontiguousarray(array)
        device = DeviceArray(self.cuda, array.shape, array.nbytes)
        self.cuda.upload(device.pointer, array, own.stream)
        context.set_tensor_address(name, device.pointer)
        return array, device


def _succeed(launched: bool, graph: str) -> None:
    if not launched:
        raise BackendUnavailable(
            f"TensorRT could not run the {graph}", "a working GPU", "check nvidia-smi, or use device='cpu'"
        )
