"""One worker of several: trains small models by each way of exchanging weights, and the first prints their losses on held-out rows as JSON
lines. argv: JSON list of [name, settings of `outer` or null], and a folder. With `lost` among the settings the last worker ends halfway."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench._books import tokens

VOCABULARY, LENGTH, ROWS, STEPS, RATE, HELD, SEEDS = 512, 64, 16, 240, 3e-3, 64, 3
LOST = "lost"
MODEL: dict[str, Any] = {"dim": 96, "layers": 4, "heads": 4, "ffn_dim": 256}


def config_of(outer: dict[str, Any] | None, seed: int) -> Any:
    from corpusmill.schemas.training import TrainConfig

    return TrainConfig.model_validate(
        {
            "name": "workers", "model": MODEL, "precision": "fp32", "device": "cpu", "threads": 1, "seed": seed,
            "data": {"shards": "-", "sequence_length": LENGTH, "global_batch": ROWS, "micro_batch": 1},
            "optimizer": {"lr": RATE}, "schedule": {"steps": STEPS, "warmup_steps": 20},
            **({} if outer is None else {"outer": outer}),
        }
    )  # fmt: skip


def batch_of(rows: Tensor) -> dict[str, Tensor]:
    places = torch.arange(LENGTH).expand(len(rows), LENGTH)
    return {
        "tokens": rows[:, :-1], "labels": rows[:, 1:], "documents": torch.zeros_like(places), "positions": places,
        "source_id": torch.zeros(len(rows), dtype=torch.int64), "n": torch.arange(len(rows)),
    }  # fmt: skip


def gather(world: Any, size: int, store: str) -> Any:
    """The first `size` workers, in a group of their own; `store`: a file that is new."""
    if dist.is_initialized():  # in a worker that was lost it is not
        dist.destroy_process_group()
    if world.rank < size:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=world.rank, world_size=size)
    return replace(world, size=size)


def trained(
    outer: dict[str, Any] | None, seed: int, ids: Tensor, held: Tensor, world: Any, folder: str
) -> tuple[float, int]:
    """(held-out loss of the weights in common in nats a token, bytes that this worker gave to be sent) of a run. Without `outer` gradients
    are summed every step."""
    from corpusmill.train.optim import make_optimizer
    from corpusmill.train.outer.worker import Outer
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import build
    from corpusmill.train.step import TrainState, train_step

    outer, whole = dict(outer) if outer else None, world
    lost = bool(outer and outer.pop(LOST, False))
    config = config_of(outer, seed)
    config = config.model_copy(update={"data": config.data.model_copy(update={"micro_batch": ROWS})})
    model = build(config, VOCABULARY, world if outer is None else World())
    optimizer = make_optimizer(model, config.optimizer)
    state = TrainState(config, model, optimizer, torch.zeros(1, 2, dtype=torch.float64))
    if config.outer is not None:
        state.outer = Outer(config.outer, model, optimizer, world)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        if lost and step == STEPS // 2 and state.outer is not None:
            state.outer.world = world = gather(world, world.size - 1, f"{folder}/{seed}-fewer")
            if world.spare:
                break
        rows = ids[torch.randint(len(ids), (ROWS,), generator=generator)].tensor_split(world.size)[world.rank]
        share = ROWS if outer is None else len(rows)
        train_step(state, batch_of(rows), float(share * LENGTH))
    if lost:
        gather(whole, whole.size, f"{folder}/{seed}-all")
    model.train(False)
    with torch.no_grad():
        loss = float(model.losses({"tokens": held[:, :-1], "labels": held[:, 1:]}).mean())
    gradients = 4 * sum(p.numel() for p in model.parameters()) * STEPS
    return loss, state.outer.bytes_sent if state.outer else gradients


def main() -> None:
    from corpusmill.train.parallel.mesh import join

    world = join(config_of(None, 0).model_copy(update={"output": sys.argv[2]}))
    ids = tokens(VOCABULARY)
    ids = ids[: len(ids) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    ids, held = ids[:-HELD], ids[-HELD:]
    for name, outer in json.loads(sys.argv[1]):
        for seed in range(SEEDS):
            loss, sent = trained(outer, seed, ids, held, world, sys.argv[2])
            if world.first:
                print(json.dumps([name, seed, loss, sent]), flush=True)
    world.close()
    os._exit(0)  # gloo's threads may outlive the interpreter's end


if __name__ == "__main__":
    main()
