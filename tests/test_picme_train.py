"""The second distribution, packages/picme-train: what its wheel holds, and that its commands run from it."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from picme_sdk import __version__
from tests.conftest import ROOT

PACKAGES = ("training", "evaluation", "export")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built from a copy of the sources, so that no build folder is left in the checkout."""
    where = tmp_path_factory.mktemp("train")
    for name in (*PACKAGES, "packages"):
        shutil.copytree(ROOT / name, where / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        "dist",
    ]
    subprocess.run([*command, "./packages/picme-train"], cwd=where, check=True, capture_output=True)  # fmt: skip
    (wheel,) = (where / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(where / "installed")
    return where / "installed"


def test_the_wheel_holds_all_sources_configurations_and_weights(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path for name in PACKAGES for path in (root / name).rglob("*"))
        return {p.relative_to(root).as_posix() for p in found if p.is_file() and "__pycache__" not in p.parts}

    assert files(installed) == files(ROOT)


def test_both_distributions_have_one_version(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert f"Version: {__version__}\n" in text
    assert set(re.findall(r"Requires-Dist: picme-sdk\[\w+\]==([\w.]+)", text)) == {__version__}


@pytest.mark.parametrize("module", ["training.train", "evaluation.evaluate", "export.to_trt"])
def test_commands_run_without_a_checkout(installed: Path, tmp_path: Path, module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
