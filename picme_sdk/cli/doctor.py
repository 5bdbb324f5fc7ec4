"""What this machine has, what `auto` picks and why, and how to get the next better thing."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import asdict, dataclass

from picme_sdk import __version__
from picme_sdk.backends import OPTIONS, nvidia_capability
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.errors import PicmeError

PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "cuda-python", "pycuda", "rich", "av", "starlette", "ray")  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """One back end that was really opened, or why not."""

    device: str
    title: str
    works: bool
    note: str  # the back end's name, or what is missing and the cure


@dataclass(frozen=True)
class Diagnosis:
    machine: str
    packages: dict[str, str]
    gpu: str
    bundle: str
    attempts: tuple[Attempt, ...]
    chosen: str  # what `auto` takes, "" if nothing works
    advice: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def diagnose(path: str) -> Diagnosis:
    """Open the bundle with every back end; nothing is guessed from what is installed."""
    packages = {"picme-sdk": __version__}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    capability = nvidia_capability()
    attempts, note = [], ""
    try:
        bundle = Bundle(path)
        note = f"{path}: {bundle.manifest.name}, {bundle.manifest.image_size}x{bundle.manifest.image_size}"
        for option in OPTIONS:
            try:
                backend = option.open(bundle, None, "float32")
                attempts.append(Attempt(option.device, option.title, True, backend.name))
                backend.close()
            except PicmeError as error:
                attempts.append(Attempt(option.device, option.title, False, f"{error.given}; {error.cure}"))
    except PicmeError as error:
        note = str(error)
    working = [a for a in attempts if a.works and (capability is not None or a.device == "cpu")]
    chosen = working[0].title if working else ""
    both = "onnxruntime" in packages and "onnxruntime-gpu" in packages
    if both:
        advice = "onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, install one"
    elif not working:
        advice = "pip install 'picme-sdk[cpu]'"
    elif capability is None:
        advice = "no NVIDIA driver here: the CPU is the best there is"
    else:
        better = [a for a in attempts if not a.works and attempts.index(a) < attempts.index(working[0])]
        advice = f"for {better[-1].title}: {better[-1].note}" if better else "nothing better to be had"
    machine = f"Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}"
    gpu = "none" if capability is None else f"sm_{capability}"
    return Diagnosis(machine, packages, gpu, note, tuple(attempts), chosen, advice)
