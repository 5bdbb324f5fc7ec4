"""A Ray cluster: an existing one, by its address, or our own on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from picme_sdk.errors import BackendUnavailable, BadArgument

LOCAL = "local"  # the address of a cluster of our own
STORE_BYTES = 256 << 20  # of a local cluster's object store, which holds names and requests, not data sets
# Ray listens on every interface, and whoever reaches it can run code. Our own cluster stays on the loopback (the variable's name is Ray's, and works on
# Linux, too) and requires a token that only its own processes know.
PRIVATE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def connected(address: str = LOCAL, cpus: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected. `cpus` is the number of cores that a local cluster assumes (None = all)."""
    ray = imported(address)
    try:
        if address == LOCAL:
            ray.init(
                address=LOCAL, num_cpus=cpus, include_dashboard=False, object_store_memory=STORE_BYTES,
                log_to_driver=False, logging_level="error",
            )  # fmt: skip
        else:
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadArgument(f"--ray {address}: {reason}", "the address of a cluster", "see `ray status`") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def imported(address: str | None = None) -> Any:
    """Ray with Data and Serve, or the pip line that installs them. The address matters when Ray is imported first, because it reads its settings then."""
    if address == LOCAL:
        os.environ.update(PRIVATE)
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
        import ray.data
        import ray.serve
    except ImportError as error:
        given = f"this needs {error.name or 'ray'}, which is not installed"
        raise BackendUnavailable(given, "ray with its data and serve parts", "pip install 'picme-sdk[ray]'") from error
    for name in ("ray.data", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


@dataclass(frozen=True)
class Workers:
    """How many models a cluster can run at once, and what each gets."""

    count: int
    cpus: int
    gpus: int

    @property
    def resources(self) -> dict[str, int]:
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


def workers_of(nodes: list[dict[str, Any]], device: str, threads: int | None) -> Workers:
    """One worker per GPU if there are any; otherwise one per machine with all its cores, or several with `threads` cores each.

    nodes  as `ray.nodes()` gives them
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    cards = [int(node.get("GPU", 0)) for node in alive]
    cores = [int(node.get("CPU", 0)) for node in alive]
    if device != "cpu" and any(cards):
        each = min(core // card for core, card in zip(cores, cards, strict=True) if card)
        return Workers(sum(cards), min(threads or each, each), 1)
    if device not in ("auto", "cpu"):
        raise BadArgument(f"device={device!r}", "a cluster with GPUs", "choose another device or cluster")
    each = threads or min((core for core in cores if core), default=0)
    count = sum(core // each for core in cores) if each else 0
    if not count:
        raise BadArgument(
            f"{each or 'some'} cores a worker", f"at most {max(cores, default=0)}", "choose fewer --threads"
        )
    return Workers(count, each, 0)
