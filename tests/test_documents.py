"""What documents point at exists: relative links of every page, and every page that a file of the repository names."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z", *patterns], cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_every_relative_link_of_every_page_exists() -> None:
    pages = tracked("*.md")
    assert len(pages) > 15
    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists()
    ]
    assert not missing


def test_every_page_that_is_named_exists() -> None:
    """`docs/...` in comments, help texts and error messages."""
    files = [path for path in tracked() if path.suffix in (".py", ".md", ".toml", ".cpp", ".hpp", ".h", ".txt", ".json", "") and "corpus" not in path.parts]  # fmt: skip
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in re.findall(r"(?<![\w./-])docs/[\w./-]+\.md", file.read_text(errors="replace"))
        if not (ROOT / name).exists()
    ]
    assert not missing


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in tracked("docs/*.md") if page.name != "README.md"]
    assert not [page for page in pages if f"({page})" not in index]


@pytest.mark.parametrize("folder", ["training", "evaluation", "export"])
def test_the_tree_of_the_design_is_the_tree(folder: str) -> None:
    """docs/design.md lists the modules of each folder; what is said about them follows after several spaces."""
    text = (ROOT / "docs" / "design.md").read_text()
    (block,) = re.findall(rf"^    {folder}/ +(.*(?:\n {{17}}\S.*)*)", text, re.MULTILINE)
    listed = [name for line in block.splitlines() for name in re.split(r" {3,}", line.strip())[0].split()]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / folder).glob("*.py") if path.stem != "__init__")
