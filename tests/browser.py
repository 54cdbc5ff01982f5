"""Pages in a real browser: console messages, network requests, and their width."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=60_000)  # of a busy machine
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=180_000)
        yield running
        running.close()


def listen(page: Page, problems: list[str], requests: list[str]) -> None:
    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(message.text)

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))


def check_page(browser: Browser, file: Path, scripts: int = 0) -> None:
    """Loads without requests or console messages, with so many scripts of its own, and fits: on a wide screen, a tablet and a
    phone, with every fold open."""
    for width, scheme in ((1400, "light"), (768, "dark"), (360, "light")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        problems: list[str] = []
        requests: list[str] = []
        listen(page, problems, requests)
        page.goto(file.as_uri(), wait_until="load")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert problems == []
        assert requests == [file.as_uri()]
        assert wide[0] <= wide[1], f"{width} px: the page is {wide[0]} px wide"
        assert page.evaluate("document.scripts.length + document.images.length") == scripts
        page.close()
