"""The completer: a loaded model. Encodes photos into scenes."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import TracebackType

import numpy as np

from picme_sdk.backends import open_backend
from picme_sdk.bundle import Bundle
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
from picme_sdk.errors import BadArgument, BadBundle, Closed, NumericalError
from picme_sdk.holes import Hole, find_holes
from picme_sdk.imaging import ImageLike, load
from picme_sdk.manifest import Manifest
from picme_sdk.masks import MaskLike, load_mask
from picme_sdk.sampling import Mixture
from picme_sdk.scene import Completion, Region, Scene
from picme_sdk.token import Settings

SHIPPED = "pets256"


class Completer:
    """A model, ready to fill holes. Thread-safe; a context manager.

        with Completer() as completer:
            results = completer.complete("photo.jpg", "mask.png", n=6, seed=7)

    bundle     folder or .picme file; None is the model that ships with the package
    device     "auto" takes the best that works here; "cpu", "cuda", "tensorrt" or "rtx" is had or raises `BackendUnavailable`
    threads    of the CPU back end; None takes all cores. Results are decoded side by side, a thread each, as far as there is one for every thread
    precision  "float32" (None), or "int8" or "float16" where the bundle has it: faster, and a little different. Engines have their own.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] | None = None,
        device: Device = DEFAULT_DEVICE,
        threads: int | None = None,
        precision: Precision | None = None,
    ) -> None:
        opened = Bundle(shipped_bundle() if bundle is None else bundle)
        self._backend = open_backend(opened, device, threads, precision or DEFAULT_PRECISION)
        self._manifest = opened.manifest
        self._closed = False

    @property
    def backend(self) -> str:
        """What runs the graphs, such as "onnxruntime 1.31.1"."""
        return self._backend.name

    @property
    def device(self) -> str:
        """Where they run: "cpu", "cuda", "tensorrt" or "rtx". Never "auto"."""
        return self._backend.device

    @property
    def manifest(self) -> Manifest:
        """What the bundle says of itself."""
        return self._manifest

    def encode(self, image: ImageLike, mask: MaskLike = None, *, context: int | None = None) -> Scene:
        """The expensive half, once a photo.

        image    path, bytes (an encoded picture), PIL image or array [h, w] or [h, w, 1 to 4]: uint8, uint16 or float in 0..1, RGB
                 order. Shown upright: EXIF orientation is applied. It is not copied; do not change it while the scene is in use.
        mask     the same kinds, of the photo's (upright) size: 255, True or 1.0 = hole, 0 = keep, between = soft edge.
                 None takes the photo's transparent pixels as the hole; the results are opaque there.
        context  smallest side, in photo pixels, of the square that the model sees around a hole; None = the model's own resolution.
                 The square is always at least twice the hole where the photo allows it.
        """
        if self._closed:
            raise Closed("the completer was closed", "an open one", "make a new Completer")
        if context is not None and (
            isinstance(context, bool) or not isinstance(context, int) or not 1 <= context <= MAX_CONTEXT
        ):
            raise BadArgument(f"context={context!r}", "None or a positive number of pixels", "choose another")
        start = time.perf_counter()
        photo = load(image)
        holes = find_holes(photo, load_mask(mask, photo), self._manifest.image_size, context)
        if mask is None:
            photo = replace(photo, opaque=True)
        regions = tuple(self._region(hole) for hole in holes)
        elapsed = (time.perf_counter() - start) * 1000
        settings = Settings(None if context == self._manifest.image_size else context)
        return Scene(photo.size, elapsed, photo, regions, self._backend, self._manifest.model_id, settings)

    def _region(self, hole: Hole) -> Region:
        encoded = self._backend.run("encoder", {"image": hole.image[None], "mask": hole.mask[None, ..., None]})
        context, flag = encoded.pop("context"), encoded.pop("finite", None)
        if flag is None:  # Arrays that are no numpy ones are on a GPU.
            hosted = [array for array in (context, *encoded.values()) if isinstance(array, np.ndarray)]
            finite = all(np.isfinite(array).all() for array in hosted)
        else:
            finite = bool(flag.all())
        if not finite:
            raise NumericalError(
                "encoder output that is not finite", "finite numbers", "use device='cpu', or another bundle"
            )
        mixture = self._backend.run("mixture", {"context": context})
        outputs = mixture["log_weights"], mixture["means"], mixture["log_scales"]
        return Region(hole, encoded, Mixture.of(*outputs, self._manifest.ambiguity))

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
        self._backend.close()

    def __enter__(self) -> Completer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def shipped_bundle() -> Path:
    """Where the model that ships with the package is."""
    path = Path(str(files("picme_sdk") / "models" / SHIPPED))
    if not path.is_dir():
        raise BadBundle(
            "no bundle given, and none ships with this installation", "a bundle", "pass its path: Completer('BUNDLE')"
        )
    return path
