"""Questions of arithmetic are exact, different, of the digits asked for, and the same for a seed."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.train.commands import register
from corpusmill.train.evaluate.metrics.arithmetic import SIGNS, arithmetic_items
from tests.command_line import CliRunner


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SIGNS)), st.integers(1, 30), st.integers(1, 120), st.integers(0, 9))
def test_answers_are_right(operation: str, digits: int, count: int, seed: int) -> None:
    rows = list(arithmetic_items([operation], [digits], count, seed))
    assert len(rows) == min(count, 100 if digits == 1 else count)
    assert len({row["id"] for row in rows}) == len({row["question"] for row in rows}) == len(rows)
    for row in rows:
        a, sign, b, equals = row["question"].split()
        assert len(a) == len(b) == digits and equals == "="
        right = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
        assert int(row["answer"]) == right and row["digits"] == str(digits) and row["operation"] == operation
    assert rows == list(arithmetic_items([operation], [digits], count, seed))


def test_the_command_writes_rows() -> None:
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(
        app, ["arithmetic", "--operation", "addition", "--digits", "2", "--digits", "5", "--count", "7"]
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == list(arithmetic_items(["addition"], [2, 5], 7)) and len(rows) == 14
    assert rows != list(arithmetic_items(["addition"], [2, 5], 7, seed=1))
    refused = CliRunner().invoke(app, ["arithmetic", "--operation", "additon"])
    assert isinstance(refused.exception, UserError) and "did you mean 'addition'" in str(refused.exception)
    with pytest.raises(KeyError):
        list(arithmetic_items(["division"], [1], 1))
