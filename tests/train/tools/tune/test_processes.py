"""Trials as processes: killed with the search, interrupted by Ctrl-C, resumed; several at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corpusmill.train.tools.tune import search as module
from corpusmill.train.tools.tune.search import search
from corpusmill.train.tools.tune.trial import Trial, environment, hold, run_trials
from tests.conftest import IMPORT_PATH, ROOT
from tests.train.tools.tune.conftest import in_process, outcome

Write = Callable[..., Path]
Start = Callable[[Path], subprocess.Popen[str]]
pytest.importorskip("optuna")


@pytest.fixture
def start() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts `corpusmill search`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []
    yield lambda file: started.append(popen(file)) or started[-1]
    for process in started:
        process.kill()
        process.communicate()


def popen(file: Path) -> subprocess.Popen[str]:
    code = "import sys; from corpusmill.__main__ import main; sys.argv[0] = 'corpusmill'; main()"
    paths = os.pathsep.join([IMPORT_PATH, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, "search", str(file), "--json"], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def until(what: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    while not what():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def rows(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


@pytest.mark.slow
def test_killed_stopped_and_gone_on_with_it_ends_as_an_unbroken_one(
    write_search: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"schedule.steps": 400, "checkpoint.every": 100, "validation.every": 200}
    space = {"optimizer.lr": {"choices": [1e-3, 1e-2]}}
    given = {"sampler": "grid", "space": space, "settings": long}
    file, trials = write_search("cut", **given), tmp_path / "cut/trials"
    process = start(file)
    until(lambda: rows(trials / "0000") > 20, process)
    process.kill()  # as if by kill -9: its trial notices, saves, and ends
    process.communicate()
    with hold(trials / "0000/lock", wait=True):
        assert "stopped by a signal after step" in (trials / "0000/log.txt").read_text()
        assert rows(trials / "0000") < 400
    process = start(file)
    until(lambda: rows(trials / "0001") > 20, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130 and "run the same command to continue" in errors
    assert "Traceback" not in errors and "trial 0 (1 of 2)" in errors
    assert "continuing after step" in (trials / "0000/log.txt").read_text()
    assert (
        "stopped by a signal after step" in (trials / "0001/log.txt").read_text()
    )  # before the search ended
    with (tmp_path / "cut/journal.log").open("a") as journal:
        journal.write('{"op_code": 5, "wor')  # a line that a kill cut short
    (tmp_path / "cut/journal.log.lock").symlink_to(tmp_path / "cut/journal.log")
    process = start(file)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    monkeypatch.setattr(module, "run_trials", in_process)
    unbroken = search(str(write_search("unbroken", **given)), None, lambda _: None)
    assert outcome(json.loads(output)) == outcome(unbroken)


@pytest.mark.slow
def test_two_at_a_time(write_search: Write, start: Start, tmp_path: Path) -> None:
    """Two are stopped with the search, one is killed by somebody else."""
    values = {"low": 1, "high": 3, "step": 1}
    file = write_search(
        sampler="grid", space={"seed": values}, parallel=2, settings={"schedule.steps": 100_000}
    )
    process = start(file)
    until(lambda: rows(tmp_path / "found/trials/0000") and rows(tmp_path / "found/trials/0001"), process)
    find = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
    (victim,) = [int(s.split()[0]) for s in find.splitlines() if f"trial() {tmp_path}/found/trials/0000" in s]
    os.kill(victim, signal.SIGKILL)
    until(lambda: rows(tmp_path / "found/trials/0002"), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "trial 0 (1 of 3)  fail: killed by signal 9" in errors
    assert all("stopped by" in (tmp_path / f"found/trials/000{n}/log.txt").read_text() for n in (1, 2))


def test_an_interruption_waits_until_the_journal_is_written(tmp_path: Path) -> None:
    """Optuna's lock on it raises an error of its own when it is interrupted."""
    trial = Trial(tmp_path / "0000", tmp_path, {})
    trial.command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    done = list[str]()

    def should_stop(_: Trial) -> str:
        signal.raise_signal(signal.SIGINT)
        done.append("the whole of it")
        return ""

    with pytest.raises(KeyboardInterrupt):
        list(run_trials(iter([trial]), 1, should_stop))
    assert done == ["the whole of it"] and trial.process.returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_each_place_has_its_own_gpu_and_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert [environment(place, 3)["CUDA_VISIBLE_DEVICES"] for place in range(3)] == ["4", "6", "4"]
    assert environment(0, 3)["OMP_NUM_THREADS"] == "4" and "OMP_NUM_THREADS" not in environment(0, 1)
