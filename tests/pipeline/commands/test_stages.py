"""The commands of single stages: every simple parameter is an option, with the model's description and default."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin

import pytest
import typer

from corpusmill.pipeline.commands.stages import COMMANDS, _plain
from corpusmill.schemas.recipe import STAGES
from tests.command_line import CliRunner

RECIPE_ONLY = {"remove_only_from"}  # a command of its own has one source


def simple(annotation: Any) -> Any:
    """The command-line type of a field, or None: unions with None, literals and lists of words are simple."""
    arguments = [a for a in get_args(annotation) if a is not type(None)]
    if type(None) in get_args(annotation):
        return simple(arguments[0]) if len(arguments) == 1 else None
    if get_origin(annotation) is Literal or (inspect.isclass(annotation) and issubclass(annotation, StrEnum)):
        return str
    if get_origin(annotation) is list:
        return list[str] if simple(arguments[0]) is str else None
    return annotation if annotation in (bool, int, float, str) else None


def test_every_declared_command_is_there() -> None:
    assert list(COMMANDS) == [name for name, spec in STAGES.items() if spec.declared.example]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_simple_parameter_is_an_option_of_its_type(name: str) -> None:
    given = inspect.signature(COMMANDS[name], eval_str=True).parameters
    for field, info in STAGES[name].params.model_fields.items():
        kind = simple(info.annotation)
        if kind is not None and field not in RECIPE_ONLY:
            assert get_args(get_args(given[field].annotation)[0])[0] == kind, field
            assert given[field].default is None


def test_a_stage_without_a_function_has_a_plain_command() -> None:
    app = typer.Typer()
    app.command()(_plain(STAGES["redact"]))
    out = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "IN..." in out and "--set" in out and "--kinds" not in out
