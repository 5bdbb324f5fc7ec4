"""`picme serve` with two replicas: the studio's API by the studio's own tests, and what only many replicas have."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from picme_sdk.cli import main
from tests.picme_sdk.studio.conftest import ASKED, Answer, Server
from tests.picme_sdk.studio.test_api import (  # noqa: F401 (collected here: the same contract, another server)
    completer,
    scene,
    test_a_hundred_jobs_at_once,
    test_a_scene_says_its_size_box_weights_and_ambiguity,
    test_complete_in_one_request,
    test_mistakes_are_explained,
    test_only_one_idea,
    test_openapi_describes_exactly_the_routes,
    test_openapi_describes_the_answers,
    test_photos_of_other_modes,
    test_results_come_one_by_one_and_stop_when_nobody_listens,
    test_samples_are_those_of_the_sdk,
    test_scenes_that_can_not_be_made,
    test_the_example_of_the_document_runs,
    test_variations_interpolation_replay_and_image,
    test_without_a_mask_transparent_pixels_are_the_hole,
)
from tests.processes import await_title

REPLICA = "ray::ServeReplica:picme:replica"


def pids(studio: Server, count: int = 2) -> list[int]:
    return await_title(studio.process.pid, REPLICA, count)


def at_once(calls: int, threads: int, ask: Callable[[int], str]) -> Counter[str]:
    """`calls` calls from several threads; what they came to."""
    found: Counter[str] = Counter()
    waiting = iter(range(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                return
            came = ask(number)
            with lock:
                found[came] += 1

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def came_to(ask: Callable[[], Answer]) -> str:
    """The status of an answer that is whole, or what happened to the connection."""
    try:
        return str(ask().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__


def test_health_is_open_and_metrics_need_the_token(studio: Server) -> None:
    assert studio.call("GET", "/health", authorization=None, host="balancer").json() == {"status": "ok"}
    assert studio.call("GET", "/metrics", authorization=None).status == 401
    studio.post("/api/complete", {**ASKED, "n": 1})
    until = time.monotonic() + 30
    while b"ray_serve_num_http_requests_total{" not in (found := studio.call("GET", "/metrics")).body:
        assert time.monotonic() < until, found.body[:2000]
        time.sleep(1)  # Ray's agents report every few seconds
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = found.body.decode().splitlines()
    assert all(line.startswith(("# HELP ray_serve_", "# TYPE ray_serve_", "ray_serve_")) for line in lines)


def test_the_guard_stands_in_front(studio: Server) -> None:
    assert studio.call("GET", "/api/model", authorization=None).status == 401
    assert studio.call("GET", "/api/model", host="elsewhere.example").status == 421
    assert studio.post("/api/complete", ASKED, origin="http://elsewhere.example").status == 403
    assert studio.call("POST", "/api/complete", b"x", content_length=str(65 << 20)).status == 413


def test_every_replica_knows_every_scene(studio: Server) -> None:
    """Forty calls would not all meet the replica that encoded it, and each must say the same."""
    handle = studio.scene()
    asked = {"n": 2, "seed": 5}
    found = {
        tuple(line["preview"] for line in studio.post(f"/api/scenes/{handle}/samples", asked).lines())
        for _ in range(40)
    }
    assert len(found) == 1
    assert studio.call("DELETE", f"/api/scenes/{handle}").status == 204
    assert {studio.post(f"/api/scenes/{handle}/samples", asked).status for _ in range(20)} == {404}


def test_a_deadline_ends_a_request(studio: Server) -> None:
    assert studio.post("/api/scenes", ASKED, x_request_timeout_seconds="0.0001").status == 408
    asked = {**ASKED, "n": 64}
    start = time.monotonic()
    assert len(studio.post("/api/complete", asked).lines()) == 64
    deadline = (time.monotonic() - start) / 4
    try:
        assert studio.post("/api/complete", asked, x_request_timeout_seconds=f"{deadline:.4f}").status == 408
    except http.client.IncompleteRead as cut:  # the stream had begun: what came is whole lines
        lines = [json.loads(line) for line in cut.partial.splitlines()]
        assert len(lines) < 64
        assert all(line["token"] for line in lines)


def test_overload_is_told_when_to_come_back(studio: Server) -> None:
    retry: set[str] = set()

    def ask(number: int) -> str:
        answer = studio.post("/api/complete", {**ASKED, "n": 16})
        if answer.status == 429:
            retry.add(answer.headers["retry-after"])
        return str(answer.status)

    found = at_once(60, 30, ask)
    assert found.keys() == {"200", "429"}
    assert found["200"] >= 20  # two replicas work at four each, twelve wait
    assert retry == {"1"}


def test_a_replica_killed_under_load(studio: Server) -> None:
    """Only what it had in hand is lost; the other goes on, and a new one comes."""
    first = pids(studio)

    def ask(number: int) -> str:
        if number == 40:
            os.kill(first[0], signal.SIGKILL)
        return came_to(lambda: studio.post("/api/complete", {**ASKED, "n": 8, "seed": number}))

    found = at_once(120, 6, ask)
    lost = sum(found.values()) - found["200"]
    sys.stdout.write(f"killed a replica in 120 requests of 6 clients: {dict(found)}\n")
    assert lost <= 6
    until = time.monotonic() + 60
    while len(set(pids(studio, 1)) - {first[0]}) < 2:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert at_once(40, 4, lambda number: came_to(lambda: studio.post("/api/complete", {**ASKED, "n": 2}))) == {
        "200": 40
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "192.0.2.1"], "without --token"), (["--token", "short"], "--token"), (["--replicas", "many"], "--replicas many"),
        (["--replicas", "4:2"], "--replicas 4:2"), (["--queue", "0"], "--queue 0"), (["--deadline", "-1"], "--deadline -1"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_starts(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == 2
    assert says in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "is not available" in capsys.readouterr().err
