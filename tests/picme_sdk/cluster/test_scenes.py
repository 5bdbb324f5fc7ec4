"""The album by itself: what is kept, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from picme_sdk.cluster import album
from picme_sdk.cluster.scenes import Album, Page
from picme_sdk.studio.api import NewScene


def page(photo: str) -> Page:
    return Page(NewScene(photo, "mask"), {"id": photo})


def test_a_page_is_found_until_it_is_removed() -> None:
    async def use() -> None:
        kept = Album()
        await kept.add("a", page("A"))
        assert await kept.asked("a", known=False) == NewScene("A", "mask")
        assert await kept.asked("a", known=True) is True
        assert await kept.told("a") == {"id": "A"}
        assert await kept.remove("a") is True
        assert await kept.asked("a", known=True) is False
        assert await kept.told("a") is None
        assert await kept.remove("a") is False

    asyncio.run(use())


def test_the_album_is_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left(pages: int) -> list[str]:
        kept = Album()
        for i in range(pages):
            await kept.add(str(i), page("x" * 100))
        return [str(i) for i in range(pages) if await kept.asked(str(i), known=True)]

    monkeypatch.setattr(album, "MOST_SCENES", 3)
    assert asyncio.run(left(5)) == ["2", "3", "4"]
    monkeypatch.setattr(album, "MOST_BYTES", 250)
    assert asyncio.run(left(5)) == ["3", "4"]
