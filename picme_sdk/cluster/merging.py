"""Decoder calls of several requests as one.

The decoder graph takes n latents against the skips of one photo, so calls can be merged if they are for the same region, and only then. The encoder takes
one photo at a time. No call waits for others: whatever has arrived while the last call ran goes into the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from picme_sdk.backends.protocol import Backend, Encoded
from picme_sdk.cluster.connection import imported
from picme_sdk.mixture.philox import F32
from picme_sdk.pixels.photo import U8

Call = tuple[object, F32]  # skips and latents


class Merging:
    """A back end in front of another one, in a replica. Its verbs are called from threads other than the event loop's.

    calls  at most this many are merged: as many as can be open at once
    """

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop, calls: int) -> None:
        self.name, self.device, self.batch = backend.name, backend.device, backend.batch
        self._backend, self._loop = backend, loop
        self._worker = ThreadPoolExecutor(1, "picme-decoder")
        self._decode = imported().serve.batch(max_batch_size=calls, batch_wait_timeout_s=0.0)(self._decode_all)

    def encode(self, image: U8, mask: U8) -> Encoded:
        return self._backend.encode(image, mask)

    def decode(self, skips: object, z: F32) -> U8:
        pictures: U8 = asyncio.run_coroutine_threadsafe(self._decode((skips, z)), self._loop).result()
        return pictures

    def close(self) -> None:
        self._worker.shutdown()
        self._backend.close()

    async def _decode_all(self, calls: list[Call]) -> list[U8]:
        return await self._loop.run_in_executor(self._worker, decode_merged, self._backend, calls)


def decode_merged(backend: Backend, calls: Sequence[Call]) -> list[U8]:
    """The pictures of each call, in order, with as few runs of the decoder as possible."""
    regions: dict[int, list[int]] = {}
    for i, (skips, _) in enumerate(
        calls
    ):  # a region passes the same handle every time, which lives as long as its calls
        regions.setdefault(id(skips), []).append(i)
    answers: dict[int, U8] = {}
    for members in regions.values():
        while members:
            rows = np.cumsum([len(calls[i][1]) for i in members])
            taken = max(1, int(np.searchsorted(rows, backend.batch, side="right")))
            group, members = members[:taken], members[taken:]
            pictures = backend.decode(calls[group[0]][0], np.concatenate([calls[i][1] for i in group]))
            answers.update(zip(group, np.split(pictures, rows[: taken - 1]), strict=True))
    return [answers[i] for i in range(len(calls))]
