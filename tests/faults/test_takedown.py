"""A takedown that dies: between any two changes of files, or by SIGKILL at any time."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.takedown_log import read_log, under_way
from corpusmill.pipeline.inspect.takedown import change
from corpusmill.pipeline.inspect.verify import verify
from tests.e2e.killing import killed_without_workers
from tests.faults.shards import files, held, kept, run, run_recipe, small, take  # noqa: F401 (fixtures)
from tests.pipeline.dedup.vandal import Kill, Mortal


def moments(total: int, step: int) -> list[int]:
    return sorted({*range(0, total, step), *range(max(0, total - 4), total)})


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_between_any_two_changes_of_files(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    """The set is the old one, or the new one, or is reported as unfinished; the same command completes it."""
    names = [row["url"] for row in random.Random(3).sample(kept(run), 4)]
    mortal = Mortal(monkeypatch)
    real = change._place

    def place(source: Folder, target: Folder) -> None:
        if mortal.left == 0:
            raise Kill
        mortal.left -= 1
        mortal.done += 1
        real(source, target)

    monkeypatch.setattr(change, "_place", place)
    work = tmp_path / "work"
    shutil.copytree(run, work)
    take(work, names)
    total, new, old = mortal.done, files(work), files(run)
    states = set()
    for number in moments(total, step):
        shutil.rmtree(work)
        shutil.copytree(run, work)
        mortal.left = number
        with pytest.raises(Kill):
            take(work, names)
        mortal.left = -1
        there = {n: d for n, d in files(work).items() if not n.startswith("takedown/")}
        problems = verify(Folder(work), sample=0).problems
        if under_way(Folder(work / "shards")):
            states.add("between")
            assert len(problems) == 1 and "give the same command again" in problems[0], problems
            with pytest.raises(UserError, match="unfinished"):
                take(work, names, dry_run=True)
        else:
            assert problems == [] and there in (old, new)
            states.add("old" if there == old else "new")
        result = take(work, names)
        assert files(work) == new and verify(Folder(work)).problems == []
        assert result.get("resumed", False) == (number < total and "between" in states and bool(problems))
    assert states >= {"old", "between"}


def test_another_takedown_finishes_the_first(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = (row["url"] for row in random.Random(4).sample(kept(run), 2))

    def kill(*_: Any) -> None:
        raise Kill

    with monkeypatch.context() as patch:
        patch.setattr(change, "_place", kill)
        with pytest.raises(Kill):
            take(run, [one])
    assert under_way(Folder(run / "shards"))
    result = take(run, [two])
    assert result["in_shards"] == 1 and len(read_log(Folder(run / "shards")).entries) == 2
    assert verify(Folder(run)).problems == []


def test_a_run_goes_over_a_takedown_that_is_under_way(
    small: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It writes the shards again, without the documents; nothing is under way any more."""
    row = kept(run)[7]

    def kill(*_: Any) -> None:
        raise Kill

    with monkeypatch.context() as patch:
        patch.setattr(change, "_place", kill)
        with pytest.raises(Kill):
            take(run, [row["url"]])
    assert run_recipe(small, run) == ["shard"]
    assert verify(Folder(run), sample=None).problems == []
    assert row["doc_id"].hex() not in held(run / "shards") and not under_way(Folder(run / "shards"))
    result = take(run, [row["url"]])
    assert (result["already"], result["in_shards"]) == (1, 0)


MOMENTS = (
    "takedown/*", "takedown/*/new/**/*.tar", "takedown/*/new/**/index.json", "takedown/*/plan.json",
    "takedowns.jsonl", "!manifest.json",
)  # fmt: skip


@pytest.mark.slow
def test_the_process_is_killed_at_any_time(run: Path, tmp_path: Path) -> None:
    """SIGKILL to the command, from its first file to the moment at which the new set is put in place; given again, it
    makes the new set."""
    names = [row["url"] for row in random.Random(8).sample(kept(run), 6)]
    work, file = tmp_path / "work", tmp_path / "gone"
    file.write_text("\n".join(names) + "\n")
    shutil.copytree(run, work)
    take(work, names)
    new, old = files(work), files(run)
    killed = 0
    for moment in MOMENTS:
        shutil.rmtree(work)
        shutil.copytree(run, work)
        killed += killed_without_workers(work / "shards", moment, "takedown", file, "--run", work, "-q")
        there = {n: d for n, d in files(work).items() if not n.startswith("takedown/") and "#" not in n}
        assert under_way(Folder(work / "shards")) or there in (old, new)
        take(work, names)
        Folder(work).sweep()  # what was being written when it was killed, under a temporary name
        assert files(work) == new and verify(Folder(work)).problems == []
    assert killed > 2
