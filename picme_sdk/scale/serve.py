"""The studio's HTTP API on many replicas, on Ray Serve.

A replica is a model behind the same routes and the same guard as `picme studio`. Ray Serve listens, spreads requests, restarts replicas that die,
adds and removes some by the load, and refuses (429, Retry-After) what would have to wait behind a full queue; a request that is not
answered in time is ended (408).
"""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import dataclass
from typing import Any

from picme_sdk.completer import Completer
from picme_sdk.contract import DEFAULT_DEVICE, Device, Precision
from picme_sdk.errors import BadArgument
from picme_sdk.scale.album import Album, SharedStudio
from picme_sdk.scale.cluster import Workers, imported
from picme_sdk.scale.merging import Merging
from picme_sdk.studio.app import build
from picme_sdk.studio.guard import App, Receive, Scope, Send, answer
from picme_sdk.studio.store import Jobs

NAME = "picme"
RETRY_SECONDS = 1
GROW_SECONDS, SHRINK_SECONDS = 10.0, 300.0  # of more load, or of less, before the number of replicas follows
FAMILY = "ray_serve_"  # of the metrics that speak of requests and replicas; the others are Ray's own


@dataclass(frozen=True)
class Service:
    """What is served, where, and within which limits."""

    token: str
    host: str = "127.0.0.1"
    port: int = 8000
    replicas: tuple[int, int] = (1, 1)  # fewest and most
    ongoing: int = 4  # requests that a replica works on at once: one computes while others read and write pictures
    queue: int = 16  # requests that wait for a replica; further ones are refused
    deadline: float = (
        30.0  # seconds from a request's arrival to its end; the header X-Request-Timeout-Seconds sets another
    )
    bundle: str | None = None
    device: Device = DEFAULT_DEVICE
    threads: int | None = None
    precision: Precision | None = None

    def __post_init__(self) -> None:
        fewest, most = self.replicas
        for name, value in (("--replicas", fewest), ("--ongoing", self.ongoing), ("--queue", self.queue), ("--deadline", self.deadline)):  # fmt: skip
            if value <= 0:
                raise BadArgument(f"{name} {value}", "more than 0", "choose another")
        if most < fewest:
            raise BadArgument(f"--replicas {fewest}:{most}", "the fewest first", "turn them round")


class Replica:
    """One model and its routes."""

    async def __init__(self, service: Service, album: Any) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        self.service = service
        completer = Completer(service.bundle, service.device, service.threads, service.precision)
        completer._backend = Merging(completer._backend, asyncio.get_running_loop(), service.ongoing)
        self.studio = SharedStudio(completer, album, Jobs(service.ongoing, service.ongoing))

    def __serve_build_asgi_app__(self) -> App:
        service = self.service
        return Front(build(self.studio, service.token, service.host, service.port, more={"/metrics": Metrics()}))


class Front:
    """Answers /health to anybody, whatever the Host: a load balancer knows no token. The rest meets the guard."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/health" and scope["method"] == "GET":
            await answer(send, 200, b"application/json", b'{"status": "ok"}')
        else:
            await self.app(scope, receive, send)


class Metrics:
    """What Ray's agent on this machine knows of the requests and replicas here, in Prometheus' text format."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"text/plain; version=0.0.4", await asyncio.to_thread(_metrics_here))


def _metrics_here() -> bytes:
    ray = imported()
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(address, timeout=5) as stream:
        lines = stream.read().decode().splitlines()
    own = [line for line in lines if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(FAMILY)]
    return "".join(f"{line}\n" for line in own).encode()


def deploy(service: Service, worker: Workers) -> None:
    """Serve on the connected cluster; returns when requests are answered."""
    serve = imported().serve
    from ray.serve.config import BackpressureConfig

    fewest, most = service.replicas
    scale: dict[str, Any] = {"num_replicas": fewest}
    if most > fewest:
        target = max(1.0, service.ongoing / 2)
        delays = {"upscale_delay_s": GROW_SECONDS, "downscale_delay_s": SHRINK_SECONDS}
        limits = {"min_replicas": fewest, "max_replicas": most, "target_ongoing_requests": target}
        spans = {"metrics_interval_s": GROW_SECONDS / 2, "look_back_period_s": GROW_SECONDS}
        scale = {"autoscaling_config": {**limits, **delays, **spans}}
    replica = serve.deployment(
        serve.ingress()(Replica), name="replica", ray_actor_options=worker.resources, max_ongoing_requests=service.ongoing,
        max_queued_requests=service.queue, backpressure_config=BackpressureConfig(status_code=429, retry_after_s=RETRY_SECONDS),
        health_check_period_s=2, health_check_timeout_s=10, graceful_shutdown_timeout_s=5, **scale,
    )  # fmt: skip
    album = serve.deployment(Album, name="album", ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000)
    serve.start(http_options={"host": service.host, "port": service.port, "request_timeout_s": service.deadline})
    serve.run(replica.bind(service, album.bind()), name=NAME)


def withdraw() -> None:
    """Stop serving; requests under way are finished."""
    imported().serve.delete(NAME)
