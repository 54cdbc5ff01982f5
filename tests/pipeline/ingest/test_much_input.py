"""Much input is hashed by workers, after everything else was checked: same hashes and parts, no second reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import runner
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.ingest import content, stage
from corpusmill.schemas.recipe import Cluster, Recipe
from tests.conftest import Serial
from tests.e2e.cli import difference, published


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kilobytes are much, and files are cut into parts of two."""
    for module in (content, runner):
        monkeypatch.setattr(module, "MANY_BYTES", 10_000)
    monkeypatch.setattr(content, "TOGETHER", 3_000)
    monkeypatch.setattr(stage, "LEAST_PART", 2_000)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Files that are cut, that are not, that cannot be read, and an empty one."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, lines in enumerate([90, 1, 60, 0, 3]):
        texts = [json.dumps({"text": f"text {number} {line} " + "and so on " * 5}) for line in range(lines)]
        (folder / f"{number}.jsonl").write_text("\n".join(texts))
    (folder / "a.bin").write_bytes(bytes(range(256)) * 8)
    return Recipe.model_validate(
        {
            "name": "t",
            "sources": {"s": {"paths": [str(folder)]}},
            "ingest": {"partition_mb": 0.01},
            "stages": ["ingest"],
        }
    )


def run_in(folder: Path, recipe: Recipe, scheduler: Scheduler) -> Run:
    return Run(recipe, Folder(folder), scheduler)


@pytest.mark.usefixtures("forked_workers")
def test_workers_hash_it(much: None, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Serial()
    with monkeypatch.context() as patch:
        for module in (content, runner):
            patch.setattr(module, "MANY_BYTES", 1 << 30)
        here = run_in(tmp_path / "here", recipe, few).execute()
    assert "read of the input" not in few.labels
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as workers:
        job = run_in(tmp_path / "there", recipe, workers)
        there = job.execute()
    assert difference(published(tmp_path / "here"), published(tmp_path / "there")) == []
    assert [one.key for one in here] == [one.key for one in there]
    inputs = [json.loads((tmp_path / where / "inputs.json").read_text()) for where in ("here", "there")]
    assert inputs[0]["files"] == inputs[1]["files"] and inputs[0]["parts"] == inputs[1]["parts"]
    assert max(map(len, inputs[0]["parts"].values())) > 2
    assert there[0].resources and here[0].resources
    assert there[0].resources.actual.tasks > here[0].resources.actual.tasks, (
        "the tasks that hash are those of ingest"
    )


def test_a_second_run_reads_nothing(much: None, recipe: Recipe, tmp_path: Path) -> None:
    run_in(tmp_path / "run", recipe, Serial()).execute()
    again = Serial()
    planned = run_in(tmp_path / "run", recipe, again).plan(refuse)
    assert all(entry.done for entry in planned) and again.labels == []


def refuse(_: Any) -> None:
    raise UserError("checked")


def test_checks_come_first(
    much: None, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Planned]] = []

    def unread(*_: Any) -> Any:
        raise AssertionError("the input was read before the checks")

    with monkeypatch.context() as patch:
        patch.setattr(content, "contents", unread)
        with pytest.raises(UserError, match="checked"):
            run_in(tmp_path / "run", recipe, Serial()).plan(refuse)
    planned = run_in(tmp_path / "run", recipe, Serial()).plan(seen.append)
    assert [[entry.name for entry in one] for one in seen] == [[entry.name for entry in planned]]
    assert all(entry.done is None for entry in seen[0])
