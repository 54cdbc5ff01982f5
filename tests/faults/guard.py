"""Faults for the guard: shards of noise, gradients that are not finite, a slow process, and a run that dies where it hurts.

python -m tests.faults.guard CONFIG KIND RANK STEP,STEP [DIE]
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.order import order
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import open_shards
from corpusmill.train.parallel.sharded_parameter import local
from tests.train.conftest import VOCAB

STEPS = 120
SOURCES = {"wiki": 24, "books": 8}  # shards; no block is read twice in as many steps


def settings(shards: Folder, output: str, **more: Any) -> dict[str, Any]:
    """A run of 3 s in which the loss falls from 4.6 to 1.5; `more` sets keys of its guard."""
    return {
        "name": "guarded", "output": output, "seed": 7,
        "data": {
            "shards": shards.url, "weights": {"wiki": 3, "books": 1}, "sequence_length": 24, "global_batch": 16,
            "micro_batch": 16, "window_blocks": 2,
        },
        "model": {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64, "vocab_multiple": 8, "dropout": 0.01},
        "optimizer": {"lr": 2e-2}, "schedule": {"steps": STEPS, "warmup_steps": 4}, "precision": "fp32",
        "guard": {"lr_steps": 10, "lr_ramp": 10, **more},
        "checkpoint": {"every": 10, "keep_last": 2}, "validation": {"every": None},
        "log": {"every": 1, "tensorboard": False}, "device": "cpu", "threads": 1,
    }  # fmt: skip


def blocks_of(config: dict[str, Any], steps: range, source: int = 0) -> set[int]:
    """The blocks of a source that the batches of some steps read."""
    made = TrainConfig.model_validate(config)
    plan = make_plan(made.data, open_shards(made.data.shards), made.seed)
    found: set[int] = set()
    for step in steps:
        at = order(plan, plan.numbers(step))
        found |= set(at.block[at.source == source].tolist())
    return found


def poison(shards: Folder, source: str, blocks: set[int]) -> set[str]:
    """Noise in place of the tokens of some blocks, with the right checksums; the ids of their documents."""
    folder, ids, number = shards / f"{source}/train", set[str](), 0
    index = json.loads((folder / "index.json").read())
    rng = np.random.default_rng(5)
    for shard in index["shardlist"]:
        data = bytearray((folder / shard["url"]).read())
        for block in shard["blocks"]:
            if number in blocks:
                begin, end = block["offset"], block["offset"] + block["size"]
                noise = rng.integers(1, VOCAB, block["ntokens"]).astype(index["dtype"]).tobytes()
                data[begin + block["header"] : end] = noise
                block["xxh3"] = checksum(bytes(data[begin:end]))
                member = data[block["json_offset"] : block["json_offset"] + block["json_size"]]
                ids |= set(json.loads(bytes(member))["doc_ids"])
            number += 1
        shard["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / shard["url"]).write(bytes(data))
    written = json.dumps(index).encode()
    (folder / "index.json").write(written)
    whole = json.loads((shards / "index.json").read())
    for entry in whole["sets"]:
        if (entry["source"], entry["split"]) == (source, "train"):
            entry["index_xxh3"] = checksum(written)
    (shards / "index.json").write(json.dumps(whole).encode())
    return ids


def planted(
    step: Callable[..., Any], at: set[int], value: float, rank: int = 0, times: int = 99
) -> Callable[..., Any]:
    """`train_step` with a value that is not finite in one element of one process's gradient, so often at some steps."""
    left = dict.fromkeys(at, times)

    def faulty(state: Any, *rest: Any, **more: Any) -> Any:
        number = state.step + 1
        if left.get(number, 0) < 1 or int(os.environ.get("RANK", "0")) != rank:
            return step(state, *rest, **more)
        left[number] -= 1
        complete = state.model.complete

        def harmed() -> None:  # after the gradients of all processes came together: in this one alone
            complete()
            local(next(p.grad for p in state.model.parameters() if p.grad is not None)).view(-1)[3] = value

        state.model.complete = harmed
        try:
            return step(state, *rest, **more)
        finally:
            state.model.complete = complete

    return faulty


def slow(step: Callable[..., Any], at: set[int], rank: int) -> Callable[..., Any]:
    """`train_step` that takes one process half a second longer at some steps."""

    def slowly(state: Any, *rest: Any, **more: Any) -> Any:
        if state.step + 1 in at and int(os.environ.get("RANK", "0")) == rank:
            time.sleep(0.5)
        return step(state, *rest, **more)

    return slowly


def main(config: str, kind: str, rank: str, steps: str, die: str = "") -> None:
    """A run with planted gradients. DIE: `journal` just before a rollback is written, `deleting` just after."""
    from corpusmill.train import trainer
    from corpusmill.train.guard.journal import Journal

    def dead(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    at = {int(step) for step in steps.split(",") if step}
    if kind == "slow":
        trainer.train_step = slow(trainer.train_step, at, int(rank))
    else:
        value = math.nan if kind == "nan" else math.inf
        trainer.train_step = planted(trainer.train_step, at, value, int(rank), 1)
    if die == "deleting":
        delete = trainer.delete_abandoned
        trainer.delete_abandoned = lambda run, entries: dead() if entries else delete(run, entries)
    if die == "journal":
        write = Journal.add

        def add(journal: Journal, **values: Any) -> Any:
            return dead() if values["kind"] == "rollback" else write(journal, **values)

        Journal.add = add  # type: ignore[method-assign]  # the fault: nothing else reaches into a run of its own
    sys.argv = ["train", config]
    from corpusmill.train.__main__ import main as run

    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
