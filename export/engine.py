"""ONNX -> TensorRT engines, with `tensorrt` 10 and 11 or with `tensorrt_rtx`, which builds ahead of time without a GPU.

Networks are always strongly typed: the ONNX file determines the precision. Engines are plain serialised plans that polygraphy and trtexec can
load; the manifest describes them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from picme_sdk.backends.cuda import nvidia_capability
from picme_sdk.errors import ExportError

INSTALL = {"tensorrt": "pip install 'picme-sdk[tensorrt]'", "rtx": "pip install tensorrt-rtx"}
MODULES = {"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}
PORTABLE = "ampere+"  # the target of an RTX engine by default: every card since Ampere


@dataclass(frozen=True)
class Engine:
    """A built plan and what the manifest says about it."""

    data: bytes
    builder: str
    version: str
    target: str
    profile: tuple[int, int, int]


def gpu_target() -> str | None:
    """sm_NN of the first GPU, or None where there is no driver or card."""
    capability = nvidia_capability()
    return None if capability is None else f"sm_{capability}"


def choose(wanted: str) -> str | None:
    """The builder that --builder stands for; None = write ONNX only."""
    if wanted == "none":
        return None
    if wanted == "auto":
        have = [name for name in ("tensorrt", "rtx") if importlib.util.find_spec(MODULES[name])]
        if "tensorrt" in have and gpu_target():
            return "tensorrt"
        return "rtx" if "rtx" in have else None
    if not importlib.util.find_spec(MODULES[wanted]):
        raise ExportError(f"--builder {wanted}", f"the module {MODULES[wanted]}", INSTALL[wanted])
    if wanted == "tensorrt" and not gpu_target():
        raise ExportError(
            "--builder tensorrt without a GPU",
            "a driver and a card",
            "use --builder rtx, or build on a machine with one",
        )
    return wanted


class Builder:
    """Builds engines with one module for one set of targets. Use from one thread."""

    def __init__(self, name: str, targets: tuple[str, ...], say: Callable[[str], None]) -> None:
        self.trt: ModuleType = importlib.import_module(MODULES[name])
        self.name, self.say = MODULES[name], say
        self.version = str(self.trt.__version__)
        self.targets = targets
        self.logger = _logger(self.trt)
        if name == "tensorrt":
            here = gpu_target()
            if any(target != here for target in targets):
                raise ExportError(
                    f"--target {','.join(targets)}", f"{here}, the card here", "TensorRT builds for the card it runs on"
                )
            self.target = here or ""
        else:
            self.target = "+".join(targets) or PORTABLE
            for target in targets:
                self._capability(target)

    def _capability(self, target: str) -> Any:
        value = getattr(self.trt.ComputeCapability, target.upper().replace("_", ""), None)
        if value is None:
            known = sorted(n for n in dir(self.trt.ComputeCapability) if n.startswith("SM") and n[2:].isdigit())
            raise ExportError(f"--target {target}", f"sm_NN among {known}", "choose one of them")
        return value

    def build(self, graph: str, model: bytes, latent: int, max_batch: int) -> Engine:
        """Serialize one graph. The decoder gets a profile of 1 to max_batch latents; the others have fixed shapes."""
        trt = self.trt
        builder = trt.Builder(self.logger)
        strongly_typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        network = builder.create_network(0 if strongly_typed is None else 1 << int(strongly_typed))
        parser = trt.OnnxParser(network, self.logger)
        if not parser.parse(model):
            raise ExportError(f"{graph}: {_parser_errors(parser)}", f"operators that {self.name} knows", "report this")
        config = builder.create_builder_config()
        config.progress_monitor = _monitor(trt, lambda text: self.say(f"{graph}: {text}"))
        profile = (1, 1, 1)
        if graph == "decoder":
            profile = (1, min(6, max_batch), max_batch)
            shapes = builder.create_optimization_profile()
            shapes.set_shape("z", *((count, latent) for count in profile))
            config.add_optimization_profile(shapes)
        if self.targets and hasattr(config, "num_compute_capabilities"):
            config.num_compute_capabilities = len(self.targets)
            for i, target in enumerate(self.targets):
                config.set_compute_capability(self._capability(target), i)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise ExportError(
                f"{graph}: {self.logger.last or 'no reason given'}", "an engine", "see --builder and --target"
            )
        return Engine(bytes(plan), self.name, self.version, self.target, profile)


def _parser_errors(parser: Any) -> str:
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    return "; ".join(f"node {e.node_name()!r}, operator {e.node_operator()}, {e.code()}: {e.desc()}" for e in errors)


def _logger(trt: ModuleType) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        """Keeps the last error and prints nothing."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last = ""

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.last = message

    return Logger()


def _monitor(trt: ModuleType, say: Callable[[str], None]) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        """Reports the phase, so that a build of several minutes does not look like a hang."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            say(f"{phase_name} ({num_steps} steps)")

        def phase_finish(self, phase_name: str) -> None:
            pass

        def step_complete(self, phase_name: str, step: int) -> bool:
            return True  # continue

    return Monitor()
