"""Decoder calls of several requests as one.

The decoder graph takes n latents against the skips of one photo, so calls can become one where they are about the same scene, and only there.
The encoder takes one photo at a time. Nobody is made to wait for company: what has come while the last call ran goes into the next.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from picme_sdk.backends import Arrays, Backend
from picme_sdk.cluster.connection import imported


class Merging:
    """A back end in front of another, in a replica. `run` is called from threads other than the event loop's.

    most  calls that are looked at together: as many as there can be at once
    """

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.name, self.device, self.batch = backend.name, backend.device, backend.batch
        self._backend, self._loop = backend, loop
        self._worker = ThreadPoolExecutor(1, "picme-decoder")
        self._decode = imported().serve.batch(max_batch_size=most, batch_wait_timeout_s=0.0)(self._decode_all)

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        if graph != "decoder":
            return self._backend.run(graph, inputs)
        decoded: Arrays = asyncio.run_coroutine_threadsafe(self._decode(inputs), self._loop).result()
        return decoded

    def close(self) -> None:
        self._worker.shutdown()
        self._backend.close()

    async def _decode_all(self, calls: list[Arrays]) -> list[Any]:
        return await self._loop.run_in_executor(self._worker, decode_together, self._backend, calls)


def decode_together(backend: Backend, calls: list[Arrays]) -> list[Any]:
    """The answers in the order of the calls, with as few runs of the decoder as there can be."""
    scenes: dict[int, list[int]] = {}
    for i, call in enumerate(calls):  # a scene hands out the same arrays every time, alive as long as its calls are
        scenes.setdefault(id(call["skip_0"]), []).append(i)
    answers: list[Any] = [None] * len(calls)
    for members in scenes.values():
        while members:
            rows = np.cumsum([len(calls[i]["z"]) for i in members])
            taken = max(1, int(np.searchsorted(rows, backend.batch, side="right")))
            group, members = members[:taken], members[taken:]
            latents = np.concatenate([calls[i]["z"] for i in group])
            decoded = backend.run("decoder", {**calls[group[0]], "z": latents})["image"]
            for i, part in zip(group, np.split(decoded, rows[: taken - 1]), strict=True):
                answers[i] = {"image": part}
    return answers
