import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

from picme_sdk.studio.guard import Refused
from picme_sdk.studio.store import Jobs, SceneStore


@dataclass
class Encoded:
    """As much of a scene as the store looks at."""

    size: tuple[int, int] = (10, 10)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


BOX = (0, 0, 1, 1)


def test_the_least_recently_used_goes_first() -> None:
    store = SceneStore(max_scenes=2)
    a, b = store.add(Encoded(), BOX), store.add(Encoded(), BOX)  # type: ignore[arg-type]
    store.get(a.id)
    c = store.add(Encoded(), BOX)  # type: ignore[arg-type]
    assert store.get(a.id) is a
    assert store.get(c.id) is c
    with pytest.raises(Refused, match="no such scene"):
        store.get(b.id)


def test_what_nobody_uses_goes() -> None:
    clock = Clock()
    store = SceneStore(seconds=60, clock=clock)
    a, b = store.add(Encoded(), BOX), store.add(Encoded(), BOX)  # type: ignore[arg-type]
    clock.now = 50
    store.get(b.id)
    clock.now = 100
    assert len(store) == 1
    assert store.get(b.id) is b
    with pytest.raises(Refused):
        store.get(a.id)


def test_large_photos_leave_less_room_but_the_newest_stays() -> None:
    store = SceneStore(max_pixels=1000)
    for _ in range(5):
        store.add(Encoded((20, 20)), BOX)  # type: ignore[arg-type]
    assert len(store) == 2
    huge = store.add(Encoded((1000, 1000)), BOX)  # type: ignore[arg-type]
    assert len(store) == 1
    assert store.get(huge.id) is huge


def test_jobs_run_one_at_a_time_off_the_event_loop() -> None:
    jobs = Jobs()
    running: list[str] = []

    def work() -> int:
        running.append(threading.current_thread().name)
        assert len(running) == 1
        time.sleep(0.01)
        running.clear()
        return threading.get_ident()

    async def several() -> list[int]:
        return await asyncio.gather(*(jobs.run(work) for _ in range(8)))

    try:
        assert threading.get_ident() not in asyncio.run(several())
    finally:
        jobs.close()


def test_too_many_jobs_are_told_to_come_back() -> None:
    jobs = Jobs(max_open=2)
    with jobs.place(), jobs.place():
        with pytest.raises(Refused) as refused, jobs.place():
            pass
        assert refused.value.status == 429
        assert dict(refused.value.headers)[b"retry-after"] == b"1"
    assert jobs.open == 0
    with jobs.place():
        pass
    jobs.close()
