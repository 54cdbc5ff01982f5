"""The page in a real browser: no console error, no request, nothing wider than the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import check_page
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import hostile, ordinary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("corpus", [ordinary, hostile, list], ids=["ordinary", "hostile", "empty"])
def test_loads_alone_and_fits(browser: Browser, make_run: Maker, corpus: Any) -> None:
    file = make_run(corpus(), report={"samples": 20}).report() / "report.html"
    check_page(browser, file)


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
