"""The page's files: nothing from elsewhere, nothing inline, nothing that does not exist."""

import re
from html.parser import HTMLParser

import pytest

from tests.conftest import ROOT
from tests.picme_sdk.studio.conftest import Server

PAGE = ROOT / "picme_sdk" / "studio" / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def elements() -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed((PAGE / "index.html").read_text())
    return parser.found


def test_nothing_comes_from_elsewhere() -> None:
    for file in PAGE.iterdir():
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", file.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file.name


def test_nothing_is_inline(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    for tag, attributes in elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "script" or attributes.get("src")


def test_scripts_use_only_what_the_page_has(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r'\$\("([\w-]+)"\)', (PAGE / "studio.js").read_text())
    assert used
    assert set(used) <= set(ids)
    for script in SCRIPTS:
        for imported in re.findall(r'from "\./([\w.]+)"', script.read_text()):
            assert (PAGE / imported).is_file()


def test_every_control_has_a_name(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    text = (PAGE / "index.html").read_text()
    for tag, attributes in elements:
        if tag in ("input", "select", "canvas") and "aria-label" not in attributes:
            labelled = re.search(rf'<label[^>]*>[^<]*<{tag} id="{attributes["id"]}"', re.sub(r"\s+", " ", text))
            assert labelled, attributes


def test_every_file_is_served_with_its_kind(studio: Server) -> None:
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for file in PAGE.iterdir():
        answer = studio.call("GET", "/" if file.name == "index.html" else f"/{file.name}", authorization=None)
        assert answer.body == file.read_bytes()
        assert answer.headers["content-type"].split(";")[0] == kinds[file.suffix]
