"""C++ against Python, in one run: one photo of 256x256 with a hole of 128x128 to six results.

    python -m tests.cpp.latency BUNDLE [--threads 2] [--rounds 30]

Rounds are interleaved, so that whatever else the machine does hits both alike. "results" includes composing all pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from picme_sdk.completer import Completer
from tests.cpp.native import Native


def main() -> None:
    parser = argparse.ArgumentParser(description="C++ against Python, in one run")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    photo = random.integers(0, 256, (256, 256, 3), np.uint8)
    mask = np.zeros((256, 256), np.uint8)
    mask[64:192, 64:192] = 255
    native = Native(arguments.bundle, arguments.threads)
    python = Completer(arguments.bundle, device="cpu", threads=arguments.threads)
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object]) -> object:
        start = time.perf_counter()
        made = work()
        times.setdefault(name, []).append((time.perf_counter() - start) * 1000)
        return made

    for i in range(arguments.rounds + 3):
        if i == 3:
            times.clear()  # warm now
        ours = timed("C++ encode", lambda: native.encode(photo, mask))
        mine = timed("C++ six results", lambda: ours.sample(6, 7))  # noqa: B023
        theirs = timed("Python encode", lambda: python.encode(photo, mask))
        other = timed("Python six results", lambda: [(r, r.image) for r in theirs.sample(6, 7)])  # noqa: B023
        assert [r.token for r in mine] == [r.token for r, _ in other]
        assert all(np.abs(r.image.astype(int) - image).max() <= 1 for r, (_, image) in zip(mine, other, strict=True))
        ours.close()
    write = sys.stdout.write
    for side in ("C++", "Python"):
        for part in ("encode", "six results"):
            values = np.array(times[f"{side} {part}"])
            write(f"{side:7} {part:12} median {np.median(values):6.1f} ms   p95 {np.percentile(values, 95):6.1f} ms\n")
        both = np.array(times[f"{side} encode"]) + np.array(times[f"{side} six results"])
        write(
            f"{side:7} {'photo -> six':12} median {np.median(both):6.1f} ms   p95 {np.percentile(both, 95):6.1f} ms\n"
        )


if __name__ == "__main__":
    main()
