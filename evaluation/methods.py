"""The methods that can be compared: bundles, OpenCV's two classical methods, folders of results, Python callables.

A method is a name and a function of (photo, mask, n, seed) -> results. `photo` is uint8 [s, s, 3], `mask` uint8 [s, s] with 255 = hole;
results are up to n pictures like the photo. Outside the hole, results are replaced by the photo.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from evaluation.cases import Case
from picme_sdk.batch import result_path
from picme_sdk.completer import Completer
from picme_sdk.errors import BadArgument

RADIUS = 3  # pixels around the edge of a hole that OpenCV reads; the value in its documentation
CLASSICAL = {"telea": "INPAINT_TELEA", "navier-stokes": "INPAINT_NS"}
Fill = Callable[[Case, int], Sequence[np.ndarray]]


@dataclass
class Method:
    """A name, a description for the report, and the function. `seconds` is the total time of its calls."""

    name: str
    about: dict[str, Any]
    fill: Fill = field(repr=False)
    completer: Completer | None = field(default=None, repr=False)  # of a bundle
    seconds: float = 0.0

    def results(self, case: Case, n: int) -> np.ndarray:
        """uint8 [1 to n, s, s, 3], equal to the photo outside the hole."""
        start = time.perf_counter()
        pictures = list(self.fill(case, n))
        self.seconds += time.perf_counter() - start
        fits = 1 <= len(pictures) <= n and all(
            isinstance(p, np.ndarray) and p.dtype == np.uint8 and p.shape == case.photo.shape for p in pictures
        )
        if not fits:
            first = [(str(getattr(p, "dtype", type(p).__name__)), getattr(p, "shape", ())) for p in pictures[:1]]
            raise BadArgument(
                f"{self.name}: {len(pictures)} results {first} for {case.name}",
                f"1 to {n} uint8 arrays of shape {case.photo.shape}",
                "correct the method",
            )
        return np.where(case.mask[..., None] > 0, np.stack(pictures), case.photo)


def parse_methods(text: str) -> list[Method]:
    """`picme=BUNDLE,telea,navier-stokes,other=FOLDER,mine=module:function` -> methods, in that order."""
    methods = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    names = [method.name for method in methods]
    if not names or len(set(names)) < len(names):
        raise BadArgument(f"--methods {text!r}", "one or more methods with different names", "name each by NAME=...")
    return methods


def _parse(text: str) -> Method:
    if text in CLASSICAL:
        return classical(text)
    name, _, what = text.partition("=")
    path = Path(what)
    if re.fullmatch(r"[\w.-]+", name) and what and name != "inputs":
        if path.is_file() or (path / "picme.json").is_file():
            return bundle(name, path)
        if path.is_dir():
            return Method(name, {"kind": "folder"}, partial(_from_folder, path))
        if re.fullmatch(r"[\w.]+:\w+", what):
            return _callable(name, what)
    raise BadArgument(
        f"method {text!r}",
        f"{', '.join(CLASSICAL)}, NAME=BUNDLE, NAME=FOLDER of results or NAME=module:function",
        "check name and path; docs/train/evaluation.md shows each",
    )


def classical(name: str) -> Method:
    """OpenCV's inpainting: one result."""
    try:
        import cv2
    except ImportError as error:
        raise BadArgument(f"method {name}", "OpenCV", "pip install opencv-python-headless") from error
    flag = getattr(cv2, CLASSICAL[name])
    about = {"kind": "OpenCV", "version": cv2.__version__, "radius": RADIUS}
    return Method(name, about, lambda case, n: [cv2.inpaint(case.photo, case.mask, RADIUS, flag)])


def bundle(name: str, path: Path) -> Method:
    """A bundle in ONNX Runtime on the CPU, with categorical sampling (the paper's Algorithm 2)."""
    completer = Completer(path, device="cpu")
    manifest = completer.manifest
    about = {
        "kind": "bundle",
        "model": manifest.name,
        "id": manifest.model_id,
        "primitives": manifest.primitives,
        "image_size": manifest.image_size,
        "training": manifest.card.training,
    }

    def fill(case: Case, n: int) -> list[np.ndarray]:
        return [np.asarray(r.image) for r in completer.complete(case.photo, case.mask, n, case.seed, "categorical")]

    return Method(name, about, fill, completer)


def bundles(text: str) -> list[Method]:
    """As `parse_methods`, but only bundles, for callers that need the mixture."""
    methods = parse_methods(text)
    for method in methods:
        if method.completer is None:
            raise BadArgument(f"method {method.name}", "a bundle", "give NAME=BUNDLE")
    return methods


def _from_folder(folder: Path, case: Case, n: int) -> list[np.ndarray]:
    """FOLDER/MASK/NAME.png-1.png, -2.png, ... for a photo NAME.*, as `picme batch` and `--pictures` name them."""
    pictures = []
    for number in range(1, n + 1):
        path = result_path(folder / case.kind, Path(case.name), number)
        if not path.is_file():
            break
        with Image.open(path) as picture:
            pictures.append(np.asarray(picture.convert("RGB")))
    if not pictures:
        first = result_path(folder / case.kind, Path(case.name), 1)
        raise BadArgument(f"no {first}", "at least one result of every picture and mask", "complete the folder")
    return pictures


def _callable(name: str, what: str) -> Method:
    module, _, function = what.partition(":")
    try:
        call = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise BadArgument(
            f"{what}: {error}", "module:function that can be imported", "put its folder on PYTHONPATH"
        ) from error
    return Method(
        name, {"kind": "callable", "function": what}, lambda case, n: call(case.photo, case.mask, n, case.seed)
    )
