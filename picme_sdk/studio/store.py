"""What the studio keeps: a bounded store of scenes, and the worker that does one job at a time."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from picme_sdk.pixels.photo import Box
from picme_sdk.scene import Scene
from picme_sdk.studio.guard import Refused

T = TypeVar("T")

MOST_SCENES = 8
MOST_PIXELS = 100_000_000  # of all scenes' photos together
IDLE_SECONDS = 3600.0
MOST_OPEN = 9  # jobs: one at work, the others waiting


@dataclass(frozen=True)
class Kept:
    """A scene under its handle, and the box that its holes lie in."""

    id: str
    scene: Scene
    box: Box

    @property
    def pixels(self) -> int:
        return self.scene.size[0] * self.scene.size[1]


class Shelf(Generic[T]):
    """Things of some size by handle. The least recently used goes first; one that nobody uses goes too. Thread-safe."""

    def __init__(self, most: int, size: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._size, self._seconds, self._clock = most, size, seconds, clock
        self._kept: OrderedDict[str, tuple[T, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._tidy()
            return len(self._kept)

    def put(self, handle: str, thing: T, size: int) -> None:
        with self._lock:
            self._kept[handle] = thing, size, self._clock()
            self._kept.move_to_end(handle)
            self._tidy()

    def get(self, handle: str) -> T | None:
        with self._lock:
            self._tidy()
            if handle not in self._kept:
                return None
            thing, size, _ = self._kept[handle]
            self._kept[handle] = thing, size, self._clock()
            self._kept.move_to_end(handle)
            return thing

    def remove(self, handle: str) -> bool:
        """Whether it was there."""
        with self._lock:
            self._tidy()
            return self._kept.pop(handle, None) is not None

    def _tidy(self) -> None:
        """Drop what is too old or too much; the newest always stays."""
        now = self._clock()
        while self._kept and now - next(iter(self._kept.values()))[2] > self._seconds:
            self._kept.popitem(last=False)
        while len(self._kept) > 1 and (
            len(self._kept) > self._most or sum(size for _, size, _ in self._kept.values()) > self._size
        ):
            self._kept.popitem(last=False)


class Store:
    """Scenes by random handle, on a shelf that is bounded by their number and their photos' pixels."""

    def __init__(
        self,
        most: int = MOST_SCENES,
        pixels: int = MOST_PIXELS,
        seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shelf: Shelf[Kept] = Shelf(most, pixels, seconds, clock)

    def __len__(self) -> int:
        return len(self._shelf)

    def add(self, scene: Scene, box: Box, handle: str | None = None) -> Kept:
        """Under a new handle, or under one that the scene had before it was dropped."""
        kept = Kept(handle or secrets.token_urlsafe(16), scene, box)
        self._shelf.put(kept.id, kept, kept.pixels)
        return kept

    def find(self, handle: str) -> Kept | None:
        return self._shelf.get(handle)

    def get(self, handle: str) -> Kept:
        kept = self.find(handle)
        if kept is None:
            raise no_such_scene()
        return kept

    def remove(self, handle: str) -> None:
        if not self._shelf.remove(handle):
            raise no_such_scene()


def no_such_scene() -> Refused:
    return Refused(404, "no such scene | expected a handle that is still kept | encode the photo again")


class Jobs:
    """One worker thread, so the event loop stays free and jobs never compete; a bounded number of requests wait for it."""

    def __init__(self, most: int = MOST_OPEN, workers: int = 1) -> None:
        self.open = 0
        self._most = most
        self._worker = ThreadPoolExecutor(workers, "picme-studio")

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.open >= self._most:
            text = f"{self.open} jobs are waiting | expected fewer at once | try again in a moment"
            raise Refused(429, text, headers=[(b"retry-after", b"1")])
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def close(self) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)
