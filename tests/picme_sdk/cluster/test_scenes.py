"""The registry by itself: what is kept, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from picme_sdk.cluster import scenes
from picme_sdk.cluster.scenes import SceneRecord, SceneRegistry
from picme_sdk.studio.api import NewScene


def record(photo: str) -> SceneRecord:
    return SceneRecord(NewScene(photo, "mask"), {"id": photo})


def test_a_scene_is_found_until_it_is_removed() -> None:
    async def use() -> None:
        kept = SceneRegistry()
        await kept.add("a", record("A"))
        assert await kept.request("a", known=False) == NewScene("A", "mask")
        assert await kept.request("a", known=True) is True
        assert await kept.answer("a") == {"id": "A"}
        assert await kept.remove("a") is True
        assert await kept.request("a", known=True) is False
        assert await kept.answer("a") is None
        assert await kept.remove("a") is False

    asyncio.run(use())


def test_the_registry_is_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left(count: int) -> list[str]:
        kept = SceneRegistry()
        for i in range(count):
            await kept.add(str(i), record("x" * 100))
        return [str(i) for i in range(count) if await kept.request(str(i), known=True)]

    monkeypatch.setattr(scenes, "MAX_SCENES", 3)
    assert asyncio.run(left(5)) == ["2", "3", "4"]
    monkeypatch.setattr(scenes, "MAX_BYTES", 250)
    assert asyncio.run(left(5)) == ["3", "4"]
