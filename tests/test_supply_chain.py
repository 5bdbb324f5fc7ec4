"""What is installed: the lock against pyproject.toml, the known advisories and the imports. Offline; `make audit` asks a database."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements.lock import closure, own
from tests.conftest import ROOT

FOLDERS = (
    "picme_sdk",
    "training",
    "evaluation",
    "export",
    "benchmarks",
    "fuzz",
    "requirements",
    "tests",
    "integrations",
)
OURS = {*FOLDERS, "picme"}
# Imported only where somebody has them, and never installed by CI: GPU packages, and what the hosts of the plug-ins bring along.
OPTIONAL = {"tensorrt", "onnxruntime_ep_nv_tensorrt_rtx", "pycuda", "krita", "gi", "tomli", "PyQt5", "bridge"}


def pins(path: Path) -> dict[str, Requirement]:
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return {canonicalize_name(each.name): each for each in map(Requirement, filter(None, lines))}


LOCK = pins(ROOT / "requirements" / "python3.11.lock")
VERSIONS = {name: next(iter(each.specifier)).version for name, each in LOCK.items()}


def test_the_lock_is_exact_and_names_no_place() -> None:
    assert len(LOCK) > 50
    for line in (ROOT / "requirements" / "python3.11.lock").read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), line


def test_the_lock_satisfies_pyproject() -> None:
    for wanted in own():
        name = canonicalize_name(wanted.name)
        assert name in VERSIONS, name
        assert wanted.specifier.contains(VERSIONS[name], prereleases=True), wanted


def test_the_lock_is_newer_than_the_known_advisories() -> None:
    advisories = pins(ROOT / "requirements" / "advisories.txt")
    assert {"pillow", "starlette", "onnx"} <= advisories.keys()
    for name, floor in advisories.items():
        assert floor.specifier.contains(VERSIONS[name]), floor


def test_nothing_that_is_needed_is_missing_from_the_lock() -> None:
    """Of the extra `dev`, which is what tests run with; on another Python a dependency may have others."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the lock is for Python 3.11")
    assert set(closure(own(["dev"]), set())) <= VERSIONS.keys()


def test_everything_that_is_imported_is_locked() -> None:
    installed = packages_distributions()
    unknown = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            for top in {module.split(".")[0] for module in modules} - sys.stdlib_module_names - OURS - OPTIONAL:
                if not {canonicalize_name(name) for name in installed.get(top, [top])} & VERSIONS.keys():
                    unknown.add((top, path.relative_to(ROOT).as_posix()))
    assert not unknown
