"""The page in a real browser: no console error, no request, nothing wider than the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import check_page, listen
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import hostile, ordinary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("corpus", [ordinary, hostile, list], ids=["ordinary", "hostile", "empty"])
def test_loads_alone_and_fits(browser: Browser, make_run: Maker, corpus: Any) -> None:
    file = make_run(corpus(), report={"samples": 20}).report() / "report.html"
    check_page(browser, file, scripts=1)


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


def test_a_document_is_found_on_the_page_or_its_command_is_given(browser: Browser, make_run: Maker) -> None:
    made = make_run(ordinary())
    file, near = made.report() / "report.html", made.figures()["samples"]["near"][0]["removed"][0]
    page = browser.new_page()
    problems: list[str] = []
    listen(page, problems, [])
    page.goto(file.as_uri())
    page.fill("#wanted", near["doc_id"][:9].upper())
    hits = page.locator("#found button")
    assert hits.all_text_contents()[0].startswith(f"{near['doc_id'][:12]}… in Near thresholds: quality.words")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    hits.first.click()
    assert page.locator(".hit").count() == 1 and page.locator(".hit").is_visible()
    assert near["text"][:5] in page.locator(".hit").inner_text()

    page.fill("#wanted", near["locator"])  # a part of what stands beside an id
    assert page.locator("#found button").count() >= 1
    page.fill("#wanted", "it's not here; rm -rf /")
    assert page.locator("#found button").count() == 0
    assert page.locator("#found code").inner_text() == "corpusmill why 'it'\\''s not here; rm -rf /' --run ."
    page.fill("#wanted", "<img src=x onerror=alert(1)>")
    assert page.locator("#found img").count() == 0

    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.locator("a[data-id]").last.click()  # an id of the page fills the search
    assert page.input_value("#wanted") == page.locator("a[data-id]").last.get_attribute("data-id")
    assert problems == [] and page.url == file.as_uri()
    page.close()


def test_the_policy_lets_no_other_script_run(browser: Browser, make_run: Maker) -> None:
    file = make_run(ordinary()).report() / "report.html"
    file.write_text(file.read_text().replace("</main>", "</main><script>document.title = 'other'</script>"))
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.title() == "made: corpus report"
    page.close()
