"""Two real runs compared: counts on paper, words of 80 columns, a page that fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.compare.answer import compare
from corpusmill.pipeline.inspect.compare.page import render
from corpusmill.pipeline.inspect.compare.runs import open_run
from corpusmill.pipeline.inspect.compare.words import show
from corpusmill.schemas.recipe import Recipe
from tests.browser import check_page
from tests.command_line import CliRunner
from tests.conftest import Serial, shared
from tests.pipeline.report.test_page import check

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RULES = "name: own\norigin: here\nrules:\n- {name: words_min, signal: gopher.word_count, at_least: 5}\n"
HOSTILE = "x<script>alert(1)</script>\u202e"


def run(folder: Path, name: str, web: list[str], books: list[str], **keys: Any) -> Path:
    """A run of ingest, filter by one rule, and redact."""
    (folder / "own.yaml").write_text(RULES)
    for source, texts in (("web", web), ("books", books)):
        lines = (json.dumps({"text": text, "id": f"{HOSTILE}{at}"}) for at, text in enumerate(texts))
        (folder / f"{source}.jsonl").write_text("\n".join(lines) + "\n")
    config: dict[str, Any] = {
        "name": name,
        "sources": {n: {"paths": [str(folder / f"{n}.jsonl")], "min_kept": 0} for n in ("web", "books")},
        "stages": ["ingest", "filter", "redact", "report"],
        "filter": {"rules": [str(folder / "own.yaml")], "language": None, "toxicity": None, "quality": None},
        "redact": {"replacement": "tag"},
    }
    recipe = Recipe.model_validate({**config, **keys})
    Run(recipe, Folder(folder / name), Serial()).execute()
    return folder / name


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a` and `b` of the same two sources: another threshold, one document more, addresses left as they are."""

    def make(folder: Path) -> None:
        web = [
            "one two three four five six",
            "one two three",
            "mail a.b@site.org now or never please, today or tomorrow",
            "seven " * 7,
        ]
        run(folder, "a", web, ["a b c d e f g h", "short"])
        limits = {"thresholds": {"own.words_min": 7}}
        config = {"rules": [str(folder / "own.yaml")], "language": None, "toxicity": None, "quality": None}
        redact = {"replacement": "tag", "kinds": ["ip"]}
        run(
            folder, "b", [*web, "eight " * 8], ["a b c d e f g h"], filter={**config, **limits}, redact=redact
        )

    return shared(tmp_path_factory, "compare", make)


@pytest.fixture
def answer(runs: Path) -> dict[str, Any]:
    return compare(open_run(str(runs / "a")), open_run(str(runs / "b")), Serial(), 2)


def test_what_entered_and_left(answer: dict[str, Any]) -> None:
    counts = answer["documents"]
    assert {k: counts[k] for k in ("a", "b", "both", "only_a", "only_b", "rewritten", "repeated_ids")} == {
        "a": 6, "b": 6, "both": 5, "only_a": 1, "only_b": 1, "rewritten": 1, "repeated_ids": 0,
    }  # fmt: skip
    assert answer["outcomes"]["kept"] == {"kept": 3, "removed": 1, "quarantined": 0, "absent": 0}
    [entered] = answer["entered"]["reasons"]
    assert (entered["outcome"], answer["entered"]["documents"]) == ("absent", 1)
    assert answer["entered"]["text_bytes"] == len("eight " * 8)
    [left] = answer["left"]["reasons"]
    assert (left["rule"], left["documents"], answer["left"]["sources"]) == ("own.words_min", 1, {"web": 1})


def test_rules_sources_and_recipe(answer: dict[str, Any]) -> None:
    [rule] = answer["rules"]
    assert {k: rule[k] for k in ("a", "b", "change", "took", "gave_back")} == {
        "a": 2, "b": 2, "change": 0, "took": 1, "gave_back": 0,
    }  # fmt: skip
    assert rule["threshold"] == {"a": 5.0, "b": 7.0}
    assert rule["sources"] == {"books": {"a": 1, "b": 0}, "web": {"a": 1, "b": 2}}
    rows = {row["source"]: row for row in answer["sources"]}
    assert (rows["web"]["a"]["kept"], rows["web"]["b"]["kept"], rows["web"]["rewritten"]) == (3, 3, 1)
    assert (rows["books"]["a"]["records"], rows["books"]["b"]["records"]) == (2, 1)
    assert answer["recipe"]["filter.thresholds.own.words_min"] == {"a": 5.0, "b": 7}
    assert {row["stage"]: row["differs"] for row in answer["stages"]} == {
        "ingest": "input", "filter": "parameters", "redact": "parameters", "ledger": "input", "report": "input",
    }  # fmt: skip


