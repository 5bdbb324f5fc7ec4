"""HTTP requests to the studio's application, in this process: no sockets. An answer of 500 is a finding.

An input reads like a request: "METHOD /path", header lines, an empty line, the body. Host, token and content type are right unless the input has
its own; `SCENE` in a path is the handle of a scene that exists.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from picme_sdk.backends.protocol import Encoded
from picme_sdk.bundle.manifest import parse_manifest
from picme_sdk.completer import Completer
from picme_sdk.pipeline import Pipeline
from picme_sdk.studio.api import Studio
from picme_sdk.studio.app import build
from picme_sdk.studio.guard import App

TOKEN = "fuzz-fuzz-fuzz-fuzz"  # noqa: S105
MAX_BYTES = 1 << 20
_handle = "none"  # of the scene that exists
GOOD = Path(__file__).parent / "corpus" / "manifest" / "good.json"


class Painter:
    """A back end of a few lines: the latent chooses the colour."""

    name, device, batch = "painter", "cpu", 4

    def __init__(self, primitives: int, latent: int, side: int) -> None:
        self.primitives, self.latent, self.side = primitives, latent, side

    def encode(self, image: np.ndarray, mask: np.ndarray) -> Encoded:
        k, d = self.primitives, self.latent
        weights = np.log(np.full((1, k), 1 / k, np.float32))
        means = np.arange(k * d, dtype=np.float32).reshape(1, k, d)
        return Encoded(weights, means, np.zeros((1, k, d), np.float32), None, True)

    def decode(self, skips: object, z: np.ndarray) -> np.ndarray:
        colour = np.clip(z[:, :1] * 9 + 128, 1, 255).astype(np.uint8)  # a black square would count as a fault
        return np.repeat(colour, 3 * self.side**2, 1).reshape(-1, self.side, self.side, 3)

    def close(self) -> None: ...


def stand_in() -> Completer:
    """A completer without a model."""
    manifest = parse_manifest(GOOD.read_bytes())
    painter = Painter(manifest.primitives, manifest.latent, manifest.image_size)
    return Completer.from_pipeline(Pipeline(painter, manifest))


@cache
def application() -> tuple[App, asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return build(Studio(stand_in()), TOKEN, "127.0.0.1", 80, MAX_BYTES), loop


@cache
def new_scene() -> bytes:
    """A request that makes a scene."""
    photo = Image.linear_gradient("L").resize((40, 48)).convert("RGB")
    mask = Image.new("L", photo.size)
    mask.paste(255, (9, 9, 20, 18))
    pictures = {"photo": photo, "mask": mask}
    return b"POST /api/scenes\n\n" + json.dumps({name: as_text(picture) for name, picture in pictures.items()}).encode()


def as_text(picture: Image.Image) -> str:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def request(data: bytes, handle: str) -> tuple[dict[str, Any], bytes]:
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, path = first.partition(b" ")
    headers = {
        b"host": b"127.0.0.1",
        b"authorization": b"Bearer " + TOKEN.encode(),
        b"content-type": b"application/json",
    }
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    path, _, query = path.partition(b"?")
    shown = path.decode("utf-8", "replace").replace("SCENE", handle)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": method.decode("latin-1"), "path": shown, "raw_path": path, "query_string": query,
        "headers": list(headers.items()), "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    return scope, body


async def answer(app: App, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    parts = [{"type": "http.request", "body": body}]
    status, sent = 0, b""

    async def receive() -> dict[str, Any]:
        if not parts:
            await asyncio.sleep(3600)  # a client that waits; cancelled when the answer is there
        return parts.pop()

    async def send(message: Any) -> None:
        nonlocal status, sent
        status = message.get("status", status)
        sent += message.get("body", b"")

    await app(scope, receive, send)
    return status, sent


def ask(data: bytes, handle: str) -> tuple[int, bytes]:
    app, loop = application()
    scope, body = request(data, handle)
    status, sent = loop.run_until_complete(answer(app, scope, body))
    if not 200 <= status < 500 or b"an internal error" in sent:
        raise AssertionError(f"{scope['method']} {scope['path']}: {status} {sent[:300]!r}")
    return status, sent


def check(data: bytes) -> None:
    global _handle
    if ask(b"GET /api/scenes/SCENE", _handle)[0] == 404:  # requests may push it out, or forget it
        _handle = json.loads(ask(new_scene(), "")[1])["id"]
    ask(data, _handle)
