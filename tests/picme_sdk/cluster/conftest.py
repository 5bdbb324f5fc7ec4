"""Ray in processes of their own: it prints, warns and lingers as it likes, and none of it reaches the other tests."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from picme_sdk.cluster.connection import PRIVATE
from tests.conftest import ROOT
from tests.picme_sdk.studio.conftest import Server
from tests.processes import end

PICME = [sys.executable, "-m", "picme_sdk.cli"]


def environment() -> dict[str, str]:
    """Of a private cluster and its guests."""
    return {**os.environ, **PRIVATE, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@dataclass
class TwoWorkers:
    """A cluster with two workers of one core."""

    address: str
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip

    def batch(self, *options: str) -> subprocess.Popen[str]:
        return self.start("-m", "picme_sdk.cli", "batch", *options, "--ray", self.address)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoWorkers]:
    env = environment()
    command = [sys.executable, str(ROOT / "tests/picme_sdk/cluster/two_workers.py")]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address
        yield TwoWorkers(address, process, env)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        left = end(process, signal.SIGCONT)
        process.stdout.close()
    assert not left


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def studio(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`picme serve` with two replicas, called as the tests of the studio call theirs."""
    port, token = free_port(), secrets.token_urlsafe(24)
    options = ["--port", str(port), "--token", token, "--replicas", "2", "--queue", "12", "--deadline", "60"]
    printed = tmp_path_factory.mktemp("served") / "stderr.txt"
    with open(printed, "w") as errors:
        process = subprocess.Popen(
            [*PICME, "serve", "--bundle", str(bundle_folder), *options], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}/#token={token}", printed.read_text()
        yield Server("127.0.0.1", port, token, process)
    finally:
        left = end(process, signal.SIGINT)
        process.stdout.close()
    assert (process.returncode, left) == (0, ""), printed.read_text()
    assert "Traceback" not in printed.read_text()
