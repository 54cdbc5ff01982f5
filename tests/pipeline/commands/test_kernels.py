"""Recipes that are run before a first run, for the kernels that they compile: side by side, and never in its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from corpusmill.common.costs import METER
from corpusmill.pipeline.commands import kernels
from corpusmill.pipeline.engine.progress import Progress

INGEST = {"stages": ["ingest"]}
BROKEN = {"stages": ["nothing"]}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, dict[str, Any]]]:
    """What is run, instead of recipes that compile for minutes."""
    chosen: list[tuple[bool, dict[str, Any]]] = []

    def stands_in(whole: dict[str, dict[str, Any]]) -> Iterator[tuple[bool, dict[str, Any]]]:
        first = next(iter(whole.values()))
        return ((default, {**first, **changed}) for default, changed in chosen)

    monkeypatch.setattr(kernels, "_parts", stands_in)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    return chosen


def test_recipes_run_and_one_that_fails_is_in_no_ones_way(parts: list[tuple[bool, dict[str, Any]]]) -> None:
    parts += [(True, INGEST), (True, BROKEN), (False, INGEST)]
    before = METER.own.get(("", "compiling kernels"))
    spent = before.cpu if before else 0.0
    assert kernels.compile_ahead(Progress(quiet=True))
    assert METER.own["", "compiling kernels"].cpu > spent + 0.5  # three starts of Python


def test_only_stages_of_the_run_count_and_one_alone_is_left_to_it(
    parts: list[tuple[bool, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    monkeypatch.setattr(kernels, "_run_all", lambda files, most, ended: ran.append(len(files)))
    parts += [
        (True, {"stages": ["ingest", "filter"]}),
        (True, {"stages": ["ingest", "dedup"]}),
        (False, INGEST),
    ]
    assert not kernels.compile_ahead(Progress(quiet=True), ["ingest", "filter"]) and not ran
    assert kernels.compile_ahead(Progress(quiet=True), ["ingest", "filter", "dedup", "shard"]) and ran == [2]
    assert kernels.compile_ahead(Progress(quiet=True)) and ran == [2, 3]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert not kernels.compile_ahead(Progress(quiet=True))


def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text("stages: [nothing]\n")

    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        kernels._run_all([tmp_path / f"{number}.yaml" for number in range(3)], 2, interrupted)
    assert set(psutil.Process().children()) <= before


def test_its_recipes_are_valid(tmp_path: Path) -> None:
    for recipe in [
        *kernels.recipes(tmp_path).values(),
        *(r for _, r in kernels._parts(kernels.recipes(tmp_path))),
    ]:
        kernels.Recipe.model_validate(recipe)
