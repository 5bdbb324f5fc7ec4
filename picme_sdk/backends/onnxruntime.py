"""ONNX Runtime: CPU, CUDA, TensorRT and the TensorRT-RTX plug-in."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picme_sdk.backends import Arrays
from picme_sdk.bundle import Bundle
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import BackendUnavailable, BadBundle, Closed
from picme_sdk.manifest import GraphFile, Tensor

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


BATCH = 8  # results that a CPU makes in one call; more gain nothing and cost memory


class OnnxRuntime:
    """One session per graph. Sessions may be run from several threads at once.

    On a CPU, results are decoded side by side, one core each, as far as there is a result for every core: threads that share
    one result wait for each other at every operator. What is left is decoded by all cores together.
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
        self._crew: Crew | None = None
        for graph in GRAPHS:
            entry = bundle.manifest.graph(graph, precision)
            own = 1 if graph == "mixture" else threads  # too small to share
            session = _session(onnxruntime, bundle.read(entry), entry, device, own)
            self._sessions[graph] = session, entry.outputs
            if graph == "decoder" and 1 < cores <= self.batch:
                self._crew = Crew(_session(onnxruntime, bundle.read(entry), entry, device, 1), cores)

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        crew = self._crew if graph == "decoder" else None
        session, outputs = self._sessions.get(graph, (None, ()))
        if session is None:
            raise Closed("the completer was closed", "an open one", "make a new Completer")
        names = [tensor.name for tensor in outputs]
        try:
            made = session.run(names, inputs) if crew is None else [crew.run(session, inputs)]
        except Exception as error:  # onnxruntime has no common base of its exceptions
            reason = " ".join(str(error).split())[:160]
            raise BackendUnavailable(
                f"the {graph} failed on {self.device}: {reason}",
                "a graph that runs",
                "free memory, or check the bundle",
            ) from error
        count = len(inputs["z"]) if graph == "decoder" else 1
        for array, tensor in zip(made, outputs, strict=True):  # what a graph declares need not be what it makes
            if array.shape != tuple(count if size == "n" else size for size in tensor.shape):
                raise BadBundle(f"{graph}: {tensor.name} of shape {array.shape}", f"{tensor.shape}", "export it again")
        return dict(zip(names, made, strict=True))

    def close(self) -> None:
        self._sessions, self._crew = {}, None


class Crew:
    """The calling thread and others, which decode one result at a time each. The others end when nobody holds the crew any
    more, so that calls under way finish."""

    def __init__(self, session: Any, cores: int) -> None:
        self.session, self.cores = session, cores
        self.others = ThreadPoolExecutor(cores - 1, "picme-decoder")

    def run(self, together: Any, inputs: Arrays) -> NDArray[Any]:
        """The decoder's pictures for all of z; `together` is the session that takes what does not fill all cores."""
        z = inputs["z"]
        alone = len(z) - len(z) % self.cores
        made: dict[int, NDArray[Any]] = {}
        todo = deque(range(alone))  # whoever is free takes the next; a busy crew leaves all of it to the caller

        def work() -> None:
            while True:
                try:
                    i = todo.popleft()
                except IndexError:  # nothing is left
                    return
                made[i] = self.session.run(None, {**inputs, "z": z[i : i + 1]})[0]

        working = [self.others.submit(work) for _ in range(self.cores - 1) if alone]
        try:
            work()
        finally:
            todo.clear()  # where one failed, nobody begins another
            wait(working)
        for other in working:
            other.result()
        if alone < len(z):
            made[alone] = together.run(None, {**inputs, "z": z[alone:]})[0]
        return made[0] if len(made) == 1 else np.concatenate([made[i] for i in sorted(made)])


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _session(onnxruntime: Any, model: bytes, entry: GraphFile, device: str, threads: int | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions
    options.intra_op_num_threads = threads or 0
    # Each session has its own threads. Without this they go on spinning after a run and take the cores from the next graph: measured,
    # one photo to six results took 96 ms instead of 38 on two cores.
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
    except Exception as error:  # onnxruntime has no common base of its exceptions
        reason = " ".join(str(error).split())[:160]
        if device == "cpu":
            raise BadBundle(
                f"{entry.file}: {reason}", "a graph that onnxruntime loads", "update onnxruntime, or export again"
            ) from error
        raise BackendUnavailable(f"onnxruntime with {provider}: {reason}", provider, INSTALL[device]) from error
    # A provider that can't be loaded is left out silently: never believe the request, look at the session.
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


def _check(found: list[Any], expected: tuple[Tensor, ...], file: str) -> None:
    """The session's tensors must be those of the manifest."""
    shown = [
        (t.name, TYPES.get(t.type, t.type), tuple("n" if isinstance(s, str) else s for s in t.shape)) for t in found
    ]
    wanted = [(t.name, t.dtype, t.shape) for t in expected]
    if sorted(shown) != sorted(wanted):
        raise BadBundle(f"{file} has the tensors {shown}"[:300], f"{wanted}"[:300], "export the bundle again")
