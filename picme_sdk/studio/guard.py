"""The guard in front of every route (plain ASGI): who may send requests, how large they may be, and the headers of every answer.

A foreign web page must not reach the studio through the user's browser. There are four locks, each sufficient against most attacks:
the Host allow-list stops names that were rebound to this machine, the Origin check stops forms and scripts of other pages,
the token stops everybody who does not know it, and without CORS headers no foreign page can read an answer.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64 << 20  # a photo and a mask as base64
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (compared with, not bound)
READING = ("GET", "HEAD")
HEADERS: Headers = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, text: str, kind: str = "Refused", headers: Headers = ()) -> None:
        super().__init__(text)
        self.status, self.text, self.kind, self.headers = status, text, kind, headers

    async def answer(self, send: Send) -> None:
        body = json.dumps({"error": self.text, "kind": self.kind}).encode()
        await answer(send, self.status, b"application/json", body, self.headers)


async def answer(send: Send, status: int, kind: bytes, body: bytes, headers: Headers = ()) -> None:
    """A whole answer at once."""
    named = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


class Guard:
    """Lets only this studio's own page, and tools that know the token, through to `app`."""

    def __init__(self, app: App, token: str, host: str, port: int, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.app, self.token, self.port, self.max_bytes = app, token.encode(), port, max_bytes
        self.everywhere = host in EVERYWHERE
        self.names = {*LOOPBACK, f"[{host}]" if ":" in host else host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # no websockets here
            await receive()
            return await send({"type": "websocket.close", "code": 1008})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self.check(scope)
        except Refused as refused:
            return await refused.answer(with_headers)
        await self.app(scope, self.counted(receive), with_headers)

    def check(self, scope: Scope) -> None:
        """Raises `Refused` for a request that must not get through."""
        host, origin = _only(scope, b"host"), _only(scope, b"origin")
        if host is None or not self.is_own(host.lower()):
            raise Refused(421, f"not the host {host!r} | expected the address that `picme studio` printed | use that")
        asks_api = scope["path"] in ("/api", "/metrics") or scope["path"].startswith("/api/")
        if asks_api or scope["method"] not in READING:
            site = _only(scope, b"sec-fetch-site")
            if (origin is not None and origin.lower() != f"http://{host.lower()}") or site not in (
                None, "same-origin", "none",
            ):  # fmt: skip
                raise Refused(403, "a request from another page | expected the studio's own page or a tool | use those")
        if asks_api:
            scheme, _, given = (_only(scope, b"authorization") or "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), self.token):
                text = "no token, or a wrong one | expected the one in the printed address | send `Authorization: Bearer TOKEN`"
                raise Refused(401, text, headers=[(b"www-authenticate", b"Bearer")])
        if not scope.get("query_string", b"").isascii():  # Starlette fails on it when it reports an unknown path
            raise Refused(400, "a query that is no ASCII | expected none at all | leave it out")
        length = _only(scope, b"content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            raise Refused(400, f"content-length {length!r} | expected a number of bytes | send the true length")
        if length is not None and int(length[:20]) > self.max_bytes:
            raise self.too_large()

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this studio, port included."""
        name, colon, port = host.rpartition(":")
        if not colon or port.endswith("]"):  # no port: the one of http
            name, port = host, "80"
        if port != str(self.port):
            return False
        return name in self.names or (self.everywhere and _is_address(name))

    def counted(self, receive: Receive) -> Receive:
        """`receive`, stopping at the limit whatever the client announced."""
        received = 0

        async def count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise self.too_large()
            return message

        return count

    def too_large(self) -> Refused:
        text = f"a body over {self.max_bytes:,} bytes | expected a smaller one | shrink the photo first"
        return Refused(413, text, headers=[(b"connection", b"close")])


def _only(scope: Scope, name: bytes) -> str | None:
    """The value of a header that may occur once; a repeated one is refused."""
    values = [value for key, value in scope["headers"] if key == name]
    if len(values) > 1:
        raise Refused(400, f"{len(values)} headers {name.decode()} | expected one | send it once")
    return values[0].decode("latin-1") if values else None


def _is_address(name: str) -> bool:
    """Whether a host is a numeric address: unlike a name, it can't be rebound."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
