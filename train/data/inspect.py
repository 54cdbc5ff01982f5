"""What a batch is made of, past or future, from the plan alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.fetch import BlockData, Blocks
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import Piece, best_fit
from corpusmill.train.data.plan import Plan
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import Shards, open_run_data

Ints = npt.NDArray[np.int64]


def describe_batch(
    config: TrainConfig, step: int, rank: int | None = None, world: int = 1, text: bool = False
) -> dict[str, Any]:
    """The batch that optimizer step `step` (counted from 1, as metrics.jsonl does) takes, or a rank's part of it.

    Per sequence: slot, n, source, epoch, shard, block, the token ranges of the block that are its labels (half open;
    one for consecutive tokens, several for packed documents), and its documents with the characters of the cleaned text
    that the block holds of each; with `text`, its tokens decoded. A run that was rolled back passes over data that its
    config does not name: `corpusmill.train.guard.journal.of_run`. Raises `UserError` for a rank that is not there.
    """
    shards = open_run_data(config)
    plan = make_plan(config.data, shards, config.seed)
    if rank is not None and not 0 <= rank < world:
        raise UserError(f"--rank {rank}: must be 0 to {world - 1} (--world is {world})")
    stage = plan.segment_of(step).stage
    if stage.sequences % world:
        raise UserError(
            f"--world {world}: the batch of step {step} holds {stage.sequences} sequences of full length, which do not"
            f" divide by it"
        )
    numbers = plan.numbers(step, rank or 0, world if rank is not None else 1)
    return {
        "step": step,
        "plan": plan.sha256,
        "sequences": describe(shards, plan, config.data.fetch, step, numbers, text),
    }


def describe(
    shards: Shards, plan: Plan, fetch: FetchConfig, step: int, numbers: Ints, text: bool = False
) -> list[dict[str, Any]]:
    """The sequences of `describe_batch`: those of `numbers`, which are of the step's batch."""
    stage = plan.segment_of(step).stage
    at = order(plan, numbers)
    keys = list(zip(at.source.tolist(), at.block.tolist(), strict=True))
    sources = [shards.train[source.name] for source in plan.sources]
    blocks = Blocks(sources, FetchConfig(**{**fetch.model_dump(), "bad_blocks": 2**31}))
    try:
        data = blocks.get(keys)  # all of it, so that a damaged block shows the documents of its substitute
        members = {key: blocks.documents(key) for key in sorted(set(keys))}
    finally:
        blocks.close()
    decode = _decoder(shards.tokenizer()) if text else None
    sequences: list[dict[str, Any]] = []
    for i, (key, sequence, n) in enumerate(zip(keys, at.sequence.tolist(), numbers.tolist(), strict=True)):
        shard, block = sources[key[0]].blocks[key[1]]
        member = members[key]
        starts = np.array(member.token_starts)
        parts = plan.sequence_length // stage.length
        for part, row in enumerate(_rows(plan, stage.length, data[key], sequence)):
            covered = [
                d
                for start, size in row
                for d in range(
                    max(int(np.searchsorted(starts, start, "right")) - 1, 0),
                    int(np.searchsorted(starts, start + size - 1, "right")),
                )
            ]
            found: dict[str, Any] = {
                "slot": (n - plan.start_of(step)) * parts + part,
                "n": n,
                "source": sources[key[0]].name,
                "epoch": int(at.epoch[i]),
                "shard": shard.url,
                "block": block.key,
                "tokens": [[start, start + size] for start, size in row],
                "documents": [
                    {"doc_id": member.doc_ids[d], "chars": [member.char_starts[d], member.char_ends[d]]}
                    for d in dict.fromkeys(covered)
                ],
            }
            if decode:
                tokens = data[key].tokens
                found["text"] = "".join(decode(tokens[start : start + size].tolist()) for start, size in row)
            sequences.append(found)
    return sequences


def _rows(plan: Plan, length: int, block: BlockData, sequence: int) -> list[list[Piece]]:
    """The rows of a sequence as pieces of its block, by their labels."""
    parts = plan.sequence_length // length
    if plan.packing == "windows":
        return [[Piece((sequence * parts + part) * length + 1, length)] for part in range(parts)]
    rows = (len(block.tokens) - 1) // plan.sequence_length * parts
    return best_fit(block.starts, len(block.tokens), length, rows)[sequence * parts : (sequence + 1) * parts]


def _decoder(tokenizer: bytes) -> Any:
    from tokenizers import Tokenizer

    made = Tokenizer.from_str(tokenizer.decode())
    return lambda ids: made.decode(ids, skip_special_tokens=False)
