"""Columns of rows, and the few points of them that a plot needs: no spike is lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.charts import thin
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.log.plots import History, read_journal


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400),
    st.integers(4, 60),
)
def test_thinning_keeps_ends_and_extremes_in_their_order(numbers: list[float], limit: int) -> None:
    values = np.array(numbers)
    steps = np.arange(len(values), dtype=np.int64) * 7 + 3
    at, kept = thin(steps, values, limit)
    assert len(at) == len(kept) <= max(limit, min(len(values), limit))
    assert (np.diff(at) > 0).all() and at[0] == steps[0] and at[-1] == steps[-1]
    assert kept.min() == values.min() and kept.max() == values.max()
    assert all(values[(step - 3) // 7] == value for step, value in zip(at, kept, strict=True))


def test_every_run_of_points_keeps_its_own_extremes() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(100_000)
    spikes = rng.choice(100_000, 50, replace=False)
    values[spikes] += 100 + np.arange(50)
    steps = np.arange(1, 100_001)
    at, kept = thin(steps, values, 2000)
    assert len(at) <= 2000
    for low in range(0, 100_000, 1000):  # ten runs of points: their extremes are there
        piece = values[low : low + 1000]
        near = kept[(at > low) & (at <= low + 1000)]
        assert near.max() == piece.max() and near.min() == piece.min()


def test_a_row_that_goes_back_drops_what_lay_ahead() -> None:
    history = History()
    for step, loss in ((1, 5.0), (2, 4.0), (3, 9.0), (2, 3.5), (3, 3.0)):
        history.add({"step": step, "loss": loss, "validation": {"wiki": loss}, "mfu": None})
    steps, values = history.column("validation/wiki")
    assert steps.tolist() == [1, 2, 3] and values.tolist() == [5.0, 3.5, 3.0]
    assert history.names == ["loss", "validation/wiki"] and history.last["loss"] == 3.0
    assert len(history.column("mfu")[0]) == 0


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "loss": 2.0, "grad_norm": null}\n{"step": 2, "loss": NaN, "grad_norm": Infinity}\n'
    )
    history = History().read(Folder(tmp_path))
    assert history.column("loss")[1].tolist() == [2.0] and history.names == ["loss"]


def test_a_last_line_cut_short_is_left_out_and_another_refused(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert History().read(Folder(tmp_path)).last == {}
    file.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert History().read(Folder(tmp_path)).last["step"] == 1
    file.write_text('{"step": 1, "lo\n{"step": 2, "loss": 2.0}\n')
    with pytest.raises(WorkError, match=r"metrics\.jsonl:1: not a row of metrics"):
        History().read(Folder(tmp_path))


def test_a_file_that_grows_or_changes_is_read_as_it_is(tmp_path: Path) -> None:
    def rows(*losses: float) -> str:
        return "".join(json.dumps({"step": n, "loss": loss}) + "\n" for n, loss in enumerate(losses, 1))

    file, run, history = tmp_path / "metrics.jsonl", Folder(tmp_path), History()
    for losses in (
        (5.0, 4.0),
        (5.0, 4.0, 3.0),
        (5.0, 4.5),
        (5.0, 4.5, 3.5, 2.5),
        (9.0, 8.0, 7.0, 6.0, 5.0),
        (),
    ):
        file.write_text(rows(*losses))
        assert history.read(run).column("loss")[1].tolist() == list(losses)
    file.write_text(rows(5.0) + '{"step": 2, "lo')
    assert history.read(run).column("loss")[1].tolist() == [5.0]
    file.write_text(rows(5.0, 4.0))
    assert history.read(run).column("loss")[1].tolist() == [5.0, 4.0]


def test_the_journal_is_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    assert read_journal(Folder(tmp_path)) == []
    lines = [json.dumps({"entry": 1, "step": 5, "kind": "skip", "why": "a"}), '{"entry": 2, "st']
    (tmp_path / "journal.jsonl").write_text("\n".join(lines))
    assert [entry["step"] for entry in read_journal(Folder(tmp_path))] == [5]
    (tmp_path / "journal.jsonl").write_text("\n".join(reversed(lines)))
    with pytest.raises(WorkError, match=r"journal\.jsonl:1: not an entry of the guard"):
        read_journal(Folder(tmp_path))
