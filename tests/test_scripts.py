"""Scripts that run as files: from any working directory, with the checkout as the import root, and without an effect on whoever imports them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ("training", "evaluation", "export", "benchmarks")
ROOT_LINES = """
if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])
"""
SCRIPTS = [
    path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py")) if "sys.path" in path.read_text()
]


def test_all_scripts_begin_with_the_same_lines() -> None:
    assert len(SCRIPTS) > 10
    for script in SCRIPTS:
        text = script.read_text()
        assert text.count("sys.path") == 1, script
        assert text.count(ROOT_LINES) == 1, script
        before = text[: text.index(ROOT_LINES)]
        assert not re.search(rf"^(from|import) ({'|'.join(FOLDERS)}|picme_sdk)\b", before, re.MULTILINE), script


def test_importing_a_script_leaves_the_path_alone() -> None:
    modules = [f"{script.parent.name}.{script.stem}" for script in SCRIPTS if script.parent.name != "benchmarks"]
    code = f"import importlib, json, sys; before = list(sys.path); [importlib.import_module(m) for m in {modules}]; print(json.dumps(before == sys.path))"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("script", ["calibration", "curves", "faces", "figures"])
def test_evaluation_runs_from_any_folder(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "evaluation" / f"{script}.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
