"""The documents that figures are measured on: about so many bytes of each source, and never none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.tokenizer.test_tokenizer import build, corpus


def sources(tmp: Path, **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(build(tmp, corpus(), **how)["stats.json"])["sources"]
    return found


def test_a_part_of_large_sources_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sources(tmp_path / "whole")
    half = whole["web"]["bytes"] // 2
    monkeypatch.setattr("corpusmill.pipeline.tokenizer.measure.SAMPLE_BYTES", half)
    some = sources(tmp_path / "some")
    assert 0.4 * half < some["web"]["bytes"] < 1.6 * half
    assert some["lone"] == whole["lone"]  # smaller than the sample
    assert {name: row["split"] for name, row in some.items()} == {
        "web": "validation", "code": "validation", "lone": "train",
    }  # fmt: skip
    assert sources(tmp_path / "cut otherwise", parts=5, shuffle=1) == some


def test_where_chance_draws_none_all_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sources(tmp_path / "whole")
    monkeypatch.setattr("corpusmill.pipeline.tokenizer.measure.SAMPLE_BYTES", 0)
    assert sources(tmp_path / "none") == whole
