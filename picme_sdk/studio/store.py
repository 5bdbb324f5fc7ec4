"""What the studio keeps: a bounded store of scenes, and the worker that runs one job at a time."""

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

MAX_SCENES = 8
MAX_STORED_PIXELS = 100_000_000  # of all scenes' photos together
IDLE_SECONDS = 3600.0
MAX_JOBS = 9  # one running, the others waiting


@dataclass(frozen=True)
class StoredScene:
    """A scene with its handle, and the box around its holes."""

    id: str
    scene: Scene
    box: Box

    @property
    def pixels(self) -> int:
        return self.scene.size[0] * self.scene.size[1]


class LruStore(Generic[T]):
    """Items with a size, by handle. The least recently used is dropped first; idle ones are dropped, too. Thread-safe."""

    def __init__(
        self, max_items: int, max_size: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_items, self._max_size, self._seconds, self._clock = max_items, max_size, seconds, clock
        self._items: OrderedDict[str, tuple[T, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._tidy()
            return len(self._items)

    def put(self, handle: str, item: T, size: int) -> None:
        with self._lock:
            self._items[handle] = item, size, self._clock()
            self._items.move_to_end(handle)
            self._tidy()

    def get(self, handle: str) -> T | None:
        with self._lock:
            self._tidy()
            if handle not in self._items:
                return None
            item, size, _ = self._items[handle]
            self._items[handle] = item, size, self._clock()
            self._items.move_to_end(handle)
            return item

    def remove(self, handle: str) -> bool:
        """Drop an item; whether it was there."""
        with self._lock:
            self._tidy()
            return self._items.pop(handle, None) is not None

    def _tidy(self) -> None:
        """Drop items that are too old or too many; the newest always stays."""
        now = self._clock()
        while self._items and now - next(iter(self._items.values()))[2] > self._seconds:
            self._items.popitem(last=False)
        while len(self._items) > 1 and (
            len(self._items) > self._max_items or sum(size for _, size, _ in self._items.values()) > self._max_size
        ):
            self._items.popitem(last=False)


class SceneStore:
    """Scenes by random handle, bounded by their number and by the pixels of their photos."""

    def __init__(
        self,
        max_scenes: int = MAX_SCENES,
        max_pixels: int = MAX_STORED_PIXELS,
        seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scenes: LruStore[StoredScene] = LruStore(max_scenes, max_pixels, seconds, clock)

    def __len__(self) -> int:
        return len(self._scenes)

    def add(self, scene: Scene, box: Box, handle: str | None = None) -> StoredScene:
        """Under a new handle, or under one that the scene had before it was dropped."""
        stored = StoredScene(handle or secrets.token_urlsafe(16), scene, box)
        self._scenes.put(stored.id, stored, stored.pixels)
        return stored

    def find(self, handle: str) -> StoredScene | None:
        return self._scenes.get(handle)

    def get(self, handle: str) -> StoredScene:
        stored = self.find(handle)
        if stored is None:
            raise no_such_scene()
        return stored

    def remove(self, handle: str) -> None:
        if not self._scenes.remove(handle):
            raise no_such_scene()


def no_such_scene() -> Refused:
    return Refused(404, "no such scene | expected a handle that is still stored | encode the photo again")


class Jobs:
    """One worker thread, so that the event loop stays free and jobs never compete; a bounded number of requests wait for it."""

    def __init__(self, max_open: int = MAX_JOBS, workers: int = 1) -> None:
        self.open = 0
        self._max_open = max_open
        self._worker = ThreadPoolExecutor(workers, "picme-studio")

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.open >= self._max_open:
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
