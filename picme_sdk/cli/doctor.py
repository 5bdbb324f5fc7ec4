"""`picme doctor`: what this machine has, what `auto` picks and why, and how to get something better."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from dataclasses import asdict, dataclass

from picme_sdk import __version__
from picme_sdk.errors import PicmeError

HELP = "what this machine has, what auto picks and why"
PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "cuda-python", "pycuda", "rich", "av", "starlette", "ray")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", help="try this bundle (the one that ships with the package)")
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """What this machine has and what `auto` picks."""
    from picme_sdk.completer import shipped_bundle

    diagnosis = diagnose(str(options.bundle or shipped_bundle()))
    if options.json:
        print(json.dumps(diagnosis.as_dict()))
        return 0 if diagnosis.chosen else 1
    print(f"{diagnosis.machine}; GPU: {diagnosis.gpu}")
    print(", ".join(f"{name} {version}" for name, version in diagnosis.packages.items()))
    print(f"bundle  {diagnosis.bundle}")
    for attempt in diagnosis.attempts:
        print(f"  {'yes' if attempt.works else 'no ':3} {attempt.device:8} {attempt.title}: {attempt.note}")
    print(f"auto takes: {diagnosis.chosen or 'nothing works'}")
    print(f"advice: {diagnosis.advice}")
    return 0 if diagnosis.chosen else 1


@dataclass(frozen=True)
class Attempt:
    """One back end that was really opened, or the reason why not."""

    device: str
    title: str
    works: bool
    present: bool  # `auto` tries only what is present
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
    from picme_sdk.backends import OPTIONS
    from picme_sdk.backends.cuda import nvidia_capability
    from picme_sdk.bundle.bundle import Bundle

    packages = {"picme-sdk": __version__}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    capability = nvidia_capability()
    attempts, described = [], ""
    try:
        bundle = Bundle(path)
        described = f"{path}: {bundle.manifest.name}, {bundle.manifest.image_size}x{bundle.manifest.image_size}"
        for option in OPTIONS:
            try:
                backend = option.open(bundle, None, "float32")
                backend.close()
                works, outcome = True, backend.name
            except PicmeError as error:
                works, outcome = False, f"{error.given}; {error.cure}"
            attempts.append(Attempt(option.device, option.title, works, option.present(), outcome))
    except PicmeError as error:
        described = str(error)
    working = [attempt for attempt in attempts if attempt.works and attempt.present]
    chosen = working[0].title if working else ""
    both = "onnxruntime" in packages and "onnxruntime-gpu" in packages
    if both:
        advice = "onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, install one"
    elif not working:
        advice = "pip install 'picme-sdk[cpu]'"
    elif capability is None:
        advice = "no NVIDIA driver here, so the CPU is the best choice"
    else:
        better = [a for a in attempts if not a.works and attempts.index(a) < attempts.index(working[0])]
        advice = f"for {better[-1].title}: {better[-1].note}" if better else "this is the best choice here"
    machine = f"Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}"
    gpu = "none" if capability is None else f"sm_{capability}"
    return Diagnosis(machine, packages, gpu, described, tuple(attempts), chosen, advice)
