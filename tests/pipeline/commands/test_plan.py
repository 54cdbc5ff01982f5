"""`corpusmill plan-run`: on the recipe's own input, on more of it, and without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.plan import plan_run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    documents = tmp_path / "docs.jsonl"
    documents.write_text("".join(f'{{"text": "{"word " * 200}{n}"}}\n' for n in range(500)))
    file = tmp_path / "r.yaml"
    file.write_text(f"name: r\noutput: {tmp_path}/out\nsources: {{web: {{paths: [{documents}]}}}}\n")
    return file


def plan(*arguments: object) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(plan_run)
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def test_its_own_input(recipe: Path, tmp_path: Path) -> None:
    shown = plan(recipe)
    assert shown.exit_code == 0 and max(map(len, shown.stdout.splitlines())) <= 80
    found = json.loads(plan(recipe, "--json", "--workers", "3").stdout)
    assert found["input_bytes"] == (tmp_path / "docs.jsonl").stat().st_size
    assert (found["workers"], found["object_store"], found["cost"]) == (3, False, None)
    assert not (tmp_path / "out").exists()


def test_more_of_it(recipe: Path) -> None:
    found = json.loads(
        plan(recipe, "--json", "--bytes", "100TB", "--workers", 500, "--price-per-core-hour", "0.04").stdout
    )
    assert found["input_bytes"] == 1e14 and found["object_store"] and found["cost"] > 0 and found["warnings"]
    steps = plan(recipe, "--bytes", "100TB", "--steps").stdout
    assert "exact similar" in steps and "training" in steps
    ten = json.loads(
        plan(recipe, "--json", "--documents", "10e9", "--bytes-per-document", 3000, "--local").stdout
    )
    assert ten["documents"] == pytest.approx(10e9) and ten["text_bytes"] == pytest.approx(3e13)
    assert not ten["object_store"]


def test_an_input_that_is_not_there_yet(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").unlink()
    found = json.loads(plan(recipe, "--json", "--bytes", "1TB").stdout)
    assert found["stages"][0]["partitions"] == pytest.approx(1e12 / (64 << 20), abs=1)
    with pytest.raises(UserError, match="docs.jsonl"):
        plan(recipe)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bytes", "many"], "--bytes: 'many' is no size"),
        (["--memory-per-worker", "-1GB"], "--memory-per-worker: '-1GB' is no size"),
        (["--documents", "0"], "--documents: 0 must be greater than 0"),
        (["--bytes", "1TB", "--documents", "5"], "give one of them"),
    ],
)
def test_wrong_options(recipe: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(recipe, *arguments)


@pytest.mark.parametrize("more", [("--bytes", "1TB"), ("--documents", "1e6")])
def test_more_of_an_empty_input_is_more_of_any(recipe: Path, tmp_path: Path, more: tuple[str, str]) -> None:
    (tmp_path / "docs.jsonl").write_bytes(b"")
    found = json.loads(plan(recipe, "--json", *more).stdout)
    assert found["input_bytes"] > 1e8 and found["documents"] > 1e5
