"""What the top of the page warns of."""

from __future__ import annotations

from typing import Any

from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.made import Doc

RULE = ("filter", "quality.words")


def warned(make_run: Maker, docs: list[Doc], least: float = 0.01, **sources: Any) -> list[dict[str, Any]]:
    config = {name: {"paths": ["x"], "min_kept": least} for name in {doc.source for doc in docs}}
    found: list[dict[str, Any]] = make_run([docs], sources={**config, **sources}).figures()["warnings"]
    return found


def some(source: str, gone: int, of: int, why: tuple[str, str] = RULE) -> list[Doc]:
    return [Doc(f"{source}#{n}", f"text {n}", source, gone=why if n < gone else None) for n in range(of)]


def test_nothing_unusual(make_run: Maker) -> None:
    assert warned(make_run, [*some("web", 9, 20), *some("few", 10, 19)]) == []


def test_a_source_that_delivered_nothing(make_run: Maker) -> None:
    [one] = warned(make_run, some("web", 0, 3), silent={"paths": ["nowhere"]})
    assert (one["kind"], one["source"], one["of"]) == ("nothing", "silent", 0)


def test_a_source_of_which_one_stage_took_most(make_run: Maker) -> None:
    docs = [*some("web", 12, 20), *some("books", 20, 25, ("dedup", "dedup.exact"))]
    docs += [Doc("web#more", "t", gone=("filter", "quality.other"))]
    first, second = warned(make_run, docs)
    assert (first["source"], first["stage"], first["rule"], first["documents"], first["of"]) == (
        "books", "dedup", "dedup.exact", 20, 25,
    )  # fmt: skip
    assert (second["source"], second["rule"], second["by_rule"], second["documents"]) == (
        "web",
        RULE[1],
        12,
        13,
    )
    assert "most of it by quality.words (12)" in second["message"]


def test_what_ingest_leaves_out_is_no_loss_but_what_it_cannot_read_is(make_run: Maker) -> None:
    assert warned(make_run, some("wiki", 18, 20, ("ingest", "skip.redirect"))) == []
    [one] = warned(make_run, some("wiki", 18, 20, ("ingest", "malformed_json")))
    assert (one["kind"], one["stage"], one["rule"]) == ("stage", "ingest", "malformed_json")


def test_an_emptied_source(make_run: Maker) -> None:
    """Allowed by `min_kept: 0`, or by stages each of which kept enough."""
    docs = [*some("web", 3, 3), *some("books", 0, 3)]
    [one] = warned(make_run, docs, 0)
    assert (one["kind"], one["source"], one["documents"], one["rule"]) == ("emptied", "web", 3, RULE[1])
    step = [*some("web", 10, 19), *some("rest", 0, 30)]
    for doc in step[10:18]:
        doc.gone = ("dedup", "dedup.exact")
    [two] = warned(make_run, step, 0.1)
    assert (two["kind"], two["documents"], two["of"]) == ("emptied", 18, 19)


def test_an_alarm_is_not_repeated(make_run: Maker) -> None:
    """What ends the run has an alarm of its own."""
    made = make_run([[*some("web", 3, 3), *some("books", 0, 3)]])
    figures = made.figures()
    assert [alarm["source"] for alarm in figures["alarms"]] == ["web"] and figures["warnings"] == []


def test_they_stand_at_the_top(make_run: Maker) -> None:
    many = {f"silent{n:02}": {"paths": ["nowhere"]} for n in range(20)}
    made = make_run([[*some("web", 20, 25), *some("books", 0, 3)]], sources={
        "web": {"paths": ["x"]}, "books": {"paths": ["x"]}, **many,
    })  # fmt: skip
    page = (made.report() / "report.html").read_text()
    top = page[: page.index('class="tiles"')]
    assert "silent00 delivered nothing." in top and top.count('role="alert"') == 8
    assert "13 more warnings are in report.json" in top
