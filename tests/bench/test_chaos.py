"""A few tries of the chaos bench, so that it cannot rot; and it finds what it looks for."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from bench import chaos
from bench._chaos_cases import Case, Setup
from bench._chaos_command import Ended, where
from bench._chaos_tries import Try, damage

CHEAP = [
    kind
    for kind in chaos.KINDS
    if kind.case in ("pipeline", "training") and kind.title not in ("Ctrl-C", "disk read-only")
]


def test_some_tries_are_survived(tmp_path: Path) -> None:
    found = chaos.measure(7, 5, CHEAP, failures=tmp_path)
    outcomes = [one for kind in found for one in found[kind]]
    assert all(one.hit and one.survived and one.identical for one in outcomes), [one.why for one in outcomes]
    assert len(outcomes) == 5 - sum(kind.disk and not found[kind] for kind in found)
    assert sum(one.again for one in outcomes) >= 3 and len({one.where for one in outcomes}) >= 2
    assert chaos.table(found)[-1].startswith(f"| **all** | | {len(outcomes)} | ")


def test_a_run_with_workers_is_measured(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    try:
        setup.prepare({"pipeline with workers"})
    finally:
        setup.close()
    alone, shared = (setup.cases[name] for name in ("pipeline", "pipeline with workers"))
    assert shared.cpu > alone.cpu > 0 and shared.expected == alone.expected


def test_all_kinds_are_tried_by_their_shares() -> None:
    assert chaos.TRIES >= 100
    planned = chaos.shares(chaos.TRIES, chaos.KINDS)
    assert Counter(kind for kind, _, _ in planned) == {kind: kind.tries for kind in chaos.KINDS}
    assert [len(chaos.shares(tries, chaos.KINDS)) for tries in (1, 10, 1000)] == [1, 10, 1000]


class Undisturbed:
    """Stands for the setup: what the case gives is `found`."""

    def __init__(self, **found: str) -> None:
        self.cases, self.found = {"training": Case("training", expected={"a": "1", "b": "2"})}, found

    def contents(self, case: Case, at: Path) -> dict[str, str]:
        return self.found


@pytest.mark.parametrize(
    ("code", "error", "found", "survived", "identical"),
    [
        (0, "", {"a": "1", "b": "2"}, True, True),
        (0, "", {"a": "1", "b": "3"}, True, False),
        (0, "", {"a": "1"}, True, False),
        (0, "", {"a": "1", "b": "2", "owner.json": "4"}, True, False),
        (1, "error: no", {"a": "1", "b": "2"}, False, False),
        (0, "Traceback (most recent call last):", {"a": "1", "b": "2"}, False, False),
    ],
)
def test_what_counts_as_survived_and_identical(
    tmp_path: Path, code: int, error: str, found: dict[str, str], survived: bool, identical: bool
) -> None:
    kind = next(kind for kind in chaos.KINDS if kind.case == "training")
    one = Try(Undisturbed(**found), kind, 0.5, "", tmp_path / "try")  # type: ignore[arg-type]
    outcome = one.judged(tmp_path, [Ended([-9], "", 1.0), Ended([code], error, 1.0)], True)
    assert (outcome.survived, outcome.identical) == (survived, identical)
    assert bool(outcome.why) != identical


def test_the_last_whole_checkpoint_is_damaged(tmp_path: Path) -> None:
    for step, names in ((6, ["manifest.json", "a"]), (12, ["manifest.json", "a"]), (18, ["a"])):
        folder = tmp_path / f"checkpoints/step-{step:06d}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(b"some bytes")

    def contents() -> dict[str, bytes]:
        files = [file for file in sorted(tmp_path.rglob("*")) if file.is_file()]
        return {file.relative_to(tmp_path).as_posix(): file.read_bytes() for file in files}

    before = contents()
    assert damage(tmp_path, random.Random(3))
    after = contents()
    changed = {name for name in before if before[name] != after.get(name)}
    assert len(changed) == 1 and changed.pop().startswith("checkpoints/step-000012/")
    (tmp_path / "checkpoints/step-000006/manifest.json").unlink()
    assert not damage(tmp_path, random.Random(3)) and contents().keys() == after.keys() - {
        "checkpoints/step-000006/manifest.json"
    }
    assert not damage(tmp_path / "checkpoints", random.Random(3))


def test_where_a_fault_came(tmp_path: Path) -> None:
    assert where(tmp_path) == "start"
    (tmp_path / "dedup/scratch").mkdir(parents=True)
    (tmp_path / "dedup/scratch/a").touch()
    assert where(tmp_path) == "dedup"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").write_text("{}\n" * 25)
    assert where(tmp_path / "run") == "steps 21 to 40"
    (tmp_path / "run/checkpoints/step-000030").mkdir(parents=True)
    (tmp_path / "run/checkpoints/step-000030/a").touch()
    os.utime(tmp_path / "run/metrics.jsonl", (1, 1))  # the older one, however coarse the clock is
    assert where(tmp_path / "run") == "within a checkpoint"
