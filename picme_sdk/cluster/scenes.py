"""Scenes that every replica can open.

An encoded scene lives in the replica that encoded it. What all replicas share is the photo that it came from: whichever of them is asked
encodes it once more, which gives the same scene, and keeps it. So no request has to find its way to one particular replica, and a replica
may die. The album is one small process; where it dies, its handles are gone and clients make their scenes again, as after an hour.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from picme_sdk.completer import Completer
from picme_sdk.studio.api import NewScene, Reply, Studio, as_json, described
from picme_sdk.studio.store import IDLE_SECONDS, Jobs, Kept, Shelf, no_such_scene

MOST_SCENES = 1000
MOST_BYTES = 512 << 20  # of all photos together, as they were sent
SECONDS = 10.0  # to wait for the album


@dataclass(frozen=True)
class Page:
    """A scene as it was asked for, and what its maker was told."""

    asked: NewScene
    told: dict[str, Any]


class Album:
    """Pages by handle. A replica of its own in Ray Serve; calls come one after another."""

    def __init__(self) -> None:
        self._pages: Shelf[Page] = Shelf(MOST_SCENES, MOST_BYTES, IDLE_SECONDS)

    async def add(self, handle: str, page: Page) -> None:
        self._pages.put(handle, page, len(page.asked.photo) + len(page.asked.mask or ""))

    async def asked(self, handle: str, known: bool) -> NewScene | bool:
        """What was asked for, or only whether it is still there for one who knows it already."""
        page = self._pages.get(handle)
        return page is not None if page is None or known else page.asked

    async def told(self, handle: str) -> dict[str, Any] | None:
        page = self._pages.get(handle)
        return None if page is None else page.told

    async def remove(self, handle: str) -> bool:
        return self._pages.remove(handle)


class SharedStudio(Studio):
    """The studio's API over an album. `album` is its Serve handle; every method here runs in a thread that may wait."""

    def __init__(self, completer: Completer, album: Any, jobs: Jobs) -> None:
        super().__init__(completer, None, jobs)
        self._album = album

    def _ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self._album, method).remote(*arguments).result(timeout_s=SECONDS)

    def kept(self, handle: str) -> Kept:
        held = self.store.find(handle)
        asked = self._ask("asked", handle, held is not None)
        if asked is False:
            raise no_such_scene()
        if held is None:
            held = self.store.add(*self.encode(asked.photo, asked.mask, asked.context), handle)
        return held

    def new_scene(self, asked: NewScene) -> Reply:
        kept = self.store.add(*self.encode(asked.photo, asked.mask, asked.context))
        told = json.loads(json.dumps(described(kept)))
        self._ask("add", kept.id, Page(asked, told))
        return as_json(told, 201)

    def scene(self, handle: str) -> Reply:
        told = self._ask("told", handle)
        if told is None:
            raise no_such_scene()
        return as_json(told)

    def forget(self, handle: str) -> Reply:
        if not self._ask("remove", handle):
            raise no_such_scene()
        return Reply(status=204)
