"""ONNX Runtime: CPU, CUDA, TensorRT and the TensorRT-RTX plug-in."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, cast

import numpy as np

from picme_sdk.backends.cuda import card_present
from picme_sdk.backends.protocol import Arrays, Backend, Encoded, Option
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import GraphFile, Tensor
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import BackendUnavailable, BadBundle, Closed
from picme_sdk.mixture.philox import F32
from picme_sdk.pixels.photo import U8

TITLES = {
    "cpu": "ONNX Runtime on the CPU",
    "cuda": "ONNX Runtime with CUDA",
    "tensorrt": "ONNX Runtime with TensorRT",
    "rtx": "ONNX Runtime with TensorRT-RTX",
}
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rtx": "NvTensorRTRTXExecutionProvider",
}
INSTALL = {
    "cpu": "pip install 'picme-sdk[cpu]'",
    "cuda": "pip uninstall onnxruntime; pip install 'picme-sdk[cuda]'",
    "tensorrt": "pip uninstall onnxruntime; pip install 'picme-sdk[cuda,tensorrt]'",
    "rtx": "pip install 'picme-sdk[cpu]' onnxruntime-ep-nv-tensorrt-rtx-cu13",
}
TYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16"}
BATCH = 8  # results that a CPU decodes in one call; more gain nothing and cost memory


def option(device: str) -> Option:
    """ONNX Runtime on a device. Every machine has a CPU; the other providers need a card."""

    def open_it(bundle: Bundle, threads: int | None, precision: str) -> Backend:
        return OnnxRuntime(bundle, device, threads, precision)

    return Option(device, TITLES[device], (lambda: True) if device == "cpu" else card_present, open_it)


class OnnxRuntime:
    """One session per graph. Sessions may be run from several threads at once. Skips are numpy arrays by name.

    On a CPU, results are decoded side by side, one core each, as long as there is a result for every core: threads that share
    one result wait for each other at every operator. The remaining results are decoded by all cores together.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int | None, precision: str = "float32") -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise BackendUnavailable("onnxruntime is not installed", "onnxruntime", INSTALL[device]) from error
        self.name = f"onnxruntime {onnxruntime.__version__}"
        self.device = device
        cores = (threads or _cores()) if device == "cpu" else 1
        self.batch = min(-(-BATCH // cores) * cores if device == "cpu" else 64, bundle.manifest.max_batch)
        self._sessions: dict[str, tuple[Any, tuple[Tensor, ...]]] = {}
        self._pool: DecoderPool | None = None
        for graph in GRAPHS:
            entry = bundle.manifest.graph(graph, precision)
            own = 1 if graph == "mixture" else threads  # the mixture head is too small to share
            session = _session(onnxruntime, bundle.read(entry), entry, device, own)
            self._sessions[graph] = session, entry.outputs
            if graph == "decoder" and 1 < cores <= self.batch:
                self._pool = DecoderPool(_session(onnxruntime, bundle.read(entry), entry, device, 1), cores)

    def encode(self, image: U8, mask: U8) -> Encoded:
        skips = self._run("encoder", {"image": image[None], "mask": mask[None, ..., None]}, 1)
        context, flag = skips.pop("context"), skips.pop("finite", None)
        if flag is None:  # bundles of format 1, and others without the flag
            finite = all(bool(np.isfinite(array).all()) for array in (context, *skips.values()))
        else:
            finite = bool(flag.all())
        mixture = self._run("mixture", {"context": context}, 1)
        return Encoded(mixture["log_weights"], mixture["means"], mixture["log_scales"], skips, finite)

    def decode(self, skips: object, z: F32) -> U8:
        return self._run("decoder", {"z": z, **cast(Arrays, skips)}, len(z))["image"]

    def close(self) -> None:
        """Free the sessions. Calls that are under way hold their own."""
        self._sessions, self._pool = {}, None

    def _run(self, graph: str, inputs: Arrays, count: int) -> Arrays:
        pool = self._pool if graph == "decoder" else None
        session, tensors = self._sessions.get(graph, (None, ()))
        if session is None:
            raise Closed("the completer was closed", "an open one", "make a new Completer")
        names = [tensor.name for tensor in tensors]
        try:
            arrays = session.run(names, inputs) if pool is None else [pool.decode(session, inputs)]
        except Exception as error:  # onnxruntime's exceptions have no common base
            reason = " ".join(str(error).split())[:160]
            raise BackendUnavailable(
                f"the {graph} failed on {self.device}: {reason}",
                "a graph that runs",
                "free memory, or check the bundle",
            ) from error
        for array, tensor in zip(arrays, tensors, strict=True):  # a graph may compute other shapes than it declares
            if array.shape != tuple(count if size == "n" else size for size in tensor.shape):
                raise BadBundle(f"{graph}: {tensor.name} of shape {array.shape}", f"{tensor.shape}", "export it again")
        return dict(zip(names, arrays, strict=True))


class DecoderPool:
    """The calling thread and others, each of which decodes one result at a time. The others end with the last reference to the pool,
    so that calls under way finish."""

    def __init__(self, session: Any, cores: int) -> None:
        self.session, self.cores = session, cores
        self.others = ThreadPoolExecutor(cores - 1, "picme-decoder")

    def decode(self, shared: Any, inputs: Arrays) -> U8:
        """The decoder's pictures for all of z; `shared` is the session that decodes the results that do not fill all cores."""
        z = inputs["z"]
        apart = len(z) - len(z) % self.cores
        pictures: dict[int, U8] = {}
        todo = deque(range(apart))  # every thread takes the next one; if the others are busy, the caller takes all

        def work() -> None:
            while True:
                try:
                    i = todo.popleft()
                except IndexError:  # nothing is left
                    return
                pictures[i] = self.session.run(None, {**inputs, "z": z[i : i + 1]})[0]

        working = [self.others.submit(work) for _ in range(self.cores - 1) if apart]
        try:
            work()
        finally:
            todo.clear()  # after a failure nobody begins another result
            wait(working)
        for other in working:
            other.result()
        if apart < len(z):
            pictures[apart] = shared.run(None, {**inputs, "z": z[apart:]})[0]
        return pictures[0] if len(pictures) == 1 else np.concatenate([pictures[i] for i in sorted(pictures)])


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _session(onnxruntime: Any, model: bytes, entry: GraphFile, device: str, threads: int | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised as exceptions
    options.intra_op_num_threads = threads or 0
    # Each session has its own threads. Without this setting they keep spinning after a run and take the cores from the next graph: one photo
    # to six results took 96 ms instead of 38 on two cores.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    provider = PROVIDERS[device]
    if device != "rtx" and provider not in onnxruntime.get_available_providers():
        raise BackendUnavailable(f"onnxruntime without {provider}", provider, INSTALL[device])
    try:
        if device == "rtx":
            _add_rtx(onnxruntime, options)
            session = onnxruntime.InferenceSession(model, options)
        else:
            session = onnxruntime.InferenceSession(model, options, providers=[provider])
    except BackendUnavailable:
        raise
    except Exception as error:  # onnxruntime's exceptions have no common base
        reason = " ".join(str(error).split())[:160]
        if device == "cpu":
            raise BadBundle(
                f"{entry.file}: {reason}", "a graph that onnxruntime loads", "update onnxruntime, or export again"
            ) from error
        raise BackendUnavailable(f"onnxruntime with {provider}: {reason}", provider, INSTALL[device]) from error
    # A provider that can't be loaded is left out silently, so ask the session, not the request.
    if session.get_providers()[0] != provider:
        raise BackendUnavailable(f"onnxruntime without {provider}", provider, INSTALL[device])
    _check(session.get_inputs(), entry.inputs, entry.file)
    _check(session.get_outputs(), entry.outputs, entry.file)
    return session


def _add_rtx(onnxruntime: Any, options: Any) -> None:
    """The RTX provider is a plug-in for the plain package."""
    provider = PROVIDERS["rtx"]
    try:
        import onnxruntime_ep_nv_tensorrt_rtx as plugin  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise BackendUnavailable("the RTX plug-in of onnxruntime is not installed", provider, INSTALL["rtx"]) from error
    registered = {device.ep_name for device in onnxruntime.get_ep_devices()}
    if provider not in registered:
        onnxruntime.register_execution_provider_library(provider, plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    if not devices:
        raise BackendUnavailable(
            "the RTX plug-in of onnxruntime finds no card", "a GPU with a driver", "check nvidia-smi"
        )
    options.add_provider_for_devices(devices, {})


def _check(declared: list[Any], expected: tuple[Tensor, ...], file: str) -> None:
    """The session's tensors must be those of the manifest."""
    shown = [
        (t.name, TYPES.get(t.type, t.type), tuple("n" if isinstance(s, str) else s for s in t.shape)) for t in declared
    ]
    wanted = [(t.name, t.dtype, t.shape) for t in expected]
    if sorted(shown) != sorted(wanted):
        raise BadBundle(f"{file} has the tensors {shown}"[:300], f"{wanted}"[:300], "export the bundle again")
