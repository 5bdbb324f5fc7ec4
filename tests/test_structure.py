"""What holds for the source tree as a whole: no private name crosses a module, and the runtime's tests need no torch."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ("picme_sdk", "benchmarks", "fuzz", "export", "training", "evaluation")
# Public despite their underscore, or without a public twin.
ALLOWED = {
    "_asdict",  # collections.namedtuple documents it
    "_foreach_lerp_",  # torch: one kernel for all tensors; optimizers of torch use it
    "_exit",  # os
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


def defined_names(tree: ast.AST) -> set[str]:
    """Private names that a module defines itself, at any level."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        ):
            names.add(node.attr)
    return names


def foreign_private_names(source: str) -> Iterator[str]:
    """Private names that a module takes from another one."""
    tree = ast.parse(source)
    own = defined_names(tree) | ALLOWED
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"line {node.lineno}: {a.name}" for a in node.names if is_private(a.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue  # inherited
            yield f"line {node.lineno}: {node.attr}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_private_name_is_used_outside_its_module(folder: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := list(foreign_private_names(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import a\na._b", 1), ("from a import _b", 1), ("def f(x):\n    return x.y._z", 1),
        ("class C:\n    def f(self, other):\n        self._a = other._a", 0), ("_x = 1\nprint(_x, a.__doc__)", 0),
    ],
)  # fmt: skip
def test_the_rule_notices_what_it_should(source: str, count: int) -> None:
    assert len(list(foreign_private_names(source))) == count


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.split(".")[0])
    return roots


def test_the_runtime_and_its_tests_need_no_torch() -> None:
    heavy = {"torch", "training", "export"}
    files = [*(ROOT / "picme_sdk").rglob("*.py"), *(ROOT / "tests" / "picme_sdk").rglob("*.py")]
    assert {path.relative_to(ROOT).as_posix(): roots for path in files if (roots := imported_roots(path) & heavy)} == {}


def test_the_picture_of_the_flow_names_files_that_exist() -> None:
    picture = (ROOT / "docs" / "design.md").read_text().split("## One flow")[1].split("\n## ")[0]
    named = set(re.findall(r"[\w/]+\.py", picture))
    assert {"pipeline.py", "pixels/crops.py", "mixture/recipe.py", "pixels/seam.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / "picme_sdk" / name).is_file()] == []


@pytest.mark.parametrize("folder", ["pixels", "mixture", "bundle", "backends", "video", "cluster", "studio"])
def test_every_package_opens_with_its_modules(folder: str) -> None:
    package = ROOT / "picme_sdk" / folder
    listed = set(re.findall(r"^(\w+\.py)\b", ast.get_docstring(ast.parse((package / "__init__.py").read_text())), re.M))
    assert listed == {path.name for path in package.glob("*.py")} - {"__init__.py"}


def test_the_tiny_bundle_stays_tiny() -> None:
    files = [path for path in (ROOT / "tests" / "data" / "tiny").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < 300_000


def test_no_tracked_file_is_a_link() -> None:
    """A link to somewhere on one machine dangles on every other, and a linked environment would be shared between checkouts."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith("120000")] == []
