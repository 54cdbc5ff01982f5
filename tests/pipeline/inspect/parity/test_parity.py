"""`corpusmill parity`: two rule sets over the same documents."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.rules import parity
from corpusmill.pipeline.inspect.parity import Parity, shown
from tests.command_line import CliRunner
from tests.conftest import ROOT
from tests.pipeline.filter.helpers import PROSE, documents

# Nine long lines that differ, and one of them twice more: of eleven lines two are later copies, three are copies.
LINES = [
    f"{when} the people of the valley came to the {where} and took what they had grown with them, {what} and all."
    for when, where, what in (
        ("In spring", "market", "leeks"), ("In May", "bridge", "peas"), ("In June", "old mill", "beans"),
        ("On Sundays", "church", "flowers"), ("In autumn", "fair", "apples"), ("At night", "inn", "songs"),
    )
]  # fmt: skip
COPIES = "\n".join([*LINES, LINES[0], LINES[1]])  # 2 of 8 later, 4 of 8 copies
SHORT = "Too short."


def compared(texts: list[str], a: str, b: str, examples: int = 2, **settings: Any) -> Parity:
    found = Parity(a.split("+"), b.split("+"), settings, examples)
    found.add(documents(texts))
    return found


def tally(found: Parity, name: str) -> tuple[int, int, int]:
    own = next(t for t in found.tallies if t.name == name)
    return own.only_a, own.only_b, own.both


def test_later_copies_against_all_copies() -> None:
    found = compared([COPIES, PROSE, SHORT], "gopher@nemo", "gopher@dclm")
    assert found.documents == 3
    assert tally(found, "word_count_min") == (0, 0, 1)
    # .25 of the lines are later copies, .50 are copies: DCLM alone has a rule of this name that fails.
    assert tally(found, "dup_line_frac_max") == (0, 1, 0)
    example = next(t for t in found.tallies if t.name == "dup_line_frac_max").examples[0]
    assert (example.fails, example.value_a, example.value_b) == ("b", None, pytest.approx(0.5))
    assert example.locator == "a#0" and example.text.startswith("In spring the people")


def test_rules_of_one_name_are_set_side_by_side() -> None:
    found = compared([COPIES, PROSE], "gopher@datatrove", "gopher@dolma", examples=1)
    own = next(t for t in found.tallies if t.name == "dup_line_frac_max")
    assert own.a is not None and own.b is not None
    assert (own.examples[0].value_a, own.examples[0].value_b) == (pytest.approx(0.25), pytest.approx(0.5))
    median = next(t for t in found.tallies if t.name == "median_word_length_max")
    assert median.a is None and median.b is not None


def test_a_set_agrees_with_itself() -> None:
    found = compared([COPIES, PROSE, SHORT], "gopher@dclm", "gopher@dclm")
    assert found.agreement == 1 and not any(t.parted for t in found.tallies)
    assert "the sides agree on 100.00 %." in shown(found)


def test_agreement_is_cut_and_never_rounded_up() -> None:
    found = compared([], "c4", "c4")
    for table, message in (
        ([[57, 43], [0, 0]], "57.00"),
        ([[99_999, 1], [0, 0]], "99.99"),
        ([[0, 1], [0, 2]], "66.66"),
    ):
        found.table[:] = table
        assert f"agree on {message} %." in shown(found)


def test_no_documents_at_all() -> None:
    found = compared([], "gopher@dclm", "c4")
    assert found.documents == 0 and found.agreement == 1
    assert shown(found)


def test_several_sets_on_one_side_and_settings_for_both() -> None:
    found = compared([PROSE, SHORT], "gopher_quality+gopher_repetition", "gopher_quality")
    assert found.agreement == 1 and len(found.sides[0]) > len(found.sides[1])
    found = compared([SHORT], "gopher_quality", "gopher@dclm", disable=["gopher_quality.word_count_min"])
    assert tally(found, "word_count_min") == (0, 1, 0)


def test_models_play_no_part() -> None:
    assert not compared([PROSE], "c4", "fineweb").filtering.models.language


texts = st.lists(
    st.sampled_from([COPIES, PROSE, SHORT, "", "• a\n- b", "日本語 " * 60, "#" * 20]), max_size=8
)


@settings(max_examples=20)
@given(texts, st.data())
def test_counts_do_not_depend_on_how_documents_are_cut(some: list[str], data: st.DataObject) -> None:
    docs = documents(some)
    cut = data.draw(st.integers(0, len(docs)))
    whole, parts = (Parity(["gopher@datatrove"], ["gopher_quality"], {}, 2) for _ in range(2))
    whole.add(docs)
    parts.add(docs.slice(0, cut))
    parts.add(docs.slice(cut))
    assert whole.as_json() == parts.as_json()
    result = whole.as_json()
    assert result["both_keep"] + result["only_a_removes"] + result["only_b_removes"] + result[
        "both_remove"
    ] == len(docs)
    for rule in result["rules"]:
        assert len(rule["examples"]) == min(2, rule["only_a"] + rule["only_b"])


@settings(max_examples=50)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=3))
def test_any_text_is_shown_in_80_columns(some: list[str]) -> None:
    for line in shown(compared(some, "gopher@nemo", "fineweb@datatrove", 3)).splitlines():
        assert len(line) <= 80 and line.isprintable()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl.gz"
    rows = [{"id": f"own-{i}", "text": text} for i, text in enumerate([COPIES, PROSE, SHORT, COPIES])]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return path


def command(*arguments: object) -> str:
    import typer

    app = typer.Typer()
    app.command()(parity)
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_reads_what_ingest_reads(data: Path) -> None:
    output = command("gopher@datatrove", "gopher@dclm", data, "--id-column", "id", "--examples", 1)
    assert "4 documents; the sides agree on" in output
    assert "own-0" in output and "own-3" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_the_command_stops_at_its_limit_and_speaks_json(data: Path) -> None:
    result = json.loads(command("gopher@datatrove", "gopher@dclm", data, "--limit", 3, "--json"))
    assert result["documents"] == 3 and result["a"] == ["gopher@datatrove"]
    rule = next(rule for rule in result["rules"] if rule["name"] == "dup_line_frac_max")
    assert rule["only_b"] == 1 and rule["a"]["threshold"] == 0.3


def test_a_users_own_rules(data: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(
        "name: mine\norigin: me\nrules:\n  - {name: word_count_min, signal: gopher_dolma.word_count, at_least: 3}\n"
    )
    result = json.loads(command("gopher_quality", own, data, "--json"))
    rule = next(rule for rule in result["rules"] if rule["name"] == "word_count_min")
    assert (rule["only_a"], rule["only_b"], rule["both"]) == (0, 0, 1)


def test_an_unknown_set_is_reported_in_one_line(data: Path) -> None:
    with pytest.raises(UserError, match=r"'gopher@dolmaa' is not a rule set; did you mean 'gopher@dolma'\?"):
        command("gopher_quality", "gopher@dolmaa", data)


def test_the_command_line_knows_it(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corpusmill", "parity", "c4", "c4@datatrove", str(data), "--json"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 4
