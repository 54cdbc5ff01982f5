"""The folder of a run that never ran: config, plan, rows and a journal, as the trainer and the guard write them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.run_folder import CONFIG, PLAN, RESULT, dumped, write_json

JOURNAL: list[dict[str, Any]] = [
    {"entry": 1, "step": 410, "kind": "skip", "why": "grad_norm 38.2 is 24 deviations above the median 0.71"},
    {
        "v": 1, "entry": 2, "step": 900, "kind": "rollback", "why": [{"signal": "loss", "value": 7.9134, "limit": 4.021}],
        "to_step": 840, "lr_factor": 0.5, "skipped": {"step": 841, "batches": 60}, "until_step": 940, "healthy": True,
        "documents": {"wiki": [f"{n:032x}" for n in range(40)], "code": ["0" * 32]},
    },
]  # fmt: skip


def config_of(run: Folder, name: str = "made", steps: int = 2000, **settings: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "name": name, "output": run.url, "data": {"shards": "shards", "global_batch": 64, "sequence_length": 1024},
            "schedule": {"steps": steps, "warmup_steps": steps // 20}, **settings,
        }
    )  # fmt: skip


def row_of(
    step: int, steps: int, rng: np.random.Generator, sources: list[str], layers: int = 4
) -> dict[str, Any]:
    """Numbers as of a run that learns, with a spike where JOURNAL has one."""
    spike = 4 * math.exp(-abs(step - 900) / 5) + 0.02 * rng.standard_normal()
    loss = 2.6 + 7.5 / (1 + step / 60) + spike
    rate = 1e-3 * min(step / (steps / 20), 0.55 + 0.45 * math.cos(math.pi * step / steps))
    return {
        "step": step, "tokens": step * 65536, "loss": loss,
        "loss_per_source": {s: loss + 0.3 * i - 0.3 + 0.05 * rng.standard_normal() for i, s in enumerate(sources)},
        "lr": rate, "grad_norm": 0.4 + 2 / (1 + step / 20) + abs(spike) * 3, "param_norm": 120 + 30 * step / steps,
        "update_norm": 300 * rate * (1 + 0.1 * rng.random()), "activation_rms": 1 + math.log(1 + step / 100),
        "attention_entropy": {f"layer_{n}": 3.2 - 0.1 * n - 0.5 * step / steps for n in range(layers)},
        "logit_max": 9 + rng.random(), "loss_scale": None if step < 20 else 2.0 ** (16 - (step > 900)),
        "z_loss": 0.01 / (1 + step / 300),
        "expert_load": {f"layer_{n}": {"max": 1.4 + 0.2 * rng.random(), "min": 0.5} for n in (1, 3)},
        "tokens_per_second": 412_000 + 9000 * rng.standard_normal(), "mfu": 0.47 + 0.01 * rng.standard_normal(),
        "loader_stall": 0.001 * rng.random(), "memory_mib": 61_440.0, "blocks_replaced": 0,
    }  # fmt: skip


def make_run(
    run: Folder, rows: int = 120, name: str = "made", steps: int = 2000, sources: tuple[str, ...] = ("wiki", "books", "code"),
    journal: list[dict[str, Any]] | None = None, layers: int = 4, done: bool = False, **settings: Any,
) -> TrainConfig:  # fmt: skip
    """Rows evenly over the first 0.8 of the steps (all, if `done`), validation at each tenth."""
    config, rng = config_of(run, name, steps, **settings), np.random.default_rng(5)
    write_json(run / CONFIG, dumped(config))
    made = {
        s: {"tokens": 10**9 * (i + 1), "blocks": 9, "sequences": 9, "chunk": 1, "index_xxh3": "0"}
        for i, s in enumerate(sources)
    }
    stages = {
        str(at): {
            "sequence_length": 1024,
            "batch": 64,
            "lanes": 64,
            "slots": {s: 1 + i * at for i, s in enumerate(sources)},
        }
        for at in (1, steps // 2)
    }
    write_json(run / PLAN, {"v": 2, "seed": 0, "sources": made, "stages": stages, "skip": {}})
    lines = []
    for number in range(1, rows + 1):
        step = max(1, round(steps * number / rows * (1 if done else 0.8)))
        row = row_of(step, steps, rng, list(sources), layers)
        if number % max(rows // 10, 1) == 0:
            row["validation"] = {s: row["loss"] + 0.2 * i for i, s in enumerate(sources)}
        lines.append(json.dumps(row))
    (run / "metrics.jsonl").write(("\n".join(lines) + "\n").encode() if lines else b"")
    entries = JOURNAL if journal is None else journal
    (run / "journal.jsonl").write("".join(json.dumps(entry) + "\n" for entry in entries).encode())
    if done:
        write_json(run / RESULT, {"steps": steps, "parameters": 123_550_464, "validation": {}})
    return config
