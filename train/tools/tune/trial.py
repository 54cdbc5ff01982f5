"""One trial: `corpusmill train` in a separate process, which saves and ends if the search that started it dies."""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from corpusmill.common.config import override, validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.process import Stop

POLL_S = 0.1


class Trial:
    """A training process, its folder (which is its run's), and why it was stopped, if it was."""

    def __init__(self, folder: Path, config: Path, settings: dict[str, Any]) -> None:
        self.folder, self.verdict = folder, ""
        # A run that would roll back has bad values: it ends instead of continuing with a lower rate.
        given = {"guard.max_rollbacks": 0, **settings, "output": str(folder)}
        pairs = [part for key, value in given.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        self.command = [
            sys.executable,
            "-c",
            "from corpusmill.train.commands.tune import trial; trial()",
            str(folder),
            str(config),
            *pairs,
        ]
        self._seen, self._step = (0, 0), 0  # of metrics.jsonl

    def start(self, environment: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.txt").open("ab") as log:
            self._log_start = log.tell()
            # A session of its own: Ctrl-C reaches the search alone, which then ends its trials.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def problem(self) -> str:
        """Why it failed, in one line; empty if it did not."""
        code = self.process.returncode
        if code == 0:
            return ""
        if code < 0:
            return f"killed by signal {-code}"
        with (self.folder / "log.txt").open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        last = [line for line in lines if line.strip()][-1:]
        return [*errors, *last, f"exit code {code}"][0]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of metrics.jsonl that have come since the last call."""
        from corpusmill.train.log.metrics import read_metrics

        file = self.folder / "metrics.jsonl"
        found = file.stat() if file.exists() else None
        if found and self._seen != (found.st_mtime_ns, found.st_size):
            self._seen = found.st_mtime_ns, found.st_size
            for row in read_metrics(Folder(self.folder)):
                if row["step"] > self._step:
                    self._step = row["step"]
                    yield row

    def result(self) -> dict[str, Any]:
        """What result.json holds."""
        return dict(json.loads((self.folder / "result.json").read_text(encoding="utf-8")))


def check_trial(base: dict[str, Any], values: dict[str, Any]) -> None:
    """Raise `UserError` if the training config is impossible with these values."""
    given = override(base, [f"{key}={json.dumps(value)}" for key, value in values.items()])
    validate(TrainConfig, given, "config")


def objective(job: Trial, key: str) -> float | None:
    """The objective of a finished trial; None if it is not finite. Raises `UserError` if its result has no such key."""
    result = job.result()
    value = number_at(result, key)
    if value is None:
        has = ", ".join(result)
        raise UserError(f"objective: {job.folder}/result.json has no number at {key} (it has: {has})")
    return value if math.isfinite(value) else None


def number_at(row: dict[str, Any], key: str) -> float | None:
    """The number at a dotted key, or the mean of those in the mapping there; None if there is none."""
    place: Any = row
    for part in key.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    if isinstance(place, dict):
        numbers = [value for value in place.values() if isinstance(value, int | float)]
        return statistics.fmean(numbers) if numbers else None
    return float(place) if isinstance(place, int | float) else None


def run_trials(
    trials: Iterator[Trial], parallel: int, should_stop: Callable[[Trial], str]
) -> Generator[Trial, None, None]:
    """Run trials, `parallel` at a time, and yield each when it has ended.

    `should_stop` is called often, and once after the end; a reason that it returns kills the trial. When the generator is
    closed, running trials save and end. The next trial is taken when a place is free, after ended ones were yielded.
    A SIGINT or SIGTERM ends them too, and has its usual effect after that: Optuna's lock on its journal, interrupted while it is
    acquired, raises an error of its own.
    """
    running: dict[int, Trial] = {}
    ending = Stop()
    try:
        while not ending.signal:
            for place in range(parallel):
                if place not in running and (trial := next(trials, None)):
                    trial.start(environment(place, parallel))
                    running[place] = trial
            if not running:
                return
            for place, trial in list(running.items()):
                ended = trial.process.poll() is not None
                trial.verdict = trial.verdict or should_stop(trial)
                if trial.verdict and not ended:
                    trial.process.kill()
                if ended:
                    del running[place]
                    stop([trial])
                    yield trial
            time.sleep(POLL_S)
    finally:
        stop(list(running.values()))
        ending.release()
        if ending.signal:
            signal.raise_signal(ending.signal)


def stop(trials: list[Trial]) -> None:
    """Let trials save and end; wait for them."""
    for trial in trials:
        trial.process.terminate()
    for trial in trials:
        trial.process.wait()
        assert trial.process.stdin
        trial.process.stdin.close()


def environment(place: int, parallel: int) -> dict[str, str]:
    """Environment of the trial at this place: one GPU if there are several, and its share of the cores."""
    found = dict(os.environ)
    if parallel > 1:
        import torch

        every = ",".join(map(str, range(torch.cuda.device_count())))
        gpus = found.get("CUDA_VISIBLE_DEVICES", every).split(",")
        if len(gpus) > 1:
            found["CUDA_VISIBLE_DEVICES"] = gpus[place % len(gpus)]
        found.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // parallel)))
    return found


def hold(file: Path, wait: bool = False) -> Any:
    """A lock on `file`, held as long as the returned file is open; raises `BlockingIOError` if another process has it."""
    lock = file.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    return lock