def test_examples_come_from_both_ledgers(answer: dict[str, Any]) -> None:
    moves = {(m["a"]["outcome"], m["b"]["outcome"], m["rewritten"]): m for m in answer["moves"]}
    assert set(moves) == {
        ("kept", "removed", False), ("absent", "kept", False), ("removed", "absent", False), ("kept", "kept", True),
    }  # fmt: skip
    [one] = moves["kept", "removed", False]["examples"]
    assert (one["b"]["value"], one["b"]["threshold"], one["a"]["outcome"]) == (6.0, 7.0, "kept")
    assert one["a"]["locator"] == one["b"]["locator"] == "web.jsonl#0"
    assert "doc_id" in one and moves["removed", "absent", False]["examples"][0]["b"] is None


def test_ranges_change_nothing(runs: Path, answer: dict[str, Any]) -> None:
    again = compare(open_run(str(runs / "a")), open_run(str(runs / "b")), Serial(), 2, rows=1)
    assert again == answer
    same = compare(open_run(str(runs / "a")), open_run(str(runs / "a")), Serial())
    assert same["moves"] == [] and same["recipe"] == {} and same["documents"]["same_fate"] == 6
    assert "What differs" in render(same) and "stages that differ: none" in show(same)


def test_words_fit_a_terminal(runs: Path) -> None:
    result = CliRunner().invoke(
        build(), ["compare", str(runs / "a"), str(runs / "b")], catch_exceptions=False
    )
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "left (kept in A alone): 1 document, 27B of text" in lines
    assert any(line.startswith("1  kept -> removed by own.words_min (filter)") for line in lines)
    assert "\u202e" not in result.stdout


def test_command_writes_the_page_and_json(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep/compare.html"
    words = ["compare", str(runs / "a"), str(runs / "b"), "--html", str(file), "--json"]
    result = CliRunner().invoke(build(), words, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["kind"] == "corpusmill-compare-v1" and file.read_text() == render(found)
    check(file.read_text())


def test_no_run_is_a_mistake_of_the_user(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run there"):
        open_run(str(tmp_path))
    (tmp_path / "run").symlink_to(runs / "a")
    assert open_run(str(tmp_path / "run")).rows == 6


def many(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of runs with 300 sources, 400 rules and kinds of change, and names of hundreds of characters."""
    long = HOSTILE * 20
    sources = [{**answer["sources"][0], "source": f"{long}{n}"} for n in range(300)]
    by = {row["source"]: {"a": n, "b": 1} for n, row in enumerate(sources)}
    rules = [{**answer["rules"][0], "rule": f"set_{n}.{long}", "sources": by} for n in range(400)]
    examples = answer["moves"][0]["examples"] * 50
    moves = [
        {**answer["moves"][0], "sources": dict.fromkeys(by, 1), "examples": examples} for _ in range(400)
    ]
    recipe = {f"sources.s{n}.paths": {"a": [long] * 30, "b": None} for n in range(300)}
    return {**answer, "sources": sources, "rules": rules, "moves": moves, "recipe": recipe}


def test_the_page_is_small_however_much_differs(answer: dict[str, Any]) -> None:
    page = render(many(answer))
    assert len(page.encode()) < 2_000_000
    words = "".join(check(page).words)
    assert "And 240 more sources" in words and "And 340 more rules" in words
    assert max(map(len, show(many(answer)).splitlines())) <= 80


@pytest.mark.browser
def test_the_page_fits_a_phone(browser: Browser, answer: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "compare.html"
    file.write_text(render(many(answer)))
    check_page(browser, file)


def test_columns_hold_the_counts_of_a_large_corpus(answer: dict[str, Any]) -> None:
    """Of billions no digit is cut off at the end of the line: they are written shorter."""
    for row in answer["sources"]:
        for side in ("a", "b"):
            row[side] |= dict.fromkeys(("records", "kept"), 12345678901) | {"tokens": 9 * 10**12}
        row["b"]["kept"] = 345_678_901
    for row in answer["rules"]:
        row |= {
            "a": 12_345_678_901,
            "b": 345_678_901,
            "change": -12_000_000_000,
            "took": 10**10,
            "gave_back": 10**10,
        }
    lines = show(answer).splitlines()
    assert max(map(len, lines)) <= 80
    (web,) = [line for line in lines if line.startswith("web ")]
    assert web.split() == ["web", "12.3e9", "12.3e9", "12.3e9", "346M", "-12e9", "9T", "9T"]
    (rule,) = [line for line in lines if line.startswith("own.words_min")]
    assert rule.split() == ["own.words_min", "12.3e9", "346M", "-12e9", "10e9", "10e9"]


def test_passwords_in_urls_are_not_shown(runs: Path) -> None:
    a = replace(open_run(str(runs / "a")), url="https://me:secret@host/run")
    found = compare(a, a, Serial(), 0)
    assert found["a"]["run"] == "https://***@host/run" and "secret" not in render(found) + show(found)
