"""A studio in a process of its own, as `picme studio` runs it, and a client that can also say what browsers never would."""

from __future__ import annotations

import base64
import http.client
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.vectors.make import photo as formula

RUN = """
import sys
from picme_sdk import Completer
from picme_sdk.studio.app import Options, serve
with Completer(sys.argv[1]) as completer:
    serve(completer, Options(photo=sys.argv[2] or None, host=sys.argv[3], browser=False), lambda a: print(a, flush=True))
"""


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


PHOTO = formula(60, 50)
MASK = np.zeros((50, 60), np.uint8)
MASK[20:35, 20:40] = 255
ASKED = {"photo": text(png(Image.fromarray(PHOTO))), "mask": text(png(Image.fromarray(MASK)))}


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass
class Server:
    """Where a studio listens."""

    host: str
    port: int
    token: str
    process: subprocess.Popen[str]

    @property
    def own(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def address(self) -> str:
        return f"http://{self.own}/#token={self.token}"

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        """One request. Headers are written content_type="..."; None leaves one out."""
        sent: dict[str, str | None] = {"Host": self.own, "Authorization": f"Bearer {self.token}"}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        sent |= {name.replace("_", "-").title(): value for name, value in headers.items()}
        link = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    link.putheader(name, value)
            link.endheaders(body)
            response = link.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            link.close()

    def post(self, path: str, asked: object, **headers: str | None) -> Answer:
        return self.call("POST", path, json.dumps(asked).encode(), **headers)

    def scene(self) -> str:
        made = self.post("/api/scenes", ASKED)
        assert made.status == 201, made.body
        return str(made.json()["id"])


def start(bundle: Path, photo: str = "", host: str = "127.0.0.1") -> Server:
    command = [sys.executable, "-W", "error", "-c", RUN, str(bundle), photo, host]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline()
    if not address:
        pytest.fail(process.communicate()[1])
    place, token = address.strip().removeprefix("http://").split("/#token=")
    name, port = place.rsplit(":", 1)
    return Server(name.strip("[]"), int(port), token, process)


def stop(server: Server) -> str:
    """Ctrl-C; what it wrote to its terminal."""
    server.process.send_signal(signal.SIGINT)
    printed = server.process.communicate(timeout=20)[1]
    assert server.process.returncode == 0, printed
    return printed


@pytest.fixture(scope="session")
def studio(bundle_folder: Path) -> Iterator[Server]:
    server = start(bundle_folder, str(ROOT / "picme_sdk/samples/chelsea.jpg"))
    yield server
    printed = stop(server)
    assert "Traceback" not in printed, printed
