"""What a back end is: two verbs on one square.

    encode   runs the encoder and the mixture head
    decode   runs the decoder

What the encoder hands to the decoder (the skips) stays where the back end keeps it: `Encoded.skips` is an opaque handle, numpy arrays for one back end
and device memory for another, freed with the last reference to it. The same verbs make a wrapper (picme_sdk/cluster/merging.py is one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from picme_sdk.bundle.bundle import Bundle
from picme_sdk.mixture.philox import F32
from picme_sdk.pixels.photo import U8

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Encoded:
    """One square after encoder and mixture head."""

    log_weights: F32  # [1, k]
    means: F32  # [1, k, d]
    log_scales: F32  # [1, k, d]
    skips: object  # for `decode` of the same back end only
    finite: bool  # whether all that the encoder computed is finite, checked where the numbers are


class Backend(Protocol):
    """Runs the three graphs. Every method may be called from several threads at once."""

    name: str  # such as "onnxruntime 1.31.1"
    device: str  # such as "cpu"
    batch: int  # results that one decoder call should compute

    def encode(self, image: U8, mask: U8) -> Encoded:
        """A square: image [s, s, 3], and mask [s, s], 255 = hole. The arrays are not kept."""
        ...

    def decode(self, skips: object, z: F32) -> U8:
        """Pictures [n, s, s, 3] for latents [n, d] of an encoded square. They belong to the caller."""
        ...

    def close(self) -> None:
        """Free everything. Calls that are under way finish; later ones raise `Closed`."""
        ...


@dataclass(frozen=True)
class Option:
    """One way to run a bundle."""

    device: str
    title: str
    present: Callable[[], bool]  # whether this machine has the hardware; cheap, never raises
    open: Callable[[Bundle, int | None, str], Backend]  # bundle, threads, precision
