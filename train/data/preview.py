"""What a run will read, before it runs: tokens, epochs, steps, bytes, requests and their cost, memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.plan import Plan
from corpusmill.train.data.planning import MANY_EPOCHS, epochs, last_step, make_plan
from corpusmill.train.data.shards import Shards
from corpusmill.train.data.simulate import reads

GET_PRICE = (
    0.0004  # USD for 1,000 GET requests: Amazon S3 Standard, us-east-1. Traffic within the region is free
)


def describe_plan(config: TrainConfig, world: int = 1) -> dict[str, Any]:
    """The whole run on `world` data-parallel processes; `warnings` in words. Raises `UserError` as `make_plan` does."""
    shards = open_run_data(config)
    steps = config.schedule.steps
    plan = make_plan(config.data, shards, config.seed, steps)
    sizes = [_block_bytes(shards, source.name) for source in plan.sources]
    token = 2 if shards.set.dtype == "uint16" else 4
    memory = int(config.data.fetch.memory_mb * 2**20)
    found = reads(plan, sizes, token, world, memory)
    times, drawn, trained = epochs(plan, steps), plan.drawn(steps), plan.trained(steps)
    stored = sum(int(size.sum()) for size in sizes)
    # What all fits in memory is fetched once by whoever wants it.
    bound = world * sum(len(size) for size in sizes) if stored <= memory else float("inf")
    requests = min(found.requests * int(drawn.sum()), bound)
    length = plan.sequence_length
    result: dict[str, Any] = {
        "name": config.name,
        "plan": plan.sha256,
        "steps": steps,
        "sequence_length": length,
        "global_batch": config.data.global_batch,
        "tokens": plan.tokens(steps),
        "tokens_skipped": int((drawn - trained).sum()) * length,
        "world": world,
        "bytes": stored,
        "bytes_read": round(min(found.fetched * int(drawn.sum()) * length * token, stored * world if stored <= memory
                                else float("inf"))),
        "requests": round(requests),
        "requests_usd": requests / 1000 * GET_PRICE,
        "amplification": found.fetched,
        "memory_bytes": found.resident,
        "cache_bytes": stored,
        "stages": _stages(plan),
        "sources": {},
        "left_out": [name for name in shards.train if name not in times],
        "warnings": [],
    }  # fmt: skip
    for number, source in enumerate(plan.sources):
        result["sources"][source.name] = {
            "slots": [stretch.counts[number] for stretch in plan.stretches],
            "share": int(trained[number]) / max(int(trained.sum()), 1),
            "tokens_available": source.tokens,
            "tokens_unused": source.tokens
            - source.cells.total * length,  # ends of blocks, shorter than a sequence
            "tokens_trained": int(trained[number]) * length,
            "epochs": times[source.name],
            "blocks": source.blocks,
            "bytes": int(sizes[number].sum()),
        }
        if times[source.name] > MANY_EPOCHS:
            result["warnings"].append(
                f"'{source.name}' is read {times[source.name]:.1f} times; beyond {MANY_EPOCHS} epochs, repeats teach"
                f" clearly less (Muennighoff et al. 2023): multiply its share by"
                f" {MANY_EPOCHS / times[source.name]:.3g} or set schedule.steps to"
                f" {max(last_step(plan, number, MANY_EPOCHS, steps), 1)}"
            )
    if not found.fits and stored > memory:
        result["warnings"].append(
            f"the lanes of a process have {found.resident / 2**20:,.0f} MiB of blocks open at once, and"
            f" data.fetch.memory_mb is {config.data.fetch.memory_mb:g}: set it to {_mebibytes(found.resident):,} or more,"
            f" or blocks are fetched {found.fetched:.1f} times"
        )
    return result


def _mebibytes(size: int) -> int:
    return -(-size * 5 // 4 // 2**20)  # and a quarter for what is read ahead


def _block_bytes(shards: Shards, name: str) -> np.ndarray:
    return np.array([block.size + block.docs_size for _, block in shards.train[name].blocks], dtype=np.int64)


def _stages(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "from_step": stretch.first_step,
            "sequence_length": stretch.length,
            "global_batch": stretch.cells * (plan.sequence_length // stretch.length),
            "lanes": sum(stretch.counts),
        }
        for stretch in plan.stretches
    ]
