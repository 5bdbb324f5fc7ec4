"""Attack 24: the studio's HTTP. Allowed: an answer of ours without a trace, or a closed connection; afterwards it serves as before."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks import soak
from tests.attacks.test_images import BOMBS, disguises
from tests.picme_sdk.studio.conftest import ASKED, Server

OURS = range(400, 500)


@pytest.fixture(autouse=True)
def _still_serves(studio: Server) -> Any:
    yield
    assert studio.call("GET", "/api/health").status == 200
    assert studio.post("/api/scenes", ASKED).status == 201


def raw(studio: Server, data: bytes, seconds: float = 10) -> bytes:
    """Send bytes as they are; what comes back until the server closes or says no more."""
    link = socket.create_connection((studio.host, studio.port), timeout=seconds)
    got = b""
    try:
        link.sendall(data)
        while part := link.recv(65536):
            got += part
            if b"\r\n\r\n" in got:
                break
    except OSError:
        pass
    finally:
        link.close()
    return got


def head(studio: Server, *lines: str, method: str = "POST", path: str = "/api/scenes") -> bytes:
    own = [f"{method} {path} HTTP/1.1", f"Host: {studio.own}", f"Authorization: Bearer {studio.token}", *lines]
    return "\r\n".join(own).encode("latin-1") + b"\r\n\r\n"


def test_24_pages_from_elsewhere(studio: Server) -> None:
    """Rebinding, foreign origins, forms, preflights, no token: each alone is enough to be refused."""
    asked = json.dumps(ASKED).encode()
    attempts: list[tuple[int, dict[str, Any]]] = [
        (421, {"host": "evil.com"}), (421, {"host": f"evil.com:{studio.port}"}), (421, {"host": "127.0.0.1.evil.com"}),
        (403, {"origin": "null"}), (403, {"origin": "http://evil.com"}), (403, {"origin": f"http://127.0.0.1:{studio.port + 1}"}),
        (403, {"sec_fetch_site": "cross-site"}), (401, {"authorization": None}), (401, {"authorization": "Bearer x"}),
        (415, {"content_type": "text/plain"}), (415, {"content_type": "multipart/form-data; boundary=x"}),
    ]  # fmt: skip
    for status, headers in attempts:
        answer = studio.call("POST", "/api/scenes", asked, **headers)
        assert answer.status == status, headers
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert studio.call("OPTIONS", "/api/scenes", origin="http://evil.com").status in OURS
    scenes = studio.call("GET", "/api/health").json()["scenes"]
    for path in ("/api/scenes", "/api/complete", "/api/scenes/x/samples", "/api/scenes?photo=x"):
        assert studio.call("GET", path).status in (404, 405)
    assert studio.call("GET", "/api/health").json()["scenes"] == scenes
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip
    assert studio.call("GET", "/api/health", origin="http://evil.com", **upgrade).status == 403


@pytest.mark.parametrize(
    "lines",
    [["Content-Length: 10737418240"], ["Content-Length: -1"], ["Content-Length: 1e3"], ["Content-Length: 5", "Content-Length: 6"], ["Content-Length: 3", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked, identity"], []],
    ids=["10 GB", "negative", "a float", "two", "two kinds", "an odd coding", "none"],
)  # fmt: skip
def test_24_lengths_that_are_none(studio: Server, lines: list[str]) -> None:
    start = time.monotonic()
    got = raw(studio, head(studio, "Content-Type: application/json", *lines) + b"{}\r\n\r\n")
    assert time.monotonic() - start < 10
    assert got == b"" or 400 <= int(got.split()[1]) < 500, got


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(500),
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
    ],
    ids=["zeros", "no path", "a version", "two hosts", "TLS", "a long path", "a long header", "many headers", "HTTP/2", "folded"],
)  # fmt: skip
def test_24_bytes_that_are_no_request(studio: Server, data: bytes) -> None:
    got = raw(studio, data, 5)
    assert got == b"" or 400 <= int(got.split()[1]) < 500, got[:200]
    assert b"Traceback" not in got


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e%5capp.py", "/..%5c..%5cx", "/windows/win.ini", "//etc/passwd", "/C:/x", "/page/%00", "/api/scenes/%2e%2e", "/api/scenes/" + "a" * 5000, "/api/scenes/é", "/openapi.json/../app.py"])  # fmt: skip
def test_24_paths_that_lead_out(studio: Server, path: str) -> None:
    got = raw(studio, head(studio, method="GET", path=path))
    assert got == b"" or 400 <= int(got.split()[1]) < 500, got[:200]
    assert b"import " not in got
    assert b"root:" not in got


def test_24_a_hundred_thousand_parts(studio: Server) -> None:
    body = b"--x\r\nContent-Disposition: form-data; name=a; filename=../../x\r\n\r\n\r\n" * 100_000
    start = time.monotonic()
    lines = ("Content-Type: multipart/form-data; boundary=x", f"Content-Length: {len(body)}")
    got = raw(studio, head(studio, *lines) + body)
    assert time.monotonic() - start < 10
    assert got == b"" or int(got.split()[1]) == 415


FIELDS: dict[str, list[Any]] = {
    "photo": [None, 5, [], {}, "", "é", "AAAA", True],
    "mask": [5, [], {}, "", "é", "AAAA", True],
    "context": [0, -1, 1.5, "64", [], True, 10**30],
    "n": [0, -1, 65, 10**30, 1.5, "6", None, [], True],
    "seed": [-1, 2**64, 1.5, "x", [], {}, True],
    "strategy": ["x", None, 5, [], {}, ["diverse"]],
    "primitive": [-1, 4, 10**30, 0.5, "0", [], True],
    "temperature": [-1, 101, "1", None, [], True, 10**400],
    "token": ["", "x", None, 5, [], {}, "A" * 10_000, "\ud800"],
    "path": ["/etc/passwd"],
    "url": ["http://127.0.0.1:9/"],
}


def test_24_values_that_are_none(studio: Server) -> None:
    """Every field with every wrong kind of value: an explanation each time, never an internal error."""
    scene = studio.scene()
    for name, values in FIELDS.items():
        for value in values:
            for path, asked in (("/api/complete", ASKED), (f"/api/scenes/{scene}/samples", {}), (f"/api/scenes/{scene}/replay", {}), (f"/api/scenes/{scene}/variations", {"token": "x"})):  # fmt: skip
                answer = studio.post(path, {**asked, name: value})
                assert answer.status in OURS, (path, name, value, answer.body[:200])
                assert answer.json()["error"].count(" | ") >= 2


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"5", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**6, b'{"n": 1e999}', b'{"n": NaN}', b"\xff\xfe", b'{"photo": "' + b"A" * 10**6, b'{"photo": "x", "photo": "y"}'],
    ids=["empty", "null", "list", "number", "deep", "deep objects", "long number", "overflow", "NaN", "bytes", "open", "twice"],
)  # fmt: skip
def test_24_bodies_that_are_none(studio: Server, body: bytes) -> None:
    for path in ("/api/scenes", "/api/complete"):
        assert studio.call("POST", path, body).status in OURS


def test_24_pictures_that_attack(studio: Server) -> None:
    """Bombs, scripts and other formats in photo and mask: refused, and nothing of them comes back."""
    texts = {name: base64.b64encode(data).decode() for name, data in (BOMBS | disguises()).items()}
    for name, text in texts.items():
        for field in ("photo", "mask"):
            answer = studio.post("/api/scenes", {**ASKED, field: text})
            assert answer.status in (400, 413), name
            assert answer.headers["content-type"] == "application/json"
            assert b"<script" not in answer.body


def test_24_slow_and_silent_connections(studio: Server) -> None:
    """200 half requests, as many as a few tools of this machine could hold open, hold up nobody."""
    links = [socket.create_connection((studio.host, studio.port)) for _ in range(200)]
    try:
        for i, link in enumerate(links):
            link.sendall(head(studio)[: 10 + i])
        assert studio.call("GET", "/api/health").status == 200
        assert studio.post("/api/scenes", ASKED).status == 201
    finally:
        for link in links:
            link.close()


def test_24_bodies_that_end_early(studio: Server) -> None:
    lines = ("Content-Type: application/json", "Content-Length: 100000")
    for _ in range(30):
        link = socket.create_connection((studio.host, studio.port))
        link.sendall(head(studio, *lines) + b"{")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of a goodbye
        link.close()
    until = time.monotonic() + 20
    while studio.call("GET", "/api/health").json()["jobs"]:
        assert time.monotonic() < until, "their places are free again"
        time.sleep(0.05)


def test_24_readers_that_leave(studio: Server) -> None:
    """Asked for 64 results and gone after the first bytes: the work stops and the place is free."""
    scene = studio.scene()
    body = json.dumps({"n": 64}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")

    def leave(_: int) -> None:
        raw(studio, head(studio, *lines, path=f"/api/scenes/{scene}/samples") + body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(16)))
    until = time.monotonic() + 30
    while studio.call("GET", "/api/health").json()["jobs"]:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_24_a_hundred_jobs_at_once(bundle_folder: Path) -> None:
    """Twice: everybody is served in the end, with his own result; memory stays flat (benchmarks/soak.py has the long run)."""
    found = soak.studio(bundle_folder, 4)
    assert (found.count, found.wrong, found.lost) == (400, 0, 0)
    assert max(found.curve) - found.curve[0] < 20, f"{found.curve} MB"


def test_24_compressed_bodies_are_not_unpacked(studio: Server) -> None:
    bomb = zlib.compress(bytes(50 << 20))
    assert studio.call("POST", "/api/scenes", bomb, content_encoding="deflate").status in OURS
