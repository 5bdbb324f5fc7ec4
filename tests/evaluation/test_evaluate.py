"""The command: once as a separate process from another working directory, as people use it, and then within this one, which is faster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evaluation.evaluate import main
from evaluation.tables import COLUMNS, PAPER_NOTE, shown
from tests.conftest import ROOT

EVALUATE = str(ROOT / "evaluation" / "evaluate.py")
PIXELS = {f"{metric}{kind}" for metric in ("psnr", "ssim", "mae") for kind in ("", "_best", "_of_mean")}
MINE = """
import numpy as np

def noise(photo, mask, n, seed):
    return list(np.random.default_rng(seed).integers(0, 256, (n, *photo.shape), dtype=np.uint8))

def truth(photo, mask, n, seed):
    return [photo]
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def evaluate(
    done: Path, faces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """The command in the folder of the first run, on the same pictures."""

    def run(*arguments: str) -> Ran:
        monkeypatch.delenv("PICME_LPIPS", raising=False)
        monkeypatch.chdir(done)
        monkeypatch.setattr(sys, "argv", ["evaluate", "--size", "32", "--data", str(faces), *arguments])
        return Ran(main(), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def done(faces: Path, bundle_folder: Path, lpips_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a bundle, a classical method and two callables, three results each."""
    where = tmp_path_factory.mktemp("evaluate")
    (where / "mine.py").write_text(MINE)
    methods = f"ours={bundle_folder},telea,noise=mine:noise,truth=mine:truth"
    command = [sys.executable, EVALUATE, "--size", "32", "--data", str(faces), "--methods", methods, "--out", "out",
               "--count", "5", "--samples", "3", "--lpips", str(lpips_file), "--pictures"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(where)}
    ran = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "written to out" in ran.stdout
    return where


@pytest.fixture(scope="module")
def report(done: Path) -> dict[str, Any]:
    return json.loads((done / "out/results.json").read_text())


def value(report: dict[str, Any], mask: str, method: str, key: str) -> float:
    return report["masks"][mask][method]["numbers"][key]["value"]


def test_every_method_has_every_number_that_it_can_have(report: dict[str, Any]) -> None:
    for mask in ("center", "random"):
        for name, results in (("ours", 3), ("noise", 3), ("telea", 1), ("truth", 1)):
            found = report["masks"][mask][name]
            assert found["results"] == results
            assert found["pictures"] == 5
            one = PIXELS | {"lpips", "lpips_best", "frechet_alexnet"}
            several = {"diversity", "diversity_hole", "div_frechet_alexnet"} if results > 1 else set()
            assert set(found["numbers"]) == one | several
            for estimate in found["numbers"].values():
                assert estimate["low"] <= estimate["value"] <= estimate["high"]


def test_numbers_order_methods_as_they_must(report: dict[str, Any]) -> None:
    for mask in ("center", "random"):
        assert value(report, mask, "truth", "psnr") == 100
        assert value(report, mask, "truth", "ssim") == pytest.approx(1)
        assert value(report, mask, "truth", "mae") == 0
        assert value(report, mask, "truth", "lpips") == pytest.approx(0, abs=1e-9)
        assert value(report, mask, "truth", "frechet_alexnet") == pytest.approx(0, abs=1e-9)
        assert value(report, mask, "telea", "psnr") > value(report, mask, "noise", "psnr")
        assert value(report, mask, "noise", "psnr_of_mean") > value(report, mask, "noise", "psnr_best")
        assert value(report, mask, "noise", "diversity") > value(report, mask, "ours", "diversity") > 0
        assert value(report, mask, "noise", "diversity_hole") > value(report, mask, "noise", "diversity")


def test_one_result_is_its_own_best_and_mean(report: dict[str, Any]) -> None:
    numbers = report["masks"]["center"]["telea"]["numbers"]
    for metric in ("psnr", "ssim", "mae"):
        assert numbers[f"{metric}_best"] == numbers[metric]
        assert numbers[f"{metric}_of_mean"] == pytest.approx(numbers[metric], rel=1e-6)


def test_nothing_is_called_fid_without_inception(done: Path, report: dict[str, Any]) -> None:
    keys = {key for methods in report["masks"].values() for m in methods.values() for key in m["numbers"]}
    assert not any("fid" in key for key in keys)
    ours = (done / "out/results.md").read_text().split("## What the paper reports")[0]
    assert "there is no FID" in ours
    assert "| FID" not in ours
    assert "DIV-FID" not in ours


def test_paper_s_numbers_are_marked_as_other_data(done: Path, report: dict[str, Any]) -> None:
    text = (done / "out/results.md").read_text()
    assert PAPER_NOTE in text
    assert "| FFHQ c | PICME | 27.551 | 0.937 | 0.0203 | 10.604 |" in text
    assert report["paper"]["note"] == PAPER_NOTE


def test_a_folder_of_results_scores_like_the_method_itself(
    evaluate: Callable[..., Ran], done: Path, lpips_file: Path, report: dict[str, Any]
) -> None:
    again = ("--methods", "again=out/pictures/ours", "--out", "again", "--count", "5", "--samples", "3")
    assert evaluate(*again, "--lpips", str(lpips_file)).code == 0
    numbers = json.loads((done / "again/results.json").read_text())["masks"]
    for mask in ("center", "random"):
        for key, estimate in report["masks"][mask]["ours"]["numbers"].items():
            assert numbers[mask]["again"]["numbers"][key] == pytest.approx(estimate, rel=1e-4)


def test_an_existing_folder_is_left_alone(evaluate: Callable[..., Ran], done: Path) -> None:
    before = (done / "out/results.json").read_bytes()
    ran = evaluate("--methods", "telea", "--out", "out")
    assert ran.code == 2
    assert "out exists | expected" in ran.err
    assert (done / "out/results.json").read_bytes() == before


def test_without_lpips_the_pixel_numbers_remain(evaluate: Callable[..., Ran], done: Path) -> None:
    ran = evaluate("--methods", "telea", "--masks", "center", "--count", "2", "--out", "plain")
    assert ran.code == 0, ran.err
    assert set(json.loads((done / "plain/results.json").read_text())["masks"]["center"]["telea"]["numbers"]) == PIXELS
    assert "No LPIPS weights" in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--methods", "nothing"], "method 'nothing'"),
        (["--methods", "telea", "--masks", "middle"], "masks 'middle'"),
        (["--methods", "telea", "--samples", "0"], "--samples 0"),
        (["--methods", "telea", "--size", "8"], "--size 8"),
        (["--methods", "telea", "--count", "0"], "--count 0"),
        (["--methods", "telea", "--lpips", "none.safetensors"], "none.safetensors"),
        (["--methods", "telea", "--inception", "mine.py"], "only its features make a FID"),
        (["--methods", "telea", "--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_clear_line_and_writes_nothing(
    evaluate: Callable[..., Ran], done: Path, arguments: list[str], says: str
) -> None:
    before = sorted(path.name for path in done.iterdir())
    ran = evaluate("--out", "bad", *arguments)
    assert ran.code == 2
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    assert says in lines[0]
    assert lines[0].count(" | ") == 2
    assert sorted(path.name for path in done.iterdir()) == before


def test_tables_show_intervals_and_gaps() -> None:
    assert shown({"value": 1.0, "low": 0.5, "high": 1.26}, 1) == "1.0 (0.5 to 1.3)"
    assert shown({"value": 1.0, "low": None, "high": None}, 2) == "1.00"
    assert shown(None, 2) == "-"
    assert len({key for key, _, _ in COLUMNS}) == len(COLUMNS)
