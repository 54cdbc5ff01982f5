"""What a phase has forgotten: bits per byte of every source of the chain at the start of the newest phase and now."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.evaluate.splits import evaluate
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.average import Run, average
from corpusmill.train.tools.continual.forgetting import forgetting
from tests.train.conftest import write_shards
from tests.train.test_resume import run

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def crawl(tmp_path: Path) -> str:
    """A source of another chain than the tiny shard set's, as the fourth of its set."""
    return write_shards(Folder(tmp_path / "crawl"), {"a": 1, "b": 1, "c": 1, "news": 4}).url


def test_figures_are_those_of_evaluations(config: Make, crawl: str, tmp_path: Path) -> None:
    first = config(output=str(tmp_path / "first"), **{"schedule.steps": 40})
    run(first)
    later = config(
        name="later", output=str(tmp_path / "later"), init_from=first["output"],
        **{"data.shards": crawl, "data.weights": {"news": 1}, "data.replay": {"run": first["output"], "share": 0.1}, "schedule.steps": 30},
    )  # fmt: skip
    run(later)
    with pytest.raises(UserError, match="continued no other run"):
        forgetting(*open_run(first["output"]))
    found = forgetting(*open_run(later["output"]))
    assert (found.start_step, found.step) == (40, 30)
    assert {name: row.earlier for name, row in found.sources.items()} == {
        "wiki": True, "books": True, "code": True, "news": False
    }  # fmt: skip
    before, after = (evaluate(*open_run(one["output"]), ngram_tokens=0)["sources"] for one in (first, later))
    for name, row in found.sources.items():
        assert row.before and row.after and row.difference
        assert row.after.value == pytest.approx(after[name]["bits_per_byte"], rel=1e-5)
        if row.earlier:
            assert row.before.value == pytest.approx(before[name]["bits_per_byte"], rel=1e-5)
        assert row.difference.value == pytest.approx(row.after.value - row.before.value, abs=1e-6)
    assert found.gained and found.gained.high is not None and found.gained.high < 0
    assert found.forgotten and found.forgotten.value == pytest.approx(
        sum(row.difference.value for row in found.sources.values() if row.earlier and row.difference) / 3
    )


@pytest.mark.slow
def test_more_replay_forgets_less(config: Make, crawl: str, tmp_path: Path) -> None:
    """Monotone over 0, 5 and 25 % in the mean of 3 seeds, and the new source is learnt under all of them (Ibrahim et al. 2024)."""
    forgotten: dict[float, list[float]] = {}
    for seed in range(3):
        first = config(seed=seed, output=str(tmp_path / f"first-{seed}"), **{"schedule.steps": 120})
        run(first)
        for share in (0.0, 0.05, 0.25):
            replay = {"data.replay": {"run": first["output"], "share": share}} if share else {}
            later = config(
                name="later", seed=seed, output=str(tmp_path / f"later-{seed}-{share}"), init_from=first["output"],
                **{"data.shards": crawl, "data.weights": {"news": 1}, "data.lanes": 160, "schedule.steps": 80, **replay},
            )  # fmt: skip
            run(later)
            found = forgetting(*open_run(later["output"]))
            assert (
                found.forgotten and found.gained and found.gained.high is not None and found.gained.high < 0
            )
            forgotten.setdefault(share, []).append(found.forgotten.value)
    means = [math.fsum(values) / 3 for values in forgotten.values()]
    assert means[0] > means[1] > means[2], forgotten
    assert min(forgotten[0.0]) > 0, forgotten  # without replay every seed forgets


def test_an_average_of_a_phase_is_part_of_the_chain(config: Make, crawl: str, tmp_path: Path) -> None:
    first = config(output=str(tmp_path / "first"))
    later = config(
        name="later", output=str(tmp_path / "later"), init_from=first["output"],
        **{"data.shards": crawl, "data.weights": {"news": 1}, "checkpoint.every": 2, "schedule.steps": 6, "checkpoint.keep_last": 3},
    )  # fmt: skip
    for settings in (first, later):
        run(settings)
    average([Run(*open_run(later["output"]))], Folder(tmp_path / "mean"), last=3)
    found = forgetting(*open_run(tmp_path / "mean"))
    assert found.step == 6 and found.start == Folder(first["output"]).url
