"""`corpusmill signals`: the list of everything that can be measured."""

from __future__ import annotations

import json
from pathlib import Path

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.signals.registry import MEASURES
from tests.command_line import CliRunner
from tests.pipeline.filter.test_plugins import QUESTIONS, plugin


def test_the_list_has_every_signal_and_fits_a_terminal(tmp_path: Path) -> None:
    file = plugin(tmp_path, QUESTIONS)
    shown = CliRunner().invoke(build(), ["signals", "--list", "--plugin", file])
    assert shown.exit_code == 0 and max(map(len, shown.output.splitlines())) <= 80
    rows = json.loads(CliRunner().invoke(build(), ["signals", "--json", "--plugin", file]).output)
    names = [row["name"] for row in rows]
    wanted = {*MEASURES, "mine.questions", "mine.late", "language.code", "toxicity.score"}
    assert wanted <= set(names) and len(names) == len(set(names))
    assert all(f"\n{name}" in shown.output for name in names)
    assert {"name", "dtype", "unit", "range", "version", "origin", "on_demand"} == rows[0].keys()
    assert [row["on_demand"] for row in rows if row["name"] in ("mine.late", "mine.long")] == [False, True]


def test_the_list_can_be_cut_to_families() -> None:
    rows = json.loads(CliRunner().invoke(build(), ["signals", "c4", "--json"]).output)
    assert {row["name"].split(".")[0] for row in rows} == {"c4"}
    wrong = CliRunner().invoke(build(), ["signals", "gofer"])
    assert isinstance(wrong.exception, UserError) and "did you mean 'gopher'" in str(wrong.exception)
