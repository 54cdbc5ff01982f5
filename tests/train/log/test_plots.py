"""Which plots a run has: what it measured and nothing else; the schedule to its end; bounded in points."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.train.log.dashboard import render
from corpusmill.train.log.plots import ALL_POINTS, POINTS, History, groups, schedule
from corpusmill.train.optim import rate_at
from tests.train.log.made import config_of, make_run


def plots_of(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {plot["title"]: plot for group in found for plot in group["plots"]}


def test_all_that_is_measured_has_a_plot(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    config = make_run(run, rows=50, layers=4)
    found = groups(History().read(run), config)
    assert [group["title"] for group in found] == ["Loss", "Schedule", "Stability", "Speed"]
    plots = plots_of(found)
    assert [s["name"] for s in plots["Loss"]["series"]] == ["training", "validation"]
    assert [s["name"] for s in plots["Loss by source"]["series"]] == ["wiki", "books", "code"]
    assert [s["name"] for s in plots["Attention entropy"]["series"]] == [f"layer {n}" for n in range(4)]
    assert len(plots["Expert load"]["series"]) == 4 and plots["MFU"]["form"] == "share"
    assert plots["Memory"]["series"][0]["y"] == [60] * 50 and "Blocks replaced" not in plots
    history = History().read(run)
    for name, column in (("Gradient norm", "grad_norm"), ("Loss scale", "loss_scale")):
        series, (steps, values) = plots[name]["series"][0], history.column(column)
        assert list(accumulate(series["x"])) == steps.tolist()
        assert series["y"] == pytest.approx(values.tolist(), rel=1e-4)


def test_the_mean_of_validation_is_that_of_the_sources(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    config = make_run(run, rows=50)
    plots = plots_of(groups(History().read(run), config))
    each = [series["y"] for series in plots["Validation by source"]["series"]]
    means = [sum(values) / 3 for values in zip(*each, strict=True)]
    assert plots["Loss"]["series"][1]["y"] == pytest.approx(means, rel=1e-4) and len(means) == 10


def test_of_many_layers_some_are_shown_and_the_ends_of_all(tmp_path: Path) -> None:
    run = Folder(tmp_path)
    config = make_run(run, rows=20, layers=48)
    series = plots_of(groups(History().read(run), config))["Attention entropy"]["series"]
    assert [s["name"] for s in series[:6]] == [f"layer {n}" for n in (0, 9, 19, 28, 38, 47)]
    assert series[6]["y"] == series[5]["y"] and series[7]["y"] == series[0]["y"]


def test_a_number_that_nobody_made_a_plot_for_gets_one(tmp_path: Path) -> None:
    history = History()
    for step in (1, 2):
        history.add(
            {
                "step": step,
                "loss": 2.0,
                "new_thing": 3.0,
                "parts": {"a": 1.0, "b": 2.0},
                "blocks_replaced": step,
            }
        )
    plots = plots_of(groups(history, config_of(Folder(tmp_path))))
    assert plots["new thing"]["series"][0]["y"] == [3, 3] and "Blocks replaced" in plots
    assert [s["name"] for s in plots["parts"]["series"]] == ["a", "b"]


@pytest.mark.parametrize("kind", ["cosine", "wsd", "inverse_sqrt"])
def test_the_schedule_is_the_config_s_from_first_to_last(kind: str, tmp_path: Path) -> None:
    config = config_of(
        Folder(tmp_path), steps=5000, schedule={"steps": 5000, "warmup_steps": 37, "kind": kind}
    )
    steps, rates = schedule(config)
    assert steps[0] == 1 and steps[-1] == 5000 and 37 in steps and len(steps) < 410
    assert (
        rates.tolist() == [rate_at(config, int(step)) for step in steps] and max(rates) == config.optimizer.lr
    )


def test_a_page_has_only_so_many_points(tmp_path: Path) -> None:
    history, sources = History(), [f"source_{n}" for n in range(80)]
    for step in range(1000, 5_000_001, 1000):
        losses = {source: 2.0 + ((step * 37 + n) % 10007) / 10007 for n, source in enumerate(sources)}
        losses["source_7"] += 50 * (step == 3_333_000)
        history.add({"step": step, "loss": 2.0, "lr": 1e-3, "loss_per_source": losses})
    config = config_of(Folder(tmp_path), steps=5_000_000)
    plots = plots_of(groups(history, config))
    sizes = [len(series["y"]) for plot in plots.values() for series in plot["series"]]
    assert max(sizes) <= POINTS and ALL_POINTS * 0.9 < sum(sizes) <= ALL_POINTS
    assert len(render(Folder(tmp_path), config, history)) < 2e6
    spiky = plots["Loss by source"]["series"][7]
    assert max(spiky["y"]) > 50 and 3_333_000 in accumulate(spiky["x"])
    assert all(x >= 0 for plot in plots.values() for series in plot["series"] for x in series["x"])
