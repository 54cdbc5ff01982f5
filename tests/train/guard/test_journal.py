"""The journal: whole or as before, and what follows from it: rates, skips of data, checkpoints given up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.guard.journal import (
    Journal,
    abandoned,
    dumped,
    lr_factor,
    message,
    parse,
    read_entries,
    replaying,
    rollbacks,
    skipped,
    skips,
    with_skip,
)  # fmt: skip


def journal(*entries: dict[str, Any]) -> Journal:
    made = Journal(b"", None)
    for entry in entries:
        made.add(**entry)
    return made


def rollback(
    step: int, to_step: int, first: int | None = None, batches: int = 3, **more: Any
) -> dict[str, Any]:
    first = first or step
    base = {
        "kind": "rollback", "step": step, "to_step": to_step, "lr_factor": 0.5, "until_step": step + 10,
        "back_step": step + 21, "skipped": {"step": first, "batches": batches, "n": (0, 8)},
    }  # fmt: skip
    return {**base, **more}


def skip(step: int) -> dict[str, Any]:
    return {"kind": "skip", "step": step, "why": [{"signal": "loss", "value": "nan", "limit": 3.5}]}


def test_entries_come_back_from_the_file(tmp_path: Path) -> None:
    file = Folder(tmp_path / "journal.jsonl")
    made = Journal(b"", file)
    made.add(**skip(4), documents={"wiki": ["a", "b"]})
    made.add(**rollback(9, 5), healthy=True)
    assert [e.entry for e in made.entries] == [1, 2] and read_entries(Folder(tmp_path)) == made.entries
    line = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])
    assert line["v"] == 1 and line["why"][0]["value"] == "nan" and "to_step" not in line
    assert message(made.entries[0]) == "guard: step 4: skipped; loss nan (limit 3.5)"
    assert message(made.entries[1]) == (
        "guard: step 9: rolled back to step 5, passing over 3 batches before step 9, learning rate x 0.5 up to step 19"
    )
    assert read_entries(Folder(tmp_path / "nowhere")) == []


def test_a_damaged_journal_is_refused_by_its_line() -> None:
    data = dumped(journal(skip(4), skip(5), skip(6)).entries)
    lines = data.splitlines(keepends=True)
    with pytest.raises(WorkError, match=r"j:2: no entry"):
        parse(lines[0] + lines[1][:-9], "j")
    with pytest.raises(WorkError, match=r"j:2: is entry 3"):
        parse(lines[0] + lines[2], "j")


def test_killed_in_the_middle_of_a_write_leaves_the_entries_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Journal(b"", Folder(tmp_path / "journal.jsonl"))
    made.add(**skip(4))
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", lambda self, data: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made.add(**skip(5))
    assert [e.step for e in read_entries(Folder(tmp_path))] == [4]


def test_a_rollback_undoes_the_skips_after_its_checkpoint() -> None:
    made = journal(skip(4), skip(9), rollback(10, 5), skip(7), skip(9))
    assert {step: entry.entry for step, entry in skipped(made.entries).items()} == {4: 1, 7: 4, 9: 5}


def test_checkpoints_of_a_branch_given_up_are_known_by_what_they_knew() -> None:
    entries = journal(skip(4), rollback(10, 5), rollback(30, 20), rollback(31, 12)).entries
    for step, known, given_up in (
        (5, 0, None), (5, 1, None), (6, 1, 2), (10, 0, 2), (6, 2, None), (12, 2, None), (20, 2, 4), (25, 2, 3), (15, 2, 4),
        (25, 3, 4), (40, 4, None), (13, 4, None),
    ):  # fmt: skip
        entry = abandoned(entries, step, known)
        assert (entry and entry.entry) == given_up, (step, known)


def test_the_rate_is_lowered_then_comes_back_in_a_line() -> None:
    entries = journal(rollback(10, 5)).entries
    assert [lr_factor(entries, step) for step in (1, 5, 6, 10, 20)] == [1, 1, 0.5, 0.5, 0.5]
    assert lr_factor(entries, 21) == pytest.approx(0.5 + 0.5 / 11)
    assert lr_factor(entries, 30) == pytest.approx(1 - 0.5 / 11)
    assert lr_factor(entries, 31) == lr_factor(entries, 99) == 1
    twice = journal(rollback(10, 5), rollback(12, 5)).entries
    assert lr_factor(twice, 5) == 1 and lr_factor(twice, 12) == 0.25 and lr_factor(twice, 99) == 1


def data_passed_over(skips: dict[int, int], steps: int = 60) -> set[int]:
    """Numbers of the batches of data that the first steps do not take; as `Segment.start_of` counts."""
    return {
        step - 1 + sum(count for at, count in skips.items() if at <= step) - 1 - i
        for step in range(1, steps)
        for i in range(skips.get(step, 0))
    }


@given(
    before=st.dictionaries(st.integers(1, 40), st.integers(1, 9), max_size=4),
    step=st.integers(1, 40),
    batches=st.integers(1, 12),
)
def test_more_skipped_data_leaves_the_other_skips_on_their_data(
    before: dict[int, int], step: int, batches: int
) -> None:
    after = with_skip(before, step, batches)
    old, new = data_passed_over(before, 200), data_passed_over(after, 200)
    assert old <= new and len(new) == len(old) + batches
    taken = [n for n in range(300) if n not in old]  # by steps 1, 2, ... of the old plan
    assert new - old == set(taken[step - 1 : step - 1 + batches])


def test_rollbacks_add_their_data_to_the_config_s() -> None:
    made = journal(rollback(10, 5, first=8, batches=4), rollback(11, 5, first=8, batches=2))
    assert skips(made.entries, {3: 1, 20: 2}) == {3: 1, 8: 6, 14: 2}
    assert len(rollbacks(made.entries)) == 2 and len(rollbacks(made.entries, after=10)) == 1


def test_another_run_s_entries_are_taken_over_whole(tmp_path: Path) -> None:
    other = journal(skip(4), rollback(10, 5))
    mine = Journal(b"", Folder(tmp_path / "journal.jsonl"))
    mine.take_over(dumped(other.entries), "s3://bucket/other/journal.jsonl")
    assert [e.kind for e in read_entries(Folder(tmp_path))] == ["skip", "rollback", "replay"]
    assert replaying(mine.entries) and not replaying(other.entries)
