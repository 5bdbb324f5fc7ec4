"""The studio's routes, and `serve`. Starlette routes and uvicorn listens; both are imported when they are first needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from picme_sdk.completer import Completer
from picme_sdk.contract import HTTP_STATUS
from picme_sdk.errors import BackendUnavailable, BadArgument, BadImage, PicmeError
from picme_sdk.studio.api import Complete, Interpolation, NewScene, Replay, Reply, Samples, Studio, Variations, read
from picme_sdk.studio.guard import MAX_BODY_BYTES, App, Guard, Receive, Refused, Scope, Send, answer

log = logging.getLogger(__name__)

TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")  # characters that need no escaping in an address
BODY_SECONDS = 60.0  # for a whole body to arrive
STALLED_SECONDS = 60.0  # a reader that takes nothing for this long is disconnected
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".json": b"application/json",
}

# Path, method, what answers, and the JSON that it takes. A route that takes none is quick and does not wait for a job.
ROUTES: tuple[tuple[str, str, Callable[..., Reply], type[Any] | None], ...] = (
    ("/api/health", "GET", Studio.health, None),
    ("/api/model", "GET", Studio.model, None),
    ("/api/photo", "GET", Studio.first_photo, None),
    ("/api/complete", "POST", Studio.complete, Complete),
    ("/api/scenes", "POST", Studio.new_scene, NewScene),
    ("/api/scenes/{id}", "GET", Studio.scene, None),
    ("/api/scenes/{id}", "DELETE", Studio.forget, None),
    ("/api/scenes/{id}/samples", "POST", Studio.samples, Samples),
    ("/api/scenes/{id}/variations", "POST", Studio.variations, Variations),
    ("/api/scenes/{id}/interpolation", "POST", Studio.interpolation, Interpolation),
    ("/api/scenes/{id}/replay", "POST", Studio.replay, Replay),
    ("/api/scenes/{id}/image", "POST", Studio.image, Replay),
)


class Endpoint:
    """One route: reads the body, lets the worker answer, sends the answer."""

    def __init__(self, studio: Studio, answers: Callable[..., Reply], takes: type[Any] | None) -> None:
        self.studio, self.answers, self.takes = studio, answers, takes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = scope["path_params"].values()
        try:
            if self.takes is None:
                await _send_reply(await asyncio.to_thread(self.answers, self.studio, *handle), send)
                return
            if _content_type(scope) != b"application/json":
                raise Refused(415, "a body of another type | expected application/json | send JSON")
            with self.studio.jobs.place():
                body = await _body(receive)
                work = partial(self._work, handle, body)
                reply = await self.studio.jobs.run(work)
                del body, work
                if reply.lines is None:
                    await _send_reply(reply, send)
                else:
                    await self._send_lines(reply, reply.lines, receive, send)
        except Exception as error:
            await _refusal(error).answer(send)

    def _work(self, handle: Any, body: bytes) -> Reply:
        return self.answers(self.studio, *handle, read(self.takes, body))  # type: ignore[arg-type]

    async def _send_lines(self, reply: Reply, lines: Iterator[bytes], receive: Receive, send: Send) -> None:
        """Send each line as soon as it is ready. A fault on the way becomes the last line."""
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            head = {"status": reply.status, "headers": [(b"content-type", reply.kind.encode())]}
            await send({"type": "http.response.start", **head})
            while not gone.done():
                try:
                    line = await self.studio.jobs.run(partial(next, lines, None))
                except Exception as error:
                    line = json.dumps({"error": _refusal(error).text}).encode() + b"\n"
                    lines = iter(())
                if line is None:
                    break
                message = {"type": "http.response.body", "body": line, "more_body": True}
                await asyncio.wait_for(send(message), STALLED_SECONDS)
            await send({"type": "http.response.body", "body": b""})
        except asyncio.TimeoutError:
            log.warning("a reader stalled and was disconnected")
        finally:
            gone.cancel()


def _refusal(error: Exception) -> Refused:
    """An error as clients see it: its text if it is meant for users, never a traceback."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, asyncio.TimeoutError):
        return Refused(408, f"no whole body in {BODY_SECONDS:.0f} s | expected it sooner | try again")
    if isinstance(error, PicmeError):
        kind = type(error).__name__
        return Refused(HTTP_STATUS.get(kind, 400), str(error), kind)
    log.error("a request failed", exc_info=error)
    return Refused(500, "an internal error | expected none | see the terminal of `picme studio`", "InternalError")


