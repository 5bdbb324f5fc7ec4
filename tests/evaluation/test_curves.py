import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.curves import read, smoothed
from tests.conftest import ROOT, read_image


def run_of(folder: Path, images: list[int]) -> Path:
    folder.mkdir()
    valid = {"rebuilt_l1": 0.1, "best_of_six_l1": 0.1, "pair_l1": 0.05, "kl": 7.0, "wins": [0.4, 0.6]}
    lines = [{"images": n, "discriminator": 0.2, "adversarial": 0.4} for n in images]
    lines += [{"images": images[-1], "valid": valid}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_are_counted_through(tmp_path: Path) -> None:
    lines, joints = read([run_of(tmp_path / "a", [8, 16]), run_of(tmp_path / "b", [8, 24])])
    assert [line["images"] for line in lines] == [8, 16, 16, 24, 40, 40]
    assert joints == [16]


def test_the_running_average_follows() -> None:
    assert smoothed([1.0, 1.0]) == [1.0, 1.0]
    assert smoothed([0.0, 1.0]) == pytest.approx([0.0, 0.1])


def test_the_command_draws_and_never_overwrites(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "evaluation/curves.py"), str(run_of(tmp_path / "a", [8, 16])), "--out"]
    out = tmp_path / "curves.png"
    assert subprocess.run([*command, str(out)], timeout=60).returncode == 0
    assert read_image(out).size == (880, 480)
    again = subprocess.run([*command, str(out)], capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    nothing = subprocess.run([*command[:2], str(tmp_path / "none"), "--out", str(tmp_path / "x.png")], capture_output=True, text=True, timeout=60)  # fmt: skip
    assert (nothing.returncode, "expected" in nothing.stderr) == (2, True)
