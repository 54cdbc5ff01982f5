"""Searches with Optuna: what is tried, what is pruned and why, and that the same search gives the same trials."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load, override, read_yaml
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.search import SearchConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.tools.tune.search import check_keys, search
from corpusmill.train.tools.tune.trial import check_trial, hold, number_at
from corpusmill.train.trainer import train
from tests.conftest import ROOT
from tests.train.test_commands import command
from tests.train.tools.tune import conftest
from tests.train.tools.tune.conftest import LR, outcome

Write = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna")


def run(file: Path, *settings: str) -> dict[str, Any]:
    return search(str(file), list(settings), lambda _: None)


@pytest.mark.parametrize("sampler", ["random", "tpe", "successive_halving"])
def test_the_same_seed_gives_the_same_trials(
    optuna: Any, bowl: None, write_search: Write, sampler: str
) -> None:
    space = {
        "optimizer.lr": LR,
        "model.ffn_dim": {"low": 32, "high": 64, "step": 32},
        "model.heads": {"choices": [2, 4]},
    }
    trials = 20
    given = {"sampler": sampler, "trials": trials, "space": space, "halving": {"first": 4, "factor": 2}}
    first, second = run(write_search("a", **given)), run(write_search("b", **given))
    assert outcome(first) == outcome(second) and len(first["trials"]) == trials
    assert outcome(run(write_search("c", **{**given, "seed": 4}))) != outcome(first)
    values = [row["params"] for row in first["trials"]]
    assert len({v["optimizer.lr"] for v in values}) == trials
    for value in values:
        assert 1e-3 <= value["optimizer.lr"] <= 3e-2 and value["model.ffn_dim"] in (32, 64)
    if sampler == "tpe":  # its first ten are drawn at random; then it looks where the bowl is
        early, late = (
            [abs(math.log10(v["optimizer.lr"] / 0.01)) for v in part] for part in (values[:10], values[10:])
        )
        assert sum(late) / len(late) < sum(early) / 10
    # What is asked for in addition is tried in addition.
    more = run(write_search("a", **given), f"trials={trials + 1}")
    assert outcome(more)["trials"][:trials] == outcome(first)["trials"] and len(more["trials"]) == trials + 1


def test_the_value_is_that_of_the_run_and_the_best_config_trains(
    optuna: Any, write_search: Write, tmp_path: Path
) -> None:
    result = run(write_search(sampler="random", trials=3))
    for row in result["trials"]:
        found = json.loads((Path(row["folder"]) / "result.json").read_text())
        assert row["state"] == "complete" and row["value"] == number_at(found, "validation")
        assert read_metrics(Folder(row["folder"]))[-1]["lr"] == pytest.approx(
            row["params"]["optimizer.lr"] / 10
        )
    assert result["best"]["value"] == min(row["value"] for row in result["trials"])
    assert result == json.loads((tmp_path / "found/search.json").read_text())
    best = load(TrainConfig, tmp_path / "found/best.yaml")
    assert best.optimizer.lr == result["best"]["params"]["optimizer.lr"]
    assert (
        number_at(train(best), "validation") == result["best"]["value"]
    )  # a run of its own, the same to the bit
    page = (tmp_path / "found/search.html").read_text()
    assert page.count("<svg") == 1 and page.count("<circle") == 3 and "http" not in page


def test_a_grid_covers_everything_and_the_impossible_is_pruned_with_its_reason(
    optuna: Any, write_search: Write
) -> None:
    space = {
        "optimizer.lr": {"low": 1e-3, "high": 1e-2, "log": True, "points": 2},
        "model.heads": {"choices": [2, 3, 4]}, "optimizer.betas": {"choices": [[0.9, 0.95], [0.8, 0.9]]},
    }  # fmt: skip
    file = write_search(sampler="grid", space=space, objective="loss", settings={"schedule.steps": 3})
    table = command("search", file)
    assert max(map(len, table.splitlines())) <= 80 and "best is trial" in table
    result = run(file)  # nothing is left to do
    tried = [tuple(map(str, row["params"].values())) for row in result["trials"]]
    every = [tuple(map(str, point.values())) for point in load(SearchConfig, file).combinations()]
    assert sorted(tried) == sorted(every) and len(every) == 12
    for row in result["trials"]:
        impossible = row["params"]["model.heads"] == 3
        assert (row["state"] == "pruned") is impossible
        assert ("dim 32 is not a multiple of heads 3" in row["reason"]) is impossible
        assert not (impossible and Path(row["folder"]).exists())


def test_a_trial_that_diverges_is_pruned(optuna: Any, write_search: Write) -> None:
    result = run(write_search(sampler="grid", space={"optimizer.lr": {"choices": [3e-3, 3.0, 1e30]}}))
    good, *bad = sorted(result["trials"], key=lambda row: row["params"]["optimizer.lr"])
    assert good["state"] == "complete" and result["best"] == good
    assert all(row["state"] == "pruned" and row["value"] is None for row in bad)
    assert "times its lowest, at step" in bad[0]["reason"] and "not a finite number" in bad[1]["reason"]


def test_successive_halving_stops_what_falls_behind(optuna: Any, write_search: Write) -> None:
    file = write_search(
        sampler="successive_halving",
        trials=8,
        halving={"factor": 2},
        space={"optimizer.lr": {**LR, "low": 1e-5}},
    )
    result = run(file)
    states = [row["state"] for row in result["trials"]]
    assert (
        states[0] == "complete" and states.count("pruned") >= 2
    )  # there was nothing to compare the first with
    at: dict[int, list[float]] = {
        2: [],
        4: [],
        8: [],
    }  # rungs: what trials came to there, in the order of trials
    for row in result["trials"]:
        rows = read_metrics(Folder(row["folder"]))
        assert rows[-1]["step"] == (row["steps"] if row["state"] == "pruned" else 8)
        for rung in at:
            if rung <= rows[-1]["step"]:
                at[rung].append(number_at(rows[rung - 1], "validation") or 0.0)
                promoted = at[rung][-1] <= sorted(at[rung])[max(len(at[rung]) // 2 - 1, 0)]
                assert promoted is not (row["state"] == "pruned" and row["steps"] == rung)
        if row["state"] == "pruned":
            assert row["steps"] in (2, 4, 8) and "not among the best" in row["reason"]


@pytest.mark.parametrize("sampler", ["tpe", "successive_halving"])
def test_a_search_cut_in_a_trial_goes_on_with_the_same_choices(
    optuna: Any,
    bowl: None,
    write_search: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sampler: str,
) -> None:
    given = {"sampler": sampler, "trials": 14, "halving": {"factor": 2}}
    expected = outcome(run(write_search("unbroken", **given)))
    file, folder = write_search("cut", **given), tmp_path / "cut"
    healthy = conftest.train

    def cut(config: TrainConfig, on_row: Callable[[dict[str, Any]], None]) -> None:
        def dying(row: dict[str, Any]) -> None:
            on_row(row)
            if config.output_url.endswith("0011") and row["step"] == 1:
                raise KeyboardInterrupt

        healthy(config, on_row=dying)

    with monkeypatch.context() as patch:
        patch.setattr(conftest, "train", cut)
        with pytest.raises(KeyboardInterrupt):
            run(file)
    with (folder / "journal.log").open("a") as journal:
        journal.write('{"op_code": 5, "wor')  # a line that a kill cut short
    (folder / "journal.log.lock").symlink_to(folder / "journal.log")
    assert len(list((folder / "trials").iterdir())) == 12 and not (folder / "search.json").exists()
    assert outcome(run(file)) == expected


def test_mistakes_are_reported_in_a_line(optuna: Any, write_search: Write, tmp_path: Path) -> None:
    fixed = {"choices": [1]}
    for number, (given, words) in enumerate([
        ({"space": {"optimizer.lrr": fixed}}, "optimizer.lrr: no such key; did you mean 'lr'"),
        ({"space": {"optimzer.lr": fixed}}, "optimzer.lr: no such key; did you mean 'optimizer'"),
        ({"space": {"output": fixed}}, "output: is set by the search itself"),
        ({"space": {"schedule.steps": fixed}}, "space.schedule.steps: is in settings too"),
        ({"space": {"seed": {"low": 3}}}, "space.seed: give choices, or low and a high above it"),
        ({"space": {"seed": {"low": 0, "high": 3, "log": True}}}, "space.seed: log needs a low above 0"),
        ({"sampler": "grid"}, "space.optimizer.lr: a grid needs choices, or points or step"),
        ({"sampler": "successive_halving", "objective": "seconds"}, "seconds is known at the end only"),
        ({"sampler": "annealing"}, "'annealing' is not allowed"),
        ({"trails": 3}, "trails: unknown key; did you mean 'trials'"),
        ({"settings": {"validation.every": None}}, "validation.every is null"),
        ({"settings": {"optimizer.lrr": 1}}, "optimizer.lrr: no such key"),
        ({"settings": {"data.shards": str(tmp_path / "none")}}, "none"),
        ({"output": "s3://bucket/search"}, "not a local folder"),
        ({"objective": "los", "trials": 1}, "has no number at los"),
        ({"sampler": "pbt", "space": {"model.dim": fixed}}, "model.dim may not change in one (allowed: optimizer.lr,"),
    ]):  # fmt: skip
        with pytest.raises(UserError) as error:
            run(write_search(f"wrong-{number}", **given))
        assert words in str(error.value) and "\n" not in str(error.value), given


def test_a_folder_holds_one_search_at_a_time(optuna: Any, write_search: Write, tmp_path: Path) -> None:
    run(write_search(sampler="random", trials=1))
    with pytest.raises(UserError, match="holds a search with another seed, space: set it back"):
        run(write_search(sampler="random", trials=1, seed=5, space={"seed": {"low": 1, "high": 2}}))
    with hold(tmp_path / "found/lock"), pytest.raises(UserError, match="another search is running in it"):
        run(write_search(sampler="random", trials=2))


def test_a_search_in_which_nothing_works_is_given_up(
    optuna: Any, write_search: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise WorkError("no space on the disk")

    monkeypatch.setattr("tests.train.tools.tune.conftest.train", broken)
    with pytest.raises(WorkError, match="5 trials in a row have failed, this one: no space on the disk"):
        run(write_search(sampler="random"))


def test_without_optuna_it_says_what_to_install(write_search: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'corpusmill\[search\]'"):
        run(write_search(sampler="random"))


def test_the_shipped_config_is_one() -> None:
    file = ROOT / "configs/search/quickstart.yaml"
    config = load(SearchConfig, file)
    check_keys(str(file), config)
    check_trial(override(read_yaml(ROOT / config.config), []), {**config.settings, "optimizer.lr": 1e-3})


def test_grids_of_ranges() -> None:
    def grid(**given: Any) -> list[Any]:
        return (
            SearchConfig.model_validate(
                {"name": "x", "config": "x", "sampler": "grid", "space": {"seed": given}}
            )
            .space["seed"]
            .grid()
        )

    assert grid(low=1e-4, high=1e-2, log=True, points=3) == pytest.approx([1e-4, 1e-3, 1e-2])
    assert grid(low=0.0, high=0.3, step=0.1) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert grid(low=1, high=8, log=True, points=4) == [1, 2, 4, 8] and grid(low=2, high=6, step=2) == [
        2,
        4,
        6,
    ]
