"""`picme serve`: the studio's HTTP API for many users, on Ray Serve."""

from __future__ import annotations

import argparse
import re
import secrets
import signal

from picme_sdk.cli.options import add_address, add_model, completer_options, stop_on
from picme_sdk.errors import BadArgument

HELP = "the studio's HTTP API on several replicas, for many users"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_address(parser, 8000, "8000")
    parser.add_argument("--replicas", default="1", metavar="N or MIN:MAX", help="models; MIN:MAX follows the load (1)")
    parser.add_argument("--ongoing", type=int, default=4, help="requests that a replica works on at once (4)")
    parser.add_argument("--queue", type=int, default=16, help="requests that may wait; others get 429 (16)")
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds from a request's arrival to its end (30)")
    parser.add_argument("--ray", default="local", metavar="ADDRESS", help="of a Ray cluster (one on this machine)")


def run(options: argparse.Namespace) -> int:
    """Serve the studio's HTTP API on several replicas until Ctrl-C."""
    from picme_sdk.cluster.connection import LOCAL, connected, workers_of
    from picme_sdk.cluster.serve import Service, deploy, withdraw
    from picme_sdk.studio.app import check_token, listen

    check_token(options.host, options.token)
    given = re.fullmatch(r"(\d+)(?::(\d+))?", options.replicas)
    if given is None:
        raise BadArgument(f"--replicas {options.replicas}", "a number, or MIN:MAX", "such as 2 or 1:8")
    replicas = int(given[1]), int(given[2] or given[1])
    threads = options.threads or 1
    service = Service(
        options.token or secrets.token_urlsafe(24), options.host, options.port, replicas, options.ongoing, options.queue,
        options.deadline, completer_options(options, threads),
    )  # fmt: skip
    if options.ray == LOCAL:
        listen(service.host, service.port).close()  # Ray would retry a port in use for minutes
    with connected(options.ray) as ray:
        deploy(service, workers_of(ray.nodes(), options.device, threads))
        with stop_on(signal.SIGINT, signal.SIGTERM) as stop:
            shown = f"[{service.host}]" if ":" in service.host else service.host
            print(f"http://{shown}:{service.port}/#token={service.token}", flush=True)
            while not stop.wait(1):  # an endless wait would not notice the signal on every system
                pass
        withdraw()
    return 0
