"""One route by itself, with clients that leave, stall or dawdle, and answers that fail."""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from picme_sdk.errors import NumericalError
from picme_sdk.studio import app
from picme_sdk.studio.api import Replay, Reply
from picme_sdk.studio.app import Endpoint
from picme_sdk.studio.store import Jobs

BODY = {"type": "http.request", "body": b'{"token": "t"}', "more_body": False}
GONE = {"type": "http.disconnect"}


class Idle:
    """As much of a studio as a route looks at."""

    def __init__(self) -> None:
        self.jobs = Jobs()


def ask(answers: Callable[..., Reply], messages: list[dict[str, Any]], stalls: bool = False) -> list[dict[str, Any]]:
    """What is sent to a client that sends these messages and then nothing."""
    studio, sent = Idle(), []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(60)
        raise AssertionError("waited for more than there is")

    async def send(message: Any) -> None:
        sent.append(message)
        if stalls and message.get("more_body"):
            await asyncio.sleep(60)

    scope = {"path_params": {}, "headers": [(b"content-type", b"application/json; charset=utf-8")]}
    endpoint = Endpoint(studio, answers, Replay)  # type: ignore[arg-type]
    try:
        asyncio.run(asyncio.wait_for(endpoint(scope, receive, send), 20))
    finally:
        studio.jobs.close()
    assert studio.jobs.open == 0
    return sent


def test_a_stream_ends_when_its_reader_is_gone() -> None:
    made = iter(range(2000))

    def very_many(studio: object, asked: Replay) -> Reply:
        return Reply(lines=(b"%d\n" % i for i in made))

    ask(very_many, [BODY, GONE])
    assert next(made, 2000) < 100


def test_a_reader_that_stalls_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STALLED_SECONDS", 0.05)
    sent = ask(lambda studio, asked: Reply(lines=itertools.repeat(b"1\n")), [BODY], stalls=True)
    assert len(sent) == 2


def test_a_body_that_does_not_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)
    sent = ask(lambda studio, asked: Reply(), [{**BODY, "more_body": True}])
    assert sent[0]["status"] == 408


def test_a_client_that_leaves_before_its_body_came() -> None:
    assert ask(lambda studio, asked: Reply(), [{**BODY, "more_body": True}, GONE])[0]["status"] == 400


def test_a_fault_in_the_middle_is_the_last_line() -> None:
    def fails() -> Iterator[bytes]:
        yield b"1\n"
        raise NumericalError("decoder output", "finite numbers", "use device='cpu'")

    sent = ask(lambda studio, asked: Reply(lines=fails()), [BODY])
    assert [message.get("body") for message in sent[1:2]] == [b"1\n"]
    assert "finite numbers" in json.loads(sent[2]["body"])["error"]
    assert sent[-1] == {"type": "http.response.body", "body": b""}


def test_a_fault_of_ours_shows_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    def fails(studio: object, asked: Replay) -> Reply:
        raise ZeroDivisionError("secret detail")

    with caplog.at_level(logging.ERROR):
        sent = ask(fails, [BODY])
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]
    assert b"internal error" in sent[1]["body"]
    assert "secret detail" in caplog.text
