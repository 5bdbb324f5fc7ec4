"""All targets one after the other, an equal share of the time each: `python -m fuzz.run --seconds 60`, which is `make fuzz`.

What the fuzzers learn is kept in build/fuzz/corpus and used by the next run; inputs that fail are written to build/fuzz/findings, and the exit
code is 1. See docs/develop/fuzzing.md for what to do with them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "fuzz" / "corpus"
WORK = ROOT / "build" / "fuzz"
PYTHON = ("token", "manifest", "mask", "image", "http")
NATIVE = ("manifest", "token", "pixels", "contract")
LIMITS = ("-timeout=25", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1")


@dataclass(frozen=True)
class Target:
    """One fuzzer: its name on the command line, its seeds, and how it is started."""

    name: str
    corpus: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    executions: int
    per_second: int
    findings: int


def targets() -> list[Target]:
    python = [Target(name, name, (sys.executable, "-m", "fuzz.one", name)) for name in PYTHON]
    built = ROOT / "build" / "cpp-fuzz" / "fuzz"
    native = [Target(f"cpp-{name}", name, (str(built / f"fuzz_{name}"),)) for name in NATIVE]
    missing = [target.name for target in native if not Path(target.command[0]).exists()]
    if missing:
        print(f"skipped, because they are not built: {', '.join(missing)}")
        if os.environ.get("CI"):
            sys.exit(1)
    return [*python, *(target for target in native if target.name not in missing)]


def environment() -> dict[str, str]:
    """The environment, with the model and the library for the fuzzer of the C contract: the local ones, unless others are named."""
    import onnxruntime

    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    own = {"PICME_TEST_BUNDLE": str(ROOT / "picme_sdk/models/pets256"), "PICME_ONNXRUNTIME": str(library)}
    return own | dict(os.environ)


def run(target: Target, seconds: int, executions: int) -> Outcome:
    learnt, findings = WORK / "corpus" / target.name, WORK / "findings"
    learnt.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    log = WORK / f"{target.name}.log"
    options = (
        *LIMITS,
        f"-max_total_time={seconds}",
        f"-runs={executions}",
        f"-artifact_prefix={findings}/{target.name}-",
    )
    with log.open("w") as out:
        done = subprocess.run(  # noqa: S603
            [*target.command, *options, str(learnt), str(CORPUS / target.corpus)],
            cwd=ROOT,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    text = log.read_text(errors="replace")
    counts = [int(n) for n in re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)]
    rates = [int(n) for n in re.findall(r"stat::average_exec_per_sec:\s*(\d+)", text)]
    if done.returncode != 0 or not counts:
        print(
            f"{target.name} ended with {done.returncode}; its last lines, of {log.relative_to(ROOT)}:\n{text[-1500:]}"
        )
    return Outcome(sum(counts[-1:]), sum(rates[-1:]), int(done.returncode != 0 or not counts))


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--seconds", type=int, default=60, help="for all targets together")
    options.add_argument("--only", nargs="+", metavar="TARGET", help="some targets, such as token cpp-token")
    options.add_argument("--executions", type=int, default=-1, help="at most, of each target")
    asked = options.parse_args()
    chosen = [target for target in targets() if asked.only is None or target.name in asked.only]
    share = max(1, asked.seconds // max(1, len(chosen)))
    print(f"{'target':14} {'executions':>10} {'a second':>9} {'findings':>8}", flush=True)
    outcomes = []
    for target in chosen:
        outcome = run(target, share, asked.executions)
        outcomes.append(outcome)
        print(f"{target.name:14} {outcome.executions:10,} {outcome.per_second:9,} {outcome.findings:8}", flush=True)
    found = sum(outcome.findings for outcome in outcomes)
    print(f"{'all':14} {sum(outcome.executions for outcome in outcomes):10,} {'':9} {found:8}")
    return 1 if found or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
