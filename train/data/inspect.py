"""What a batch is made of, past or future, from the plan alone; and what a run will read, before it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.training import TrainConfig
from train.data.fetch import Blocks
from train.data.order import order
from train.data.plan import MANY_EPOCHS, Plan, make_plan
from train.data.shards import Shards, open_shards


def describe_batch(config: TrainConfig, step: int) -> dict[str, Any]:
    """The batch that optimizer step `step` (counted from 1, as metrics.jsonl does) takes.

    Per sequence: slot, n, source, epoch, shard, block, token range in the block (half open, last label
    included), and its documents with the characters of the cleaned text that the block holds of each.
    """
    shards = open_shards(config.data.shards)
    plan = make_plan(config.data, shards, config.seed)
    numbers = (step - 1) * plan.global_batch + np.arange(plan.global_batch)
    at = order(plan, numbers)
    sources = [shards.train[source.name] for source in plan.sources]
    blocks = Blocks(sources)
    try:
        members = {
            key: blocks.documents(key)
            for key in sorted({(int(s), int(b)) for s, b in zip(at.source, at.block, strict=True)})
        }
    finally:
        blocks.close()
    sequences = []
    for slot, n in enumerate(numbers):
        key = (int(at.source[slot]), int(at.block[slot]))
        shard, block = sources[key[0]].blocks[key[1]]
        low = int(at.sequence[slot]) * plan.sequence_length
        high = low + plan.sequence_length + 1
        member = members[key]
        first, last = np.searchsorted(member.token_starts, (low, high - 1), side="right")
        sequences.append(
            {
                "slot": slot,
                "n": int(n),
                "source": sources[key[0]].name,
                "epoch": int(at.epoch[slot]),
                "shard": shard.url,
                "block": block.key,
                "tokens": [low, high],
                "documents": [
                    {"doc_id": member.doc_ids[i], "chars": [member.char_starts[i], member.char_ends[i]]}
                    for i in range(max(int(first) - 1, 0), int(last))
                ],
            }
        )
    return {"step": step, "plan": plan.sha256, "sequences": sequences}


def describe_plan(config: TrainConfig) -> dict[str, Any]:
    """Tokens, epochs per source, steps and bytes of a run; `warnings` in words."""
    shards = open_shards(config.data.shards)
    plan = make_plan(config.data, shards, config.seed)
    steps, length = config.schedule.steps, plan.sequence_length
    epochs = plan.epochs(steps)
    sources, warnings = {}, []
    for source in plan.sources:
        index = shards.train[source.name].index
        blocks = shards.train[source.name].blocks
        stored = sum(block.size + block.docs_size for _, block in blocks)
        sources[source.name] = {
            "weight": source.weight,
            "share": source.lanes / plan.global_batch,
            "lanes": source.lanes,
            "tokens_available": index.ntokens,
            "tokens_unused": index.ntokens - source.total * length,  # ends of blocks, shorter than a sequence
            "tokens_trained": steps * source.lanes * length,
            "epochs": epochs[source.name],
            "blocks": len(blocks),
            "bytes": stored,
            "bytes_read": round(stored * min(epochs[source.name], 1) if _fits(plan, shards, config) else stored
                                * epochs[source.name]),
        }  # fmt: skip
        if epochs[source.name] > MANY_EPOCHS:
            warnings.append(
                f"'{source.name}' is read {epochs[source.name]:.1f} times; beyond {MANY_EPOCHS} epochs, repeats teach"
                f" clearly less (Muennighoff et al. 2023): lower its weight to"
                f" {source.weight * MANY_EPOCHS / epochs[source.name]:.3g} or schedule.steps to"
                f" {int(MANY_EPOCHS * source.total / source.lanes)}"
            )
    left_out = [name for name in shards.train if name not in sources]
    return {
        "name": config.name,
        "plan": plan.sha256,
        "steps": steps,
        "sequence_length": length,
        "global_batch": plan.global_batch,
        "tokens_per_step": plan.global_batch * length,
        "tokens": steps * plan.global_batch * length,
        "bytes": sum(int(source["bytes"]) for source in sources.values()),
        "bytes_read": sum(int(source["bytes_read"]) for source in sources.values()),
        "sources": sources,
        "left_out": left_out,
        "warnings": warnings,
    }


def _fits(plan: Plan, shards: Shards, config: TrainConfig) -> bool:
    """Whether all blocks stay in memory, so that each is fetched once."""
    size = sum(block.size for source in plan.sources for _, block in shards.train[source.name].blocks)
    return size <= config.data.cache_mb * 2**20
