"""Scenes that every replica can open.

An encoded scene lives in the replica that encoded it. What all replicas share is the request that it came from: any replica that needs the scene
encodes the photo again, which gives the same scene, and keeps it. So no request has to reach one particular replica, and a replica may die. The
registry is one small process; if it dies, its handles are lost and clients create their scenes again, as they do after an hour.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from picme_sdk.completer import Completer
from picme_sdk.studio.api import NewScene, Reply, Studio, as_json, describe_scene
from picme_sdk.studio.store import IDLE_SECONDS, Jobs, LruStore, StoredScene, no_such_scene

MAX_SCENES = 1000
MAX_BYTES = 512 << 20  # of all photos together, as they were sent
SECONDS = 10.0  # to wait for the registry


@dataclass(frozen=True)
class SceneRecord:
    """The request for a scene, and the answer that its client got."""

    request: NewScene
    answer: dict[str, Any]


class SceneRegistry:
    """Records by handle. A replica of its own in Ray Serve; its calls run one after another."""

    def __init__(self) -> None:
        self._records: LruStore[SceneRecord] = LruStore(MAX_SCENES, MAX_BYTES, IDLE_SECONDS)

    async def add(self, handle: str, record: SceneRecord) -> None:
        self._records.put(handle, record, len(record.request.photo) + len(record.request.mask or ""))

    async def request(self, handle: str, known: bool) -> NewScene | bool:
        """The request for a scene; for a caller that knows it already, only whether it is still there."""
        record = self._records.get(handle)
        return record is not None if record is None or known else record.request

    async def answer(self, handle: str) -> dict[str, Any] | None:
        record = self._records.get(handle)
        return None if record is None else record.answer

    async def remove(self, handle: str) -> bool:
        return self._records.remove(handle)


class SharedStudio(Studio):
    """The studio's API over a registry. `registry` is its Serve handle; every method here runs in a thread that may wait."""

    def __init__(self, completer: Completer, registry: Any, jobs: Jobs) -> None:
        super().__init__(completer, None, jobs)
        self._registry = registry

    def _ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self._registry, method).remote(*arguments).result(timeout_s=SECONDS)

    def stored(self, handle: str) -> StoredScene:
        scene = self.store.find(handle)
        request = self._ask("request", handle, scene is not None)
        if request is False:
            raise no_such_scene()
        if scene is None:
            scene = self.store.add(*self.encode(request.photo, request.mask, request.context), handle)
        return scene

    def new_scene(self, request: NewScene) -> Reply:
        scene = self.store.add(*self.encode(request.photo, request.mask, request.context))
        answer = json.loads(json.dumps(describe_scene(scene)))
        self._ask("add", scene.id, SceneRecord(request, answer))
        return as_json(answer, 201)

    def scene(self, handle: str) -> Reply:
        answer = self._ask("answer", handle)
        if answer is None:
            raise no_such_scene()
        return as_json(answer)

    def forget(self, handle: str) -> Reply:
        if not self._ask("remove", handle):
            raise no_such_scene()
        return Reply(status=204)
