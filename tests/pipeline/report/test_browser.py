"""The page in a real browser: no console error, no request, nothing wider than the window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import hostile, ordinary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


def _listen(page: Page, problems: list[str], requests: list[str]) -> None:
    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(message.text)

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))


@pytest.mark.parametrize("corpus", [ordinary, hostile, list], ids=["ordinary", "hostile", "empty"])
def test_loads_alone_and_fits(browser: Browser, make_run: Maker, corpus: Any) -> None:
    file = make_run(corpus(), report={"samples": 20}).report() / "report.html"
    for width, scheme in ((1400, "light"), (768, "dark"), (360, "light")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        problems: list[str] = []
        requests: list[str] = []
        _listen(page, problems, requests)
        page.goto(file.as_uri(), wait_until="load")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert problems == []
        assert requests == [file.as_uri()]
        assert wide[0] <= wide[1], f"{width} px: the page is {wide[0]} px wide"
        assert page.evaluate("document.scripts.length + document.images.length") == 0
        page.close()


def test_every_chart_is_named_and_inside_its_box(browser: Browser, make_run: Maker) -> None:
    """Text may not run out of its drawing: what a chart says must be readable at 360 px."""
    file = make_run(ordinary()).report() / "report.html"
    page = browser.new_page(viewport={"width": 360, "height": 900})
    page.goto(file.as_uri())
    unnamed = "[...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length"
    assert page.evaluate(unnamed) == 0
    outside = """[...document.querySelectorAll('svg.flow text, svg.chart text')].filter(t => {
        const box = t.closest('svg').getBoundingClientRect(), own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1;
    }).map(t => t.textContent)"""
    assert page.evaluate(outside) == []
    page.close()
