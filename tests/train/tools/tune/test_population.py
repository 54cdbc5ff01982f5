"""Population-based training: who copies whom, from which weights, with which values; and again after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.search import Parameter, SearchConfig
from corpusmill.train import checkpoint
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.tools.tune import population
from corpusmill.train.tools.tune.population import changed, draw, plan_round
from corpusmill.train.tools.tune.search import search
from tests.train.tools.tune.conftest import LR, outcome

Write = Callable[..., Path]

SPACE = {"optimizer.lr": {**LR, "low": 1e-4}, "optimizer.weight_decay": {"choices": [0.0, 0.1]}}
PBT = {"sampler": "pbt", "trials": 4, "population": {"every": 3}, "space": SPACE}


def run(file: Path, *settings: str) -> dict[str, Any]:
    return search(str(file), list(settings), lambda _: None)


@pytest.mark.usefixtures("quick")
def test_the_worst_goes_on_from_the_best_and_the_lineage_adds_up(
    write_search: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[Path, list[dict[str, Any]]] = {}
    monkeypatch.setattr(population.shutil, "rmtree", lambda *_, **__: None)  # rounds stay, to be looked at
    result = run(write_search(**PBT))
    lineage = result["lineage"]
    assert [(row["round"], row["member"], row["step"]) for row in lineage] == [
        (r, m, min(3 * r + 3, 8)) for r in range(3) for m in range(4)
    ]
    for row in lineage:
        where = tmp_path / f"found/round-{row['round']:03d}/{row['member']:02d}"
        rows = kept[where] = read_metrics(Folder(where))
        assert [r["step"] for r in rows] == list(range(1, row["step"] + 1))
        assert row["value"] == pytest.approx(sum(rows[-1]["validation"].values()) / 3)
        found = checkpoint.load_newest(Folder(where))
        assert found and found.step == row["step"]
        # The rate is that of this round, in the rows, and in config.json.
        shape = 1.0 if row["step"] < 8 else 0.1  # of the cosine, at its end
        if shape == 0.1:
            assert rows[-1]["lr"] == pytest.approx(0.1 * row["params"]["optimizer.lr"])
        assert (
            json.loads((where / "config.json").read_text())["optimizer"]["lr"]
            == row["params"]["optimizer.lr"]
        )
    for number in (1, 2):
        before, now = (lineage[4 * r : 4 * r + 4] for r in (number - 1, number))
        order = sorted(before, key=lambda row: row["value"])
        best, worst = order[0], order[-1]["member"]
        for row in now:
            parent = before[row["parent"]]
            assert row["parent"] == (best["member"] if row["member"] == worst else row["member"])
            old, new = (r["params"]["optimizer.lr"] for r in (parent, row))
            if row["member"] == worst:
                assert new in [pytest.approx(min(max(old * f, 1e-4), 3e-2)) for f in (0.8, 1.2)]
            else:
                assert new == old and row["params"] == parent["params"]
            # Its history is its parent's, and it went on from there.
            theirs = kept[tmp_path / f"found/round-{number - 1:03d}/{row['parent']:02d}"]
            mine = kept[tmp_path / f"found/round-{number:03d}/{row['member']:02d}"]
            assert mine[: len(theirs)] == theirs
    assert {row["member"] for row in lineage if row["parent"] not in (None, row["member"])}
    assert result["best"]["value"] == min(row["value"] for row in lineage[-4:])


@pytest.mark.usefixtures("quick")
def test_a_search_cut_in_any_round_ends_as_an_unbroken_one(
    write_search: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**PBT, "trials": 2, "population": {"every": 4}}
    expected = outcome(run(write_search("unbroken", **given)))
    file = write_search("cut", **given)
    healthy = population.copy

    def cut(parent: Path, child: Path) -> None:
        if child.name == "01":
            child.with_name("01.partial").mkdir()
            raise KeyboardInterrupt
        healthy(parent, child)

    with monkeypatch.context() as patch:
        patch.setattr(population, "copy", cut)
        with pytest.raises(KeyboardInterrupt):
            run(file)
    assert (tmp_path / "cut/round-001/00/result.json").exists()
    assert not (tmp_path / "cut/search.json").exists()
    assert outcome(run(file)) == expected
    assert outcome(run(file)) == expected  # and nothing is left to do
    assert [f.name for f in (tmp_path / "cut").glob("round-*")] == ["round-001"]


@pytest.mark.usefixtures("quick")
def test_a_member_that_diverges_takes_over_anothers_weights(write_search: Write) -> None:
    space = {"optimizer.lr": {"choices": [3e-3, 1e6]}}
    result = run(write_search(**{**PBT, "seed": 3, "space": space, "settings": {"schedule.steps": 6}}))
    first, second = result["lineage"][:4], result["lineage"][4:]
    lost = [row["member"] for row in first if row["value"] is None]
    assert 0 < len(lost) < 4 and all("step" in first[m]["reason"] for m in lost)
    assert all(first[second[m]["parent"]]["value"] is not None for m in range(4))


def test_values_change_within_their_range() -> None:
    real = Parameter(low=0.1, high=0.9)
    assert {changed(real, 0.5, Random(i)) for i in range(20)} == {0.4, 0.6}
    assert {changed(real, 0.9, Random(i)) for i in range(20)} == {0.9 * 0.8, 0.9}
    whole, stepped = Parameter(low=2, high=12), Parameter(low=0.0, high=1.0, step=0.25)
    assert {changed(whole, 10, Random(i)) for i in range(20)} == {8, 12}
    assert all(draw(stepped, Random(i)) in (0, 0.25, 0.5, 0.75, 1) for i in range(20))
    logs = [draw(Parameter(low=1e-6, high=1.0, log=True), Random(i)) for i in range(200)]
    assert 60 < sum(value < 1e-3 for value in logs) < 140
    choices = [changed(Parameter(choices=["a", "b"]), "a", Random(i)) for i in range(400)]
    assert 20 < choices.count("b") < 80  # drawn again one time in four, and then "b" every other


def test_rounds_are_planned_by_the_seed_alone() -> None:
    config = SearchConfig.model_validate(
        {"name": "x", "config": "x", "sampler": "pbt", "trials": 8, "space": {"optimizer.lr": LR}}
    )
    first = plan_round(config, {}, 0, [])
    assert (
        first == plan_round(config, {}, 0, []) and len({row["params"]["optimizer.lr"] for row in first}) == 8
    )
    assert first != plan_round(config.model_copy(update={"seed": 1}), {}, 0, [])
    for row in first:
        row["value"] = float(row["member"])
    parents = {row["member"]: row["parent"] for row in plan_round(config, {}, 1, first)}
    assert all(parents[m] == m for m in range(6)) and {parents[6], parents[7]} <= {0, 1}
