"""Training on two processes, one of which is killed: torchrun starts both again, and the run goes on from its checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.processes import descendants, end, title
from training.checkpoint import load_weights

# As docs/deploy/scale.md says: a store that is shared with torchrun's own still holds the addresses of the dead (pytorch issue 135712).
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
STEPS = 40
BATCH = 8


def test_a_killed_process_and_a_restart_from_the_checkpoint(tiny: Path, faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
        str(ROOT / "training/train.py"), "--config", str(tiny), "--data", str(faces), "--out", str(out),
        "--steps", str(STEPS), "--save-minutes", "0.03", "--log-steps", "1", "--resume",
    ]  # fmt: skip
    printed = tmp_path / "printed.txt"
    with open(printed, "w") as file:
        run = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=file, stderr=file, text=True)
    try:
        state, until = out / "last.state.safetensors", time.monotonic() + 60
        while not state.exists() and run.poll() is None:
            assert time.monotonic() < until, printed.read_text()
            time.sleep(0.02)
        workers = sorted(pid for pid in descendants(run.pid) if "training/train.py" in title(pid))
        assert len(workers) == 2, printed.read_text()
        os.kill(workers[1], signal.SIGKILL)
        reached = len((out / "metrics.jsonl").read_text().splitlines())
        assert run.wait(100) == 0, printed.read_text()
    finally:
        left = end(run, signal.SIGTERM)
    assert not left
    text = printed.read_text()
    assert "Signal 9" in text or "exitcode: -9" in text or "exitcode  : -9" in text, text
    progress = load_weights(out / "last.safetensors")[2]["progress"]
    assert (progress["step"], progress["images"]) == (STEPS, STEPS * BATCH)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "total" in line] == list(range(1, STEPS + 1)), "each step once"
    sys.stdout.write(
        f"killed one of two processes after {reached} lines; {progress['step']} steps, {progress['images']} images\n"
    )
