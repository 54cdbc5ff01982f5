"""The process that the others wait for has a name; a moment's load has none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import trainer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.log.plots import History, groups
from corpusmill.train.log.stragglers import Stragglers
from corpusmill.train.parallel.mesh import World
from tests.forks import launch


def test_named_at_the_second_row() -> None:
    world, stragglers = World(size=4), Stragglers(1.5)
    for values, slowest, named in [
        ([0.4, 0.4, 0.9, 0.5], 2, {}),
        ([0.4, 0.4, 0.9, 0.5], 2, {2: 0.9 / 0.4}),
        ([0.4, 0.5, 0.41, 0.42], 1, {}),
        ([0.1, 0.1, 0.2, 0.1], 2, {}),  # nobody waits long for it
        ([0.1, 0.1, 0.2, 0.1], 2, {}),
    ]:
        found = stragglers.found(world, values)
        assert found and found.process == slowest and found.named == named
    assert stragglers.found(world, [0.4, 0.0, 0.9, 0.4]) is None  # one has no figure yet
    assert stragglers.found(World(), [0.4]) is None
    silent = Stragglers(None)
    assert [silent.found(world, [0.1, 0.1, 0.1, 0.9]).named for _ in range(2)] == [{}, {}]  # type: ignore[union-attr]


def slow(file: str, rank: str) -> None:
    """`python -m corpusmill.train`, with 150 ms more of each step in one process."""
    import os

    from corpusmill.train.__main__ import main

    healthy = trainer.train_step

    def step(*arguments: Any, **more: Any) -> Any:
        if os.environ["RANK"] == rank:
            time.sleep(0.15)
        return healthy(*arguments, **more)

    trainer.train_step = step
    sys.argv = ["train", file]
    main()


def test_a_slow_process_is_named_in_log_and_metrics(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {
        "schedule.steps": 24, "log.every": 4, "validation.every": None, "data.micro_batch": 2, "watch.straggler": 1.2,
    }  # fmt: skip
    done = launch(2, f"{__name__}:slow", write_config(**settings), 1)
    assert done.returncode == 0, done.stderr
    rows = read_metrics(Folder(tmp_path / "run"))
    # A busy machine may slow the other one, too, for a moment.
    named = [row for row in rows if "stragglers" in row]
    assert "stragglers" not in rows[0] and named
    for row in named:
        assert row["slowest_process"] == 1 and row["stragglers"] == {"process_1": row["slowest_ratio"]}
        assert f"step {row['step']}: computing longer than the median process: process 1 (" in done.stderr
    chosen = load(TrainConfig, write_config(**settings))
    (plot,) = [
        plot
        for group in groups(History().read(Folder(tmp_path / "run")), chosen)
        for plot in group["plots"]
        if plot["title"] == "Slowest process"
    ]
    assert "process_1" in [line["name"] for line in plot["series"]]
