"""The page in a real browser: it draws, fits, answers the pointer, and comes back to its place when it loads again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from corpusmill.common.storage import Folder
from corpusmill.train.log.dashboard import PAGE, write
from tests.browser import listen
from tests.train.log.made import JOURNAL, make_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
TOP = "document.getElementById('plot-1-0').getBoundingClientRect().top"
OUTSIDE = """[...document.querySelectorAll('.chart svg text')].filter(t => {
    const box = t.closest('svg').getBoundingClientRect(), own = t.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1;
}).map(t => t.textContent)"""


def opened(
    browser: Browser, run: Folder, width: int = 1400, **options: Any
) -> tuple[Page, list[str], list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    problems: list[str] = []
    requests: list[str] = []
    listen(page, problems, requests)
    page.goto(Path(run.url, PAGE).as_uri(), wait_until="load")
    return page, problems, requests


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
@pytest.mark.parametrize("kind", ["ordinary", "hostile", "empty", "one row"])
def test_it_loads_alone_draws_and_fits(
    browser: Browser, tmp_path: Path, kind: str, width: int, scheme: str
) -> None:
    run = Folder(tmp_path)
    names = (
        "</script><script>document.title='owned'</script>",
        "<img src=x onerror=document.title='owned'>",
        "W" * 90,
    )
    long = [{**JOURNAL[1], "why": f"{name} and " * 20, "documents": [name] * 9} for name in names]
    made: dict[str, Any] = {
        "ordinary": {"rows": 300, "layers": 12}, "hostile": {"rows": 20, "sources": names, "journal": long},
        "empty": {"rows": 0, "journal": []}, "one row": {"rows": 1},
    }[kind]  # fmt: skip
    config = make_run(run, **made)
    write(config, run)
    page, problems, requests = opened(browser, run, width, color_scheme=scheme)
    assert problems == [] and requests == [Path(run.url, PAGE).as_uri()] and page.title() == "made: training"
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]
    plots = page.locator("figure.plot")
    assert plots.count() == (0 if kind == "empty" else 17)
    assert page.locator("figure.plot .chart svg[aria-label]").count() == plots.count()
    for number in range(plots.count()):
        assert "NaN" not in plots.nth(number).inner_html()
        assert plots.nth(number).locator("path.line, circle").count() >= 1
    assert page.evaluate(OUTSIDE) == []
    page.close()


def test_values_follow_the_pointer_in_all_plots(browser: Browser, tmp_path: Path) -> None:
    run = Folder(tmp_path)
    write(make_run(run, rows=400), run)
    page, problems, _ = opened(browser, run)
    chart, value = page.locator("#plot-0-0 .chart svg"), page.locator("#plot-1-0 .legend b").first
    before = value.inner_text()
    box = chart.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 80)
    readout = page.locator("#plot-0-0 .said")
    expect(readout).to_have_text(re.compile(r"^step [\d,]+ · [\d.]+ M tokens$"))
    expect(value).not_to_have_text(before)
    mark = page.locator("#plot-0-0 .k-2 line").bounding_box()
    assert mark
    page.mouse.move(mark["x"] + 1, box["y"] + 80)
    expect(readout).to_contain_text("step 900: rollback to step 840, loss 7.913 (limit 4.021)")
    page.mouse.move(2, 2)
    expect(value).to_have_text(before)
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("step 1,600")
    assert problems == []
    page.close()


def test_zoom_axis_and_lines_are_the_reader_s(browser: Browser, tmp_path: Path) -> None:
    run = Folder(tmp_path)
    write(make_run(run, rows=400), run)
    page, problems, _ = opened(browser, run)
    box = page.locator("#plot-0-1 .chart svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 150, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 80, steps=4)
    page.mouse.up()
    assert page.locator("#unzoom").is_visible()
    ticks = page.locator("#plot-0-0 .chart svg .tick").all_text_contents()
    assert "2 k" not in ticks
    page.locator("#unzoom").click()
    assert "2 k" in page.locator("#plot-0-0 .chart svg .tick").all_text_contents()
    log = page.locator("#plot-0-0 button.log")
    assert log.get_attribute("aria-pressed") == "true"
    log.click()
    assert log.get_attribute("aria-pressed") == "false"
    page.locator("#plot-0-1 .legend button").first.click()
    assert page.locator("#plot-0-1 path.line").count() == 2
    assert problems == []
    page.close()


def test_a_live_page_takes_up_new_rows_where_the_reader_is(browser: Browser, tmp_path: Path) -> None:
    run = Folder(tmp_path)
    write(make_run(run, rows=50), run, live=1)
    page, problems, _ = opened(browser, run)
    page.evaluate("scrollTo(0, 700)")
    seen = page.evaluate(TOP)
    assert "1,600" in page.locator("header").inner_text()
    write(make_run(run, rows=60, done=True), run)
    expect(page.locator("header")).to_contain_text("Done: 2,000 steps")
    page.wait_for_load_state("load")
    assert abs(page.evaluate(TOP) - seen) < 10  # a tile more in the header may move it by a line
    assert problems == []
    page.close()
