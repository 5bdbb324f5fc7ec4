"""The completer: a loaded model, which encodes photos into scenes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import TracebackType

from picme_sdk.backends import open_backend
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import Manifest
from picme_sdk.contract import (
    DEFAULT_DEVICE,
    DEFAULT_PRECISION,
    DEFAULT_RESULTS,
    DEFAULT_STRATEGY,
    DEFAULT_TEMPERATURE,
    MAX_CONTEXT,
    Device,
    Precision,
    Strategy,
)
from picme_sdk.errors import BadArgument, BadBundle, Closed
from picme_sdk.mixture.token import Settings
from picme_sdk.pipeline import Pipeline
from picme_sdk.pixels.crops import find_crops
from picme_sdk.pixels.mask import MaskLike, load_mask
from picme_sdk.pixels.photo import ImageLike, load
from picme_sdk.scene import Completion, Scene

SHIPPED = "pets256"


class Completer:
    """A model, ready to fill holes. Thread-safe; a context manager.

        with Completer() as completer:
            results = completer.complete("photo.jpg", "mask.png", n=6, seed=7)

    bundle     folder or .picme file; None is the model that ships with the package
    device     "auto" takes the best that works here; "cpu", "cuda", "tensorrt" or "rtx" works or raises `BackendUnavailable`
    threads    of the CPU back end; None uses all cores. Results are decoded side by side, one thread each, as long as there is one for every thread
    precision  "float32" (None), or "int8" or "float16" if the bundle has it: faster, and slightly different. Engines have their own.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] | None = None,
        device: Device = DEFAULT_DEVICE,
        threads: int | None = None,
        precision: Precision | None = None,
    ) -> None:
        opened = Bundle(shipped_bundle() if bundle is None else bundle)
        self._pipeline = Pipeline(
            open_backend(opened, device, threads, precision or DEFAULT_PRECISION), opened.manifest
        )
        self._closed = False

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> Completer:
        """A completer over a pipeline of your own, for example one whose back end is wrapped. Closing it closes the pipeline."""
        completer = cls.__new__(cls)
        completer._pipeline, completer._closed = pipeline, False
        return completer

    @property
    def backend(self) -> str:
        """What runs the graphs, such as "onnxruntime 1.31.1"."""
        return self._pipeline.backend.name

    @property
    def device(self) -> str:
        """Where they run: "cpu", "cuda", "tensorrt" or "rtx". Never "auto"."""
        return self._pipeline.backend.device

    @property
    def manifest(self) -> Manifest:
        """How the bundle describes itself."""
        return self._pipeline.manifest

    @property
    def pipeline(self) -> Pipeline:
        """What runs the graphs for one square, for those who work below photos: video, benchmarks, services."""
        return self._pipeline

    def encode(self, image: ImageLike, mask: MaskLike = None, *, context: int | None = None) -> Scene:
        """The expensive half, once per photo.

        image    path, bytes (an encoded picture), PIL image or array [h, w] or [h, w, 1 to 4]: uint8, uint16 or float in 0..1, RGB
                 order. Shown upright: EXIF orientation is applied. It is not copied; do not change it while the scene is in use.
        mask     the same kinds, of the photo's (upright) size: 255, True or 1.0 = hole, 0 = keep, between = soft edge.
                 None takes the photo's transparent pixels as the hole; the results are opaque there.
        context  smallest side, in pixels of the photo, of the square that the model sees around a hole; None = the model's own
                 resolution. The square is at least twice the hole's size if the photo allows it.
        """
        if self._closed:
            raise Closed("the completer was closed", "an open one", "make a new Completer")
        if context is not None and (
            isinstance(context, bool) or not isinstance(context, int) or not 1 <= context <= MAX_CONTEXT
        ):
            raise BadArgument(f"context={context!r}", "None or a positive number of pixels", "choose another")
        start = time.perf_counter()
        photo = load(image)
        crops = find_crops(photo, load_mask(mask, photo), self.manifest.image_size, context)
        if mask is None:
            photo = replace(photo, opaque=True)
        regions = tuple(self._pipeline.encode(crop) for crop in crops)
        elapsed = (time.perf_counter() - start) * 1000
        settings = Settings(None if context == self.manifest.image_size else context)
        return Scene(photo.size, elapsed, photo, regions, self._pipeline, settings)

    def complete(
        self,
        image: ImageLike,
        mask: MaskLike = None,
        n: int = DEFAULT_RESULTS,
        seed: int | None = None,
        strategy: Strategy = DEFAULT_STRATEGY,
        primitive: int | None = None,
        temperature: float = DEFAULT_TEMPERATURE,
    ) -> list[Completion]:
        """`encode`, then `Scene.sample` with the same arguments."""
        return self.encode(image, mask).sample(n, seed, strategy, primitive, temperature)

    def close(self) -> None:
        """Free the model. Calls under way finish; later ones raise `Closed`. Closing twice is allowed."""
        self._closed = True
        self._pipeline.close()

    def __enter__(self) -> Completer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class CompleterOptions:
    """The arguments of a `Completer`, for one that is opened later or in another process. The bundle's path must be valid there."""

    bundle: str | None = None
    device: Device = DEFAULT_DEVICE
    threads: int | None = None
    precision: Precision | None = None

    def open(self) -> Completer:
        return Completer(self.bundle, self.device, self.threads, self.precision)


def shipped_bundle() -> Path:
    """Where the model that ships with the package is."""
    path = Path(str(files("picme_sdk") / "models" / SHIPPED))
    if not path.is_dir():
        raise BadBundle(
            "no bundle given, and none ships with this installation", "a bundle", "pass its path: Completer('BUNDLE')"
        )
    return path