def _content_type(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bytes(value).split(b";")[0].strip().lower()
    return b""


async def _body(receive: Receive) -> bytes:
    async def whole() -> bytes:
        parts = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "a request that ended early | expected a whole body | send it again")
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(parts)

    return await asyncio.wait_for(whole(), BODY_SECONDS)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_reply(reply: Reply, send: Send) -> None:
    await answer(send, reply.status, reply.kind.encode(), reply.body)


class PageFile:
    """One file of the page, read once."""

    def __init__(self, name: str, data: bytes) -> None:
        self.path = "/" if name == "index.html" else f"/{name}"
        self.kind, self.data = KINDS[Path(name).suffix], data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, self.kind, self.data)


def page_files() -> list[PageFile]:
    """Every file that is served, by name, so there is no folder to break out of."""
    here = files("picme_sdk") / "studio"
    entries = [entry for entry in (here / "page").iterdir() if entry.is_file()]
    return [PageFile(entry.name, entry.read_bytes()) for entry in (*entries, here / "openapi.json")]


def build(
    studio: Studio,
    token: str,
    host: str,
    port: int,
    max_bytes: int = MAX_BODY_BYTES,
    more: Mapping[str, App] | None = None,
) -> App:
    """The whole ASGI application, guard included. `more` maps further paths to what answers a GET there."""
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise _missing(error) from error

    async def unknown(request: Request, error: Exception) -> JSONResponse:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = f"{request.method} {request.url.path} | expected a path and method of openapi.json | see there"
        return JSONResponse({"error": text[:300], "kind": "Refused"}, status)

    def endpoint(answers: Callable[..., Reply], takes: type[Any] | None) -> Endpoint:
        return Endpoint(studio, getattr(type(studio), answers.__name__), takes)  # of a subclass, perhaps

    routes = [Route(path, endpoint(answers, takes), methods=[method]) for path, method, answers, takes in ROUTES]
    pages = [Route(file.path, file, methods=["GET"]) for file in page_files()]
    pages += [Route(path, app, methods=["GET"]) for path, app in (more or {}).items()]
    router = Starlette(routes=[*routes, *pages], exception_handlers={HTTPException: unknown})
    return Guard(router, token, host, port, max_bytes)


def _missing(error: ImportError) -> BackendUnavailable:
    given = f"the studio needs {error.name or 'a package'}, which is not installed"
    return BackendUnavailable(given, "starlette and uvicorn", "pip install 'picme-sdk[studio]'")


@dataclass(frozen=True)
class Options:
    """How the studio is served."""

    photo: str | os.PathLike[str] | None = None  # file that the page opens with
    host: str = "127.0.0.1"  # anything beyond this machine needs a token
    port: int = 0  # 0 = any that is free
    token: str | None = None  # None = a random one
    browser: bool = True  # open the page


def serve(completer: Completer, options: Options, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `started` gets the page's address, token included, as soon as it can be opened."""
    try:
        import uvicorn
    except ImportError as error:
        raise _missing(error) from error
    check_token(options.host, options.token)
    photo = None if options.photo is None else _read(options.photo)
    studio = Studio(completer, photo)
    token = options.token or secrets.token_urlsafe(24)
    listening = listen(options.host, options.port)
    try:
        port = int(listening.getsockname()[1])
        config = uvicorn.Config(
            build(studio, token, options.host, port), log_level="warning", access_log=False, server_header=False,
            ws="none", lifespan="off", proxy_headers=False, limit_concurrency=256, timeout_graceful_shutdown=2,
        )  # fmt: skip
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)  # noqa: S104
        address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/#token={token}"
        started(address)  # the socket is listening already; a request waits until the server accepts it
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
        studio.jobs.close()


def check_token(host: str, token: str | None) -> None:
    if token is None and host not in ("127.0.0.1", "localhost", "::1"):
        given = f"--host {host} without --token"
        raise BadArgument(given, "a token where others can reach the studio", "add --token with a long random text")
    if token is not None and not TOKEN.fullmatch(token):
        raise BadArgument("--token of that form", "at least 16 letters, digits or -._~", "choose a longer one")


def _read(photo: str | os.PathLike[str]) -> bytes:
    try:
        return Path(photo).read_bytes()
    except OSError as error:
        raise BadImage(f"photo {photo} can't be read", "a picture file", "check the path") from error


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        raise BadArgument(
            f"{host} port {port} is not available ({error})", "a free port", "choose another --port"
        ) from error
    return listening
