"""The page in a real browser, headless: painting, completing, choosing, and what a page from elsewhere can do (nothing).

It needs playwright and a Chromium: the one of `playwright install chromium`, or a system's own. Where CI is set, having none is a failure.
"""

from __future__ import annotations

import http.server
import io
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.picme_sdk.studio.conftest import Server

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP rebound.test 127.0.0.1",
]  # fmt: skip
CHELSEA = ROOT / "picme_sdk/samples/chelsea.jpg"


def unavailable(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI must not skip this")
    pytest.skip(f"{reason}: pip install playwright, then playwright install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        path = own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)
        if path is None:
            unavailable("there is no Chromium here")
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


class Page:
    """The studio in one tab, with what went wrong in it and what it asked for."""

    def __init__(self, browser: Any, studio: Server, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.tab = self.context.new_page()
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.tab.on("pageerror", lambda error: self.faults.append(str(error)))
        self.tab.on("console", lambda message: message.type == "error" and self.faults.append(message.text))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(studio.address)
        self.tab.locator("#empty").wait_for(state="hidden")

    def at(self, x: float, y: float) -> tuple[float, float]:
        frame = self.tab.locator("#view").bounding_box()
        return frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]

    def drag(self, *points: tuple[float, float]) -> None:
        self.tab.mouse.move(*self.at(*points[0]))
        self.tab.mouse.down()
        for point in points[1:]:
            self.tab.mouse.move(*self.at(*point), steps=4)
        self.tab.mouse.up()
        self.tab.mouse.move(5, 5)

    def inked(self, x: float, y: float) -> bool:
        """Whether a place of the photo shows as hole: its colour is far more red than green."""
        self.tab.evaluate("() => new Promise(requestAnimationFrame)")
        self.tab.evaluate("() => new Promise(requestAnimationFrame)")
        picture = Image.open(io.BytesIO(self.tab.locator("#view").screenshot())).convert("RGB")
        red, green, blue = picture.getpixel((int(x * picture.width), int(y * picture.height)))  # type: ignore[misc]
        return bool(red - green > 90 and blue > green)

    def says(self, words: str) -> None:
        self.tab.locator("#status", has_text=re.compile(words)).wait_for(timeout=20_000)

    def after(self, act: Callable[[], object], words: str) -> None:
        """Do something and wait for what the page says of it, not of something earlier in the same words."""
        self.tab.evaluate("document.querySelector('#status').textContent = ''")
        act()
        self.says(words)

    def complete(self, n: int = 4) -> None:
        self.tab.fill("#n", str(n))
        self.after(lambda: self.tab.click("#complete"), f"^{n} results? in")

    def count(self, selector: str) -> int:
        return int(self.tab.locator(selector).count())


@pytest.fixture
def page(browser: Any, studio: Server) -> Iterator[Page]:
    opened = Page(browser, studio)
    yield opened
    opened.context.close()
    assert opened.faults == []
    assert {url for url in opened.requests if not url.startswith((f"http://{studio.own}/", "blob:"))} == set()


HOLE = ((0.4, 0.4), (0.6, 0.4), (0.6, 0.55), (0.4, 0.55))


def test_paint_erase_undo_redo_clear(page: Page) -> None:
    tab = page.tab
    assert tab.locator("#complete").is_disabled()
    page.drag(*HOLE)
    assert page.inked(0.5, 0.4)
    assert not page.inked(0.2, 0.8)
    assert tab.locator("#complete").is_enabled()
    tab.keyboard.press("e")
    page.drag((0.5, 0.3), (0.5, 0.5))
    assert not page.inked(0.5, 0.4)
    assert page.inked(0.6, 0.48)
    tab.keyboard.press("Control+z")
    assert page.inked(0.5, 0.4)
    tab.click("#undo")
    assert not page.inked(0.6, 0.48)
    assert tab.locator("#undo").is_disabled()
    assert tab.locator("#complete").is_disabled()
    tab.keyboard.press("Control+Shift+z")
    assert page.inked(0.5, 0.4)
    tab.click("#clear")
    assert not page.inked(0.5, 0.4)
    tab.click("#undo")
    assert page.inked(0.5, 0.4)


def test_shift_draws_a_straight_line(page: Page) -> None:
    page.drag((0.2, 0.2), (0.2, 0.2))
    page.tab.keyboard.down("Shift")
    page.drag((0.8, 0.8), (0.8, 0.8))
    page.tab.keyboard.up("Shift")
    assert page.inked(0.5, 0.5)
    page.tab.click("#undo")
    assert not page.inked(0.5, 0.5)
    assert page.inked(0.2, 0.2)


def test_paint_by_keyboard(page: Page) -> None:
    page.tab.focus("#view")
    for key in (" ", *["ArrowRight"] * 8, " ", *["ArrowDown"] * 12):
        page.tab.keyboard.press(key)
    assert page.inked(0.52, 0.5)
    assert not page.inked(0.5, 0.85)
    page.tab.keyboard.press("Control+Enter")
    page.says("results in")


def test_brush_size(page: Page) -> None:
    before = float(page.tab.input_value("#size"))
    page.tab.keyboard.press("]")
    assert float(page.tab.input_value("#size")) > before
    page.tab.keyboard.press("[")
    page.tab.keyboard.press("[")
    assert float(page.tab.input_value("#size")) < before


def test_load_a_mask(page: Page, tmp_path: Path) -> None:
    with Image.open(CHELSEA) as photo:
        mask = Image.new("L", photo.size)
    mask.paste(255, (mask.width // 4, mask.height // 4, mask.width // 2, mask.height // 2))
    mask.save(tmp_path / "mask.png")
    page.tab.set_input_files("#mask-file", tmp_path / "mask.png")
    page.tab.locator("#complete:enabled").wait_for()
    assert page.inked(0.3, 0.3)
    assert not page.inked(0.6, 0.6)
    page.complete(2)
    mask.resize((50, 50)).save(tmp_path / "other.png")
    page.tab.set_input_files("#mask-file", tmp_path / "other.png")
    page.says("The mask is 50x50")


def test_complete_shows_ideas_weights_and_log_densities(page: Page) -> None:
    page.drag(*HOLE)
    page.complete(6)
    assert page.count("#results .thumb") == 6
    label = page.tab.locator("#results .thumb").first.get_attribute("aria-label")
    assert re.fullmatch(r"Result 1: idea \d, weight [\d.]+ %, log-density -?[\d.]+", label)
    assert page.count("#bars button") == 4
    assert re.match(r"About [1-4]\.\d equally likely answers", page.tab.inner_text("#ambiguity"))


def test_variations_one_idea_blend_keep_and_history(page: Page) -> None:
    tab = page.tab
    page.drag(*HOLE)
    page.complete(4)
    tab.locator("#results .thumb").nth(1).click()
    chosen = tab.inner_text("#results .thumb[aria-pressed=true] span >> nth=0")
    idea = chosen.split()[1]
    tab.click("#keep")
    assert page.count("#kept .thumb") == 1
    page.after(lambda: tab.click("#more"), "^4 results in")
    assert tab.inner_text("#made-title") == f"More like idea {idea}"
    tab.locator("#results .thumb").first.click()
    page.after(lambda: tab.click("#only"), "^4 results in")
    labels = tab.locator("#results .thumb").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert all(f"idea {idea}," in label for label in labels)
    tab.locator("#results .thumb").nth(0).click()
    tab.click("#blend")
    page.after(lambda: tab.locator("#results .thumb").nth(2).click(), "^6 results in")
    page.after(lambda: tab.click("#bars button >> nth=3"), "^4 results in")
    assert tab.inner_text("#made-title") == "Only idea 3"
    assert page.count("#history .thumb") == 4 + 4 + 4 + 6 + 4
    tab.click("#past summary")
    page.after(lambda: tab.locator("#history .thumb").last.click(), "Replayed")
    token = tab.inner_text("#token")
    tab.click("#clear")
    page.drag((0.1, 0.1), (0.2, 0.2))
    page.after(lambda: tab.locator("#history .thumb").last.click(), "Replayed")
    assert tab.inner_text("#token") == token
    tab.keyboard.press("Escape")
    assert page.inked(0.5, 0.4), "the hole came back with the result"
    tab.keyboard.press("Control+z")
    assert page.inked(0.15, 0.15), "and undo brings back the hole that it replaced"


def test_before_and_after(page: Page) -> None:
    page.drag(*HOLE)
    page.complete(1)
    page.tab.locator("#results .thumb").click()
    view = page.tab.locator("#view")
    page.tab.fill("#split", "0")
    after = view.screenshot()
    page.tab.fill("#split", "100")
    before = view.screenshot()
    assert after != before
    page.drag((0.99, 0.9), (0.3, 0.9))
    assert abs(float(page.tab.input_value("#split")) - 30) < 3
    page.tab.focus("#view")
    page.tab.keyboard.press("ArrowRight")
    assert abs(float(page.tab.input_value("#split")) - 35) < 3


def test_download_has_the_token_and_the_untouched_photo(page: Page, tmp_path: Path) -> None:
    page.drag(*HOLE)
    page.complete(2)
    page.tab.locator("#results .thumb").nth(1).click()
    with page.tab.expect_download() as waiting:
        page.tab.click("#download")
    waiting.value.save_as(tmp_path / "result.png")
    with Image.open(tmp_path / "result.png") as picture, Image.open(CHELSEA) as photo:
        assert picture.text["picme-token"] == page.tab.inner_text("#token")  # type: ignore[attr-defined]
        changed = (np.asarray(picture) != np.asarray(photo.convert("RGB"))).any(-1)
    ys, xs = np.nonzero(changed)
    height, width = changed.shape
    assert 0.3 < xs.min() / width < xs.max() / width < 0.7
    assert 0.25 < ys.min() / height < ys.max() / height < 0.7


def test_replay_a_token(page: Page) -> None:
    page.drag(*HOLE)
    page.complete(1)
    page.tab.locator("#results .thumb").click()
    token = page.tab.inner_text("#token")
    page.tab.click("#past summary")
    page.tab.fill("#replay-token", token)
    page.after(lambda: page.tab.click("#replay button"), "^1 result in")
    page.tab.locator("#results .thumb").click()
    assert page.tab.inner_text("#token") == token
    page.tab.fill("#replay-token", "nonsense")
    page.tab.click("#replay button")
    page.says("a token as a result carries it")
    page.faults.clear()  # the browser reports the 400 too


def test_a_forgotten_scene_is_made_again(page: Page, studio: Server) -> None:
    page.drag(*HOLE)
    page.complete(1)
    for _ in range(8):
        studio.scene()
    page.complete(2)
    page.faults.clear()  # the browser reports the 404 too


def test_drop_a_photo(page: Page) -> None:
    page.drag(*HOLE)
    page.tab.evaluate(
        """async () => {
            const canvas = new OffscreenCanvas(80, 40);
            canvas.getContext("2d").fillRect(0, 0, 80, 40);
            const data = new DataTransfer();
            data.items.add(new File([await canvas.convertToBlob()], "other.png", { type: "image/png" }));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }"""
    )
    page.tab.locator("#complete:disabled").wait_for()
    frame = page.tab.locator("#view").bounding_box()
    assert abs(frame["width"] / frame["height"] - 2) < 0.05


def test_touch_narrow_and_dark(browser: Any, studio: Server) -> None:
    phone: dict[str, Any] = {
        "viewport": {"width": 360, "height": 740},
        "has_touch": True,
        "is_mobile": True,
        "color_scheme": "dark",
    }
    page = Page(browser, studio, **phone)
    try:
        page.tab.touchscreen.tap(*page.at(0.5, 0.5))
        page.tab.locator("#complete:enabled").wait_for()
        page.complete(2)
        page.tab.locator("#results .thumb").first.tap()
        assert page.tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        background = page.tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert all(int(part) < 60 for part in re.findall(r"\d+", background)[:3])
        assert page.faults == []
    finally:
        page.context.close()


def test_without_the_token_the_page_says_so(browser: Any, studio: Server) -> None:
    tab = browser.new_page()
    try:
        tab.goto(f"http://{studio.own}/")
        tab.locator("#status", has_text="does not know its token").wait_for()
    finally:
        tab.close()


def test_a_rebound_name_is_refused(browser: Any, studio: Server) -> None:
    tab = browser.new_page()
    try:
        answer = tab.goto(f"http://rebound.test:{studio.port}/#token={studio.token}")
        assert answer.status == 421
    finally:
        tab.close()


class Evil(http.server.BaseHTTPRequestHandler):
    """Another server on this machine: same name, other port, so another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><iframe id=frame></iframe>")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_from_elsewhere_gets_nothing(browser: Any, studio: Server, elsewhere: str) -> None:
    scenes = studio.call("GET", "/api/health").json()["scenes"]
    tab = browser.new_page()
    statuses: dict[str, int] = {}
    tab.on("response", lambda answer: statuses.setdefault(f"{answer.request.method} {answer.url}", answer.status))
    base = f"http://{studio.own}"
    asks = """async ([url, options]) => {
        try { const answer = await fetch(url, options); return answer.type; } catch (error) { return error.name; }
    }"""
    bearer = {"Authorization": f"Bearer {studio.token}", "Content-Type": "application/json"}
    try:
        tab.goto(elsewhere)
        assert tab.evaluate(asks, [f"{base}/api/health", {"headers": bearer}]) == "TypeError"
        assert tab.evaluate(asks, [f"{base}/api/scenes", {"method": "POST", "headers": bearer, "body": "{}"}]) == "TypeError"  # fmt: skip
        plain = {"method": "POST", "mode": "no-cors", "body": "{}"}
        assert tab.evaluate(asks, [f"{base}/api/scenes", plain]) in ("opaque", "TypeError")
        assert statuses.get(f"POST {base}/api/scenes", 403) == 403
        assert tab.evaluate(asks, [f"{base}/", {}]) == "TypeError", "not even the page can be read"
        tab.evaluate("url => { document.getElementById('frame').src = url; }", f"{base}/")
        tab.wait_for_timeout(300)
        assert all("PICME" not in frame.title() for frame in tab.frames if frame.url.startswith(base))
        form = "url => { const f = document.createElement('form'); f.method = 'POST'; f.action = url; document.body.append(f); f.submit(); }"
        with tab.expect_navigation() as waiting:
            tab.evaluate(form, f"{base}/api/complete")
        assert waiting.value.status == 403
    finally:
        tab.close()
    assert studio.call("GET", "/api/health").json()["scenes"] == scenes
