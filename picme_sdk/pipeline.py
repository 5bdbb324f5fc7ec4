"""The pipeline: what runs the three graphs for one square.

    encode(crop) -> Region           encoder and mixture head, once per square
    decode(region, z) -> squares     decoder, for any number of latents, healed along the hole's edge

All that is true for every back end lives here: the graphs' contract, the checks for numbers that are not finite, and the time that is spent. A photo has
one region for each of its crops; regions are independent of each other, so they may be encoded and decoded in any order and from several threads.

To watch or change what a back end does (count, merge calls, inject faults), wrap it: anything with the verbs of `Backend` is a back end.

    Completer.from_pipeline(completer.pipeline.wrapped(lambda backend: Merging(backend)))
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from picme_sdk.backends.protocol import Backend
from picme_sdk.bundle.manifest import Manifest
from picme_sdk.errors import BadBundle, NumericalError
from picme_sdk.mixture.mixture import Mixture
from picme_sdk.mixture.philox import F32
from picme_sdk.pixels.crops import Crop
from picme_sdk.pixels.photo import U8


@dataclass(frozen=True)
class Region:
    """One crop, encoded. Immutable; whatever the back end keeps for it is freed with the last reference."""

    crop: Crop
    mixture: Mixture
    skips: object  # the back end's handle


@dataclass(frozen=True)
class Spent:
    """What a pipeline has done so far, summed over all threads."""

    encodings: int = 0
    decodings: int = 0  # decoder calls
    results: int = 0  # squares that were decoded
    seconds: float = 0.0  # inside the back end


class Pipeline:
    """A back end with the contract of a model. Every method may be called from several threads at once."""

    def __init__(self, backend: Backend, manifest: Manifest) -> None:
        self.backend, self.manifest = backend, manifest
        self._spent = Spent()
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """Calls and seconds inside the back end so far; subtract two to measure what lies between them."""
        return self._spent

    def wrapped(self, wrap: Callable[[Backend], Backend]) -> Pipeline:
        """The same model over a wrapped back end; this pipeline stays as it is."""
        return Pipeline(wrap(self.backend), self.manifest)

    def encode(self, crop: Crop) -> Region:
        """Encode a crop. `NumericalError` if the encoder or the mixture head computes numbers that are not finite."""
        start = time.perf_counter()
        encoded = self.backend.encode(crop.image, crop.mask)
        self._add(start, encodings=1)
        if not encoded.finite:
            raise NumericalError(
                "encoder output that is not finite", "finite numbers", "use device='cpu', or another bundle"
            )
        k, d = self.manifest.primitives, self.manifest.latent
        for name, array, shape in (
            ("log_weights", encoded.log_weights, (1, k)),
            ("means", encoded.means, (1, k, d)),
            ("log_scales", encoded.log_scales, (1, k, d)),
        ):
            _check_shape("mixture", name, array.shape, shape)
        mixture = Mixture.of(encoded.log_weights, encoded.means, encoded.log_scales, self.manifest.ambiguity)
        return Region(crop, mixture, encoded.skips)

    def decode(self, region: Region, z: F32) -> U8:
        """Squares [n, s, s, 3] for latents [n, d] of a region; they belong to the caller. `NumericalError` for one that was not painted."""
        start = time.perf_counter()
        squares = self.backend.decode(region.skips, z)
        self._add(start, decodings=1, results=len(z))
        size = self.manifest.image_size
        _check_shape("decoder", "image", squares.shape, (len(z), size, size, 3))
        region.crop.seam.heal(squares)
        return squares

    def close(self) -> None:
        """Free the back end. Calls that are under way finish."""
        self.backend.close()

    def _add(self, start: float, encodings: int = 0, decodings: int = 0, results: int = 0) -> None:
        seconds = time.perf_counter() - start
        with self._lock:
            spent = self._spent
            self._spent = replace(
                spent,
                encodings=spent.encodings + encodings,
                decodings=spent.decodings + decodings,
                results=spent.results + results,
                seconds=spent.seconds + seconds,
            )


def _check_shape(graph: str, name: str, given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if given != expected:
        raise BadBundle(f"{graph}: {name} of shape {given}", f"{expected}", "export it again")
