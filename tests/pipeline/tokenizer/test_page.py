"""The tokenizer's part of the report: whatever a corpus holds is shown and not obeyed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpusmill.pipeline.report.page import environment
from tests.pipeline.report.test_page import ALLOWED, Checker
from tests.pipeline.tokenizer.test_merge_origins import corpus
from tests.pipeline.tokenizer.test_tokenizer import build


def checked(stats: dict[str, Any]) -> tuple[str, Checker]:
    macros = environment().get_template("macros.html.j2").module
    html = environment().get_template("tokenizer.html.j2").render(f={"tokenizer": stats}, m=macros)
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == [] and checker.tags <= ALLOWED
    return html, checker


def test_every_figure_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    first = build(tmp_path / "first", corpus(), pre_tokenizer="gpt2")
    (tmp_path / "mine/tokenizer.json").write_bytes(first["tokenizer.json"])
    path = str(tmp_path / "mine/tokenizer.json")
    stats = json.loads(build(tmp_path / "run", corpus(), vocab_size=700, compare=[path])["stats.json"])
    _, checker = checked(stats)
    words = " ".join(" ".join(checker.words).split())
    shown = (
        "Merges from repeated lines",
        "Merges from the tags of redaction",
        "Tokens by script",
        "By language",
        "web",
        "EMAIL",
    )
    for text in (*shown, "Vlurbnitz", f"{stats['sources']['web']['bytes_per_token']:,.2f}".rstrip("0")):
        assert text in words, text
    other = stats["sources"]["code"]["compare"][path]["bytes_per_token"]
    assert f"{other:,.2f}".rstrip("0") in words


def test_markup_in_tokens_is_text() -> None:
    bad = "<script>alert(1)</script>\u202e"
    row = {
        "docs": 1,
        "bytes": 4,
        "tokens": 2,
        "bytes_per_token": 2.0,
        "fertility": 1.0,
        "split": "validation",
        "compare": {bad: {"bytes_per_token": 1.5}},
    }
    inside = {"merges": 1, "most_frequent": [{"token": bad, "count": 4, "inside": 4}]}
    html, _ = checked(
        {
            "vocab_size": 300, "unused_tokens": 1, "sources": {"web": row}, "languages": {bad: row}, "round_trip": {"docs": 1, "changed": 0},
            "longest_tokens": [bad], "unused_longest": [bad], "scripts": {"latin": 3},
            "repetitions": {"tokens": 1, "most_repeated": [{"token": bad * 3, "unit": bad, "times": 3}]},
            "origins": {"repeated_lines": 1, "tokens_in_repeated_lines": 1, "tokens": 2, "bytes": 4, "boilerplate": inside, "tags": inside},
            "trained_on": {"docs": 1, "bytes": 4, "sources": {"web": {"docs": 1, "bytes": 4, "of_bytes": 8}}},
        }
    )  # fmt: skip
    assert "<script" not in html and "\u202e" not in html and "&lt;script&gt;" in html


def test_stats_of_an_older_run_are_shown_as_far_as_they_go() -> None:
    row = {"docs": 1, "bytes": 4, "tokens": 2, "bytes_per_token": 2.0, "fertility": 1.0, "split": "train"}
    html, _ = checked(
        {
            "vocab_size": 300,
            "unused_tokens": 7,
            "sources": {"web": row},
            "trained_on": {"docs": 1, "bytes": 5},
        }
    )
    assert "1 of train" in html
    assert "Bytes per token" not in checked({"vocab_size": 300})[0]
