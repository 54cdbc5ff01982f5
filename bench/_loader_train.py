"""A training run beside its steps: the share of it that waits for the loader, and the CPU time of its start. The quick start's
config on a set of random tokens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench._loader_set import write_set

CONFIG = Path(__file__).resolve().parent.parent / "configs/train/quickstart.yaml"
STEPS = 20
FEW, MORE, TIMES = 4, 14, 3  # steps of two runs, whose difference is that of the steps; how often


def measure(folder: Path) -> dict[str, Any]:
    """`share` of all seconds of the steps, `worst` of ten steps together, `tokens_per_second`; `start`: CPU seconds of a run but
    for its steps, the median, and `step`: of one step."""
    from corpusmill.common.config import load
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.log.metrics import read_metrics

    shards, output = folder / "shards", folder / "run"
    shards.mkdir()
    # Of the quick start's vocabulary.
    write_set(shards, 8192, 1, 1, sorted(load(TrainConfig, CONFIG).data.weights))
    _train(shards, output, STEPS)
    rows = read_metrics(Folder(output))
    seconds = [
        1 / row["tokens_per_second"] for row in rows
    ]  # in proportion: all rows stand for as many steps
    stalls = [row["loader_stall"] for row in rows]
    starts, steps = [], []
    for _ in range(TIMES):
        few, more = (_train(shards, output, count) for count in (FEW, MORE))
        steps.append((more - few) / (MORE - FEW))
        starts.append(few - FEW * steps[-1])
    return {
        "share": sum(s * t for s, t in zip(stalls, seconds, strict=True)) / sum(seconds),
        "worst": max(stalls),
        "tokens_per_second": len(rows) / sum(seconds),
        "start": median(starts),
        "step": median(steps),
    }


def _train(shards: Path, output: Path, steps: int) -> float:
    """A run of so many steps in a process of its own, a new one: its CPU seconds. Raises `RuntimeError` if it fails."""
    shutil.rmtree(output, ignore_errors=True)
    settings = [
        f"data.shards={shards}", f"output={output}", f"schedule.steps={steps}", "schedule.warmup_steps=2",
        "schedule.decay_share=0.25", "validation.every=null", "log.every=10", "log.tensorboard=false",
    ]  # fmt: skip
    sets = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "-m", "corpusmill.train", str(CONFIG), *sets]
    root = CONFIG.parent.parent.parent
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=root) as process:
        errors = process.stderr.read().decode() if process.stderr else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"training failed: {errors.strip().splitlines()[-1]}")
    return used.ru_utime + used.ru_stime


def line(found: dict[str, Any]) -> str:
    return (
        f"Training with {CONFIG.parent.name}/{CONFIG.name} on random tokens, {STEPS} steps at"
        f" {found['tokens_per_second']:,.0f} tokens/s: the loop waited for the loader {found['share']:.3%} of the time"
        f" (of ten steps together, the first among them: at most {found['worst']:.3%}). Start and end of such a run take"
        f" {found['start']:.1f} CPU s, a step {found['step']:.2f} (processes of {FEW} and {MORE} steps in turn, medians of {TIMES})."
    )
