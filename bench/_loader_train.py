"""The share of a training run that waits for the loader: the quick start's config on a set of random tokens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench._loader_set import write_set

CONFIG = Path(__file__).resolve().parent.parent / "configs/train/quickstart.yaml"
STEPS = 20


def measure(folder: Path) -> dict[str, Any]:
    """`share` of all seconds of the steps, `worst` of ten steps together, `tokens_per_second`."""
    from corpusmill.common.config import load
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.log.metrics import read_metrics

    shards, output = folder / "shards", folder / "run"
    shards.mkdir()
    # Of the quick start's vocabulary.
    write_set(shards, 8192, 1, 1, sorted(load(TrainConfig, CONFIG).data.weights))
    settings = [
        f"data.shards={shards}", f"output={output}", f"schedule.steps={STEPS}", "schedule.warmup_steps=2", "validation.every=null",
        "log.every=10", "log.tensorboard=false",
    ]  # fmt: skip
    sets = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "-m", "corpusmill.train", str(CONFIG), *sets]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CONFIG.parent.parent.parent)
    if done.returncode:
        raise RuntimeError(f"training failed: {done.stderr.strip().splitlines()[-1]}")
    rows = read_metrics(Folder(output))
    seconds = [
        1 / row["tokens_per_second"] for row in rows
    ]  # in proportion: all rows stand for as many steps
    stalls = [row["loader_stall"] for row in rows]
    return {
        "share": sum(s * t for s, t in zip(stalls, seconds, strict=True)) / sum(seconds),
        "worst": max(stalls),
        "tokens_per_second": len(rows) / sum(seconds),
    }


def line(found: dict[str, Any]) -> str:
    return (
        f"Training with {CONFIG.parent.name}/{CONFIG.name} on random tokens, {STEPS} steps at"
        f" {found['tokens_per_second']:,.0f} tokens/s: the loop waited for the loader {found['share']:.3%} of the time"
        f" (of ten steps together, the first among them: at most {found['worst']:.3%})."
    )
