"""Plans fit into 80 columns, from a few bytes to petabytes; planned and actual stand beside each other."""

from __future__ import annotations

import pytest

from corpusmill.pipeline.engine.planning import page
from corpusmill.pipeline.engine.planning.text import beside, brief, show
from corpusmill.schemas.manifest import Figures, StageResources
from tests.pipeline.engine.planning.test_estimate import planned


@pytest.mark.parametrize("gigabytes", [0.00001, 1, 30_000, 10_000_000])
def test_a_plan_fits_into_80_columns(gigabytes: float) -> None:
    found = planned(gigabytes, 500)
    for text in (show(found), show(found, steps=True), brief(found)):
        assert max(map(len, text.splitlines())) <= 80, text
    assert "bottleneck" in show(found) and found.bottleneck in show(found)


def figures(times: float) -> Figures:
    return Figures(
        tasks=3, seconds=times, cpu_seconds=2 * times, worker_bytes=5e8 * times, driver_bytes=2e8, written_bytes=1e9 * times
    )  # fmt: skip


def test_planned_and_actual_stand_beside_each_other() -> None:
    text = beside(
        {
            "ingest": StageResources(planned=figures(60), actual=figures(90)),
            "mine": StageResources(actual=figures(1)),
        }
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == [
        "ingest",
        *["1min", "1.5min", "2min", "3min", "30GB", "45GB", "200MB", "200MB", "60GB", "90GB"],
    ]
    assert lines[3].split()[:3] == ["mine", "-", "1s"]  # a stage of a user's own
    assert lines[-1].split()[:3] == ["total", "-", "1.5min"]


def test_the_page_has_the_same_figures_and_escapes_names() -> None:
    made = page.render("<run>", {"ingest": StageResources(planned=figures(60), actual=figures(90))}).decode()
    assert "<run>" not in made and "&lt;run&gt;" in made
    assert "45\u00a0GB" in made and "90 s" in made and made.count("<tr") == 4
