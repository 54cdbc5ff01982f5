"""A process that hangs is named by another one, with what that waits in; both end, and are started again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.train import trainer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.parallel.watch import found
from tests.forks import launch
from tests.train.processes import torchrun
from tests.train.test_resume import outcome

# A process sleeps for ever before its step 8, once.
SLEEPS = """
import os, time
from pathlib import Path
from corpusmill.train import trainer
step = trainer.train_step
def in_a_hook(state, *rest, **more):
    mark = Path(__file__).parent / "slept"
    if os.environ["RANK"] == "1" and state.step == 7 and not mark.exists():
        mark.touch()
        time.sleep(3600)
    return step(state, *rest, **more)
trainer.train_step = in_a_hook
from corpusmill.train.__main__ import main
main()
"""


def note(beat: int, step: int = 8, where: str = "step.py:1 f", what: str = "") -> dict[str, Any]:
    return {"beat": beat, "host": "node7", "step": step, "at": where, "in": what}


def test_who_is_missing() -> None:
    before = {0: note(1, what="all_reduce"), 1: note(4), 2: note(6, what="all_reduce")}
    now = {0: note(4, what="all_reduce"), 1: note(4), 2: note(9, what="all_reduce")}
    start = "step 8: process 0 has waited 31 s in all_reduce (step.py:1 f); "
    assert found(now, before, 0, 3, 31.2) == f"{start}missing: process 1 on node7, no sign of life"
    # One that never wrote anything; two that are alive and elsewhere.
    assert found(now, before, 0, 4, 31.2).endswith("; process 3, no sign of life")
    now[1] = note(7, 6, "hook.py:9 nap")
    line = found(now, before, 0, 3, 31.2)
    assert line == f"{start}missing: process 1 on node7, which is at step 6 in hook.py:9 nap"
    now[1] = note(7, 8, "moe.py:5 send", "all_to_all")
    line = found(now, before, 0, 3, 31.2)
    assert line.startswith(
        f"{start}all processes wait, in different collectives: process 1 on node7 in all_to_all"
    )
    many = {0: note(4, what="all_reduce")}
    assert found(many, many | {0: note(1)}, 0, 40, 31.2).endswith("; and 31 more")


def test_a_sleeping_process_is_named_and_all_start_again(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    settings = {"validation.every": None, "watch.timeout": 6, "data.micro_batch": 2}
    done = torchrun(2, "--max-restarts", "3", script, write_config(**settings))
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if " has waited " in line)
    assert line.startswith("error: step 8: process 0 has waited ") and " s in all_reduce of [" in line
    assert "missing: process 1 on " in line and "which is at step 8 in sleeps.py:10 in_a_hook" in line
    assert "error (process 1): ended, because process 0 found a hang" in done.stderr
    assert "continuing after step 5" in done.stderr and "Traceback" not in done.stderr
    assert [row["step"] for row in read_metrics(Folder(tmp_path / "run"))] == list(range(1, 21))
    for rank, place in enumerate(("all_reduce of [", "")):
        record = json.loads((tmp_path / f"run/hangs/step-000008/rank-{rank}.json").read_text())
        assert record["in"].startswith(place) and any(
            "in_a_hook" in line for line in record["threads"]["MainThread"]
        )
        recorded = record["flight_recorder"][0]["entries"]
        # A checkpoint that is still written has a group of its own.
        entries = [entry for entry in recorded if entry["process_group"][1] == "default_pg"]
        assert entries[-1]["profiling_name"] == "gloo:all_reduce" and entries[-1]["retired"] == bool(rank)
    done = launch(2, "corpusmill.train", write_config(**settings, output=str(tmp_path / "unbroken")))
    assert done.returncode == 0 and outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "unbroken"))


def stops(file: str) -> None:
    """`python -m corpusmill.train`, where process 1 is stopped by a signal in the backward pass of step 4, and goes on when
    the other one has written its record."""
    from corpusmill.train.__main__ import main

    if os.environ["RANK"] == "1":
        healthy, pid = trainer.train_step, os.getpid()
        if (child := os.fork()) == 0:
            record = Path(file).parent / "run/hangs/step-000004/rank-0.json"
            while not record.exists() and os.getppid() == pid:
                time.sleep(0.05)
            os.kill(pid, signal.SIGCONT)
            os._exit(0)

        def stopping(state: Any, *rest: Any, **more: Any) -> Any:
            if state.step == 3:
                state.model.parameters()[0].register_hook(lambda _: os.kill(pid, signal.SIGSTOP))
            return healthy(state, *rest, **more)

        trainer.train_step = stopping
        assert child
    import sys

    sys.argv = ["train", file]
    main()


@pytest.mark.parametrize("layout", ["zero 3", "pipeline 2"])
def test_a_stopped_process_gives_no_sign_of_life(write_config: Callable[..., Path], layout: str) -> None:
    key, _, value = layout.partition(" ")
    file = write_config(**{"validation.every": None, "watch.timeout": 5, f"parallel.{key}": int(value)})
    done = launch(2, f"{__name__}:stops", file)
    assert done.codes[0] == 1, done.stderr
    assert "error: step 4: process 0 has waited " in done.errors[0] and "Traceback" not in done.errors[0]
    assert "; missing: process 1 on " in done.errors[0] and "no sign of life" in done.errors[0]


def dies(file: str) -> None:
    """`python -m corpusmill.train`, where process 1 is killed before step 4."""
    from corpusmill.train.__main__ import main

    healthy = trainer.train_step

    def step(state: Any, *rest: Any, **more: Any) -> Any:
        if state.step == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return healthy(state, *rest, **more)

    trainer.train_step = step
    import sys

    sys.argv = ["train", file]
    main()


def test_a_lost_process_is_one_line(write_config: Callable[..., Path]) -> None:
    done = launch(2, f"{__name__}:dies", write_config(**{"validation.every": None}))
    assert done.codes == [1, -signal.SIGKILL]
    (line,) = [line for line in done.errors[0].splitlines() if line.startswith("error")]
    assert (
        line.startswith("error: step 4: the connection to another process is lost: ") and "gloo" not in line
    )
    assert "Traceback" not in done.errors[0]


def test_an_older_start_ends_when_another_one_has_taken_over(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    """As after a partition of the network, when torchrun has started the run elsewhere."""
    file = write_config(**{"schedule.steps": 100_000, "validation.every": None, "watch.timeout": 4})

    def take_over() -> None:
        while not read_metrics(Folder(tmp_path / "run")):
            time.sleep(0.05)
        (tmp_path / "run/attempt").write_text("another")

    thread = threading.Thread(target=take_over)
    thread.start()
    done = launch(2, "corpusmill.train", file)
    thread.join()
    assert done.codes[0] == 1
    assert "error: other processes have continued this run: torchrun took these for lost" in done.errors[0]
