"""What a run reads, from its plan alone: the documents of any batch, past or future; and, before the run, its tokens, epochs,
bytes, requests and their cost, and memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import BlockDocuments
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.curriculum import Curriculum
from corpusmill.train.data.fetch import BlockData, Blocks, Key
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.order import order
from corpusmill.train.data.pack import Piece, best_fit
from corpusmill.train.data.plan import Plan, StageSpec
from corpusmill.train.data.planning import MANY_EPOCHS, epochs, last_step, make_plan, mixtures_of
from corpusmill.train.data.shards import Shards

Ints = npt.NDArray[np.int64]


def describe_batch(
    config: TrainConfig, step: int, rank: int | None = None, world: int = 1, text: bool = False
) -> dict[str, Any]:
    """The batch of optimizer step `step` (counted from 1, as in metrics.jsonl), or a rank's part of it.

    Per sequence: slot, n, source, epoch, shard, block, the token ranges of the block that are its labels (half open;
    one for consecutive tokens, several for packed documents), under a curriculum its value of the signal, and its documents with the range of characters of the
    cleaned text that these labels are; with `text`, its tokens decoded. A run that was rolled back skips data that
    its config does not name: see `corpusmill.train.guard.journal.of_run`. Raises `UserError` for an impossible rank.
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
    """The sequences of `describe_batch` with these `numbers`, which belong to the step's batch."""
    stage = plan.segment_of(step).stage
    at = order(plan, numbers)
    keys = list(zip(at.source.tolist(), at.block.tolist(), strict=True))
    sources = [shards.train[source.name] for source in plan.sources]
    with closing(Blocks(sources, fetch.model_copy(update={"bad_blocks": 2**31}))) as blocks:
        data = blocks.get(keys)  # all of it, so that a damaged block shows the documents of its substitute
        members = {key: blocks.documents(key) for key in sorted(set(keys))}
    words = TokenText(shards.tokenizer(), shards.set.eos_id, f"{shards.folder / shards.set.tokenizer}")
    tokenizer = None
    if text:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(shards.tokenizer().decode())
    sequences: list[dict[str, Any]] = []
    for i, (key, sequence, n) in enumerate(zip(keys, at.sequence.tolist(), numbers.tolist(), strict=True)):
        shard, block = sources[key[0]].blocks[key[1]]
        member = members[key]
        starts = np.array([*member.token_starts, len(data[key].tokens)])
        parts = plan.sequence_length // stage.length
        difficulty = difficulty_of(plan, key, sequence)
        for part, row in enumerate(_rows(plan, stage.length, data[key], sequence)):
            found: dict[str, Any] = {
                "slot": (n - plan.start_of(step)) * parts + part,
                "n": n,
                "source": sources[key[0]].name,
                "epoch": int(at.epoch[i]),
                "shard": shard.url,
                "block": block.key,
                "tokens": [[start, start + size] for start, size in row],
                "documents": [
                    {"doc_id": member.doc_ids[d], "chars": chars}
                    for d, chars in _documents(words, member, data[key].tokens, starts, row)
                ],
            }
            if difficulty is not None:
                found[difficulty[0]] = difficulty[1]
            if tokenizer:
                parts_of_text = [data[key].tokens[start : start + size].tolist() for start, size in row]
                found["text"] = "".join(tokenizer.decode_batch(parts_of_text, skip_special_tokens=False))
            sequences.append(found)
    return sequences


def difficulty_of(plan: Plan, key: Key, sequence: int) -> tuple[str, float | None] | None:
    """Under a curriculum, the signal that orders a sequence and its value, null if it has none."""
    of = plan.sources[key[0]].sequences
    if not isinstance(of, Curriculum):
        return None
    value = float(of.difficulty(np.array([key[1]]), np.array([sequence]))[0])
    return of.config.signal, None if math.isnan(value) else value


def _documents(
    words: TokenText, member: BlockDocuments, tokens: npt.NDArray[Any], starts: Ints, row: list[Piece]
) -> Iterator[tuple[int, list[int]]]:
    """Of each document in a row, its number in the block and the range of characters of its cleaned text that are the row's
    labels; with a tokenizer that is not byte-level, what the block has of it."""
    for start, size in row:
        first = max(int(np.searchsorted(starts[:-1], start, "right")) - 1, 0)
        for d in range(first, int(np.searchsorted(starts[:-1], start + size - 1, "right"))):
            low, high = int(starts[d]), int(starts[d + 1])
            if not words.byte_level:
                yield d, [member.char_starts[d], member.char_ends[d]]
                continue
            begin, end = max(low, start), min(high, start + size) - 1
            yield d, list(words.reach(tokens[low:high], member.char_starts[d], begin - low, end - low))


def _rows(plan: Plan, length: int, block: BlockData, sequence: int) -> list[list[Piece]]:
    """The rows of a sequence as pieces of its block, by their labels."""
    parts = plan.sequence_length // length
    if plan.packing == "windows":
        return [[Piece((sequence * parts + part) * length + 1, length)] for part in range(parts)]
    rows = (len(block.tokens) - 1) // plan.sequence_length * parts
    return best_fit(block.starts, len(block.tokens), length, rows)[sequence * parts : (sequence + 1) * parts]


GET_PRICE = (
    0.0004  # USD for 1,000 GET requests: Amazon S3 Standard, us-east-1; traffic within the region is free
)


def describe_plan(config: TrainConfig, world: int = 1) -> dict[str, Any]:
    """The whole run on `world` data-parallel processes; `warnings` in words. Raises `UserError` as `make_plan` does."""
    shards = open_run_data(config)
    steps = config.schedule.steps
    plan = make_plan(config.data, shards, config.seed, steps)
    sizes = [
        np.array(
            [block.size + block.docs_size for _, block in shards.train[source.name].blocks], dtype=np.int64
        )
        for source in plan.sources
    ]
    token = 2 if shards.set.dtype == "uint16" else 4
    memory = int(config.data.fetch.memory_mb * 2**20)
    found = reads(plan, sizes, token, world, memory)
    times, drawn, trained = epochs(plan, steps), plan.drawn(steps), plan.trained(steps)
    stored = sum(int(size.sum()) for size in sizes)
    length = plan.sequence_length
    requests = found.requests * int(drawn.sum())
    bytes_read = found.fetched * int(drawn.sum()) * length * token
    if stored <= memory:  # what fits in memory as a whole is fetched once by each process
        requests = min(requests, world * sum(len(size) for size in sizes))
        bytes_read = min(bytes_read, stored * world)
    there = {name: source.index.ntokens for name, source in shards.train.items() if source.index.ntokens}
    mixtures = mixtures_of(config.data, there, shards.replayed)
    asked = [
        mixtures[sum(later.from_step <= stage.first_step for later in config.data.stages)]
        for stage in plan.stages
    ]
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
        "bytes_read": round(bytes_read),
        "requests": round(requests),
        "requests_usd": requests / 1000 * GET_PRICE,
        "amplification": found.fetched,
        "memory_bytes": found.resident,
        "cache_bytes": stored,
        "stages": [
            {
                "from_step": stage.first_step,
                "sequence_length": stage.length,
                "global_batch": stage.sequences * (length // stage.length),
                "lanes": sum(stage.counts),
            }
            for stage in plan.stages
        ],
        "sources": {},
        "left_out": [name for name in shards.train if name not in times],
        "warnings": [],
    }
    for number, source in enumerate(plan.sources):
        result["sources"][source.name] = {
            "asked": [mixture.get(source.name, 0.0) for mixture in asked],
            # What a batch has, to one sequence, and what all lanes have together.
            "in_a_batch": [_in_a_batch(stage, number) for stage in plan.stages],
            "given": [stage.counts[number] / sum(stage.counts) for stage in plan.stages],
            "slots": [stage.counts[number] for stage in plan.stages],
            "share": int(trained[number]) / max(int(trained.sum()), 1),
            "tokens_available": source.tokens,
            # The ends of blocks, shorter than a sequence.
            "tokens_unused": source.tokens - source.sequences.total * length,
            "tokens_trained": int(trained[number]) * length,
            "epochs": times[source.name],
            "blocks": source.blocks,
            "bytes": int(sizes[number].sum()),
        }
        if isinstance(source.sequences, Curriculum):
            part = float(source.sequences.competence(int(drawn[number])))
            result["sources"][source.name]["curriculum"] = {
                "draws": source.sequences.draws,
                "part_at_end": part,
            }
            if part < 1:
                result["warnings"].append(
                    f"'{source.name}': at the end of the run only the easiest {part:.0%} may be drawn: lower"
                    f" data.curriculum.over to {steps} or less"
                )
        if times[source.name] > MANY_EPOCHS:
            result["warnings"].append(
                f"'{source.name}' is read {times[source.name]:.1f} times; beyond {MANY_EPOCHS} epochs, repeats teach"
                f" clearly less (Muennighoff et al. 2023): multiply its share by"
                f" {MANY_EPOCHS / times[source.name]:.3g} or set schedule.steps to"
                f" {max(last_step(plan, number, MANY_EPOCHS, steps), 1)}"
            )
    if not found.fits and stored > memory:
        enough = -(-found.resident * 5 // 4 // 2**20)  # MiB, a quarter more for what is read ahead
        result["warnings"].append(
            f"the lanes of a process have {found.resident / 2**20:,.0f} MiB of blocks open at once, and"
            f" data.fetch.memory_mb is {config.data.fetch.memory_mb:g}: set it to {enough:,} or more,"
            f" or blocks are fetched {found.fetched:.1f} times"
        )
    return result


def _in_a_batch(stage: StageSpec, source: int) -> list[int]:
    """[least, most] sequences of a source in a batch."""
    part, lanes = stage.counts[source] * stage.sequences, sum(stage.counts)
    return [part // lanes, -(-part // lanes)]


SAMPLED_SEQUENCES = 1 << 21  # sequences walked for each rank, at most
SAMPLED_WINDOWS = 32  # windows of each lane walked, at most; the first and the last may be cut
SAMPLED_RANKS = 2


@dataclass(frozen=True)
class Reads:
    """What the ranks of a run read. `fetched` is 1 if every block is read once in an epoch."""

    requests: float  # blocks fetched for each sequence drawn
    fetched: float  # bytes fetched for each byte of the sequences drawn
    resident: int  # bytes of the blocks that a rank's lanes have open at once
    fits: bool  # whether they fit in its memory


def reads(
    plan: Plan,
    block_bytes: list[npt.NDArray[np.int64]] | list[int],
    token_bytes: int,
    world: int,
    memory: int,
) -> Reads:
    """Simulate some windows of all lanes, on the first rank and one in the middle, with `memory` bytes for blocks.

    `block_bytes`: per source, the bytes of each block, or of any. It simulates the last segment of the plan, from the first
    window without leftovers of earlier segments. Least recently used blocks are dropped first, so that the result is an
    upper bound: the loader knows the future.
    """
    segment = plan.segments[-1]
    batch, slots = segment.stage.sequences, len(segment.slots)
    window, first = 1, 0  # in batches
    for source, each in segment.assignments.items():
        drawn = segment.stage.counts[source] * batch / slots  # in a batch
        window = max(window, math.ceil(each.span * each.lanes / drawn))
        first = max(first, math.ceil(each.carried / drawn))
    share = batch // world
    most = max(SAMPLED_SEQUENCES // share, 1)
    count = window * min(SAMPLED_WINDOWS, most // window) if most >= window else most
    missed = sampled = fetched = resident = 0
    for rank in sorted({0, world // 2})[:SAMPLED_RANKS]:
        starts = segment.n + (first + np.arange(count)) * batch + rank * share
        at = order(plan, (starts[:, None] + np.arange(share)).ravel())
        size = np.array([np.max(b) for b in block_bytes])[at.source]
        for source, sizes in enumerate(block_bytes):
            if isinstance(sizes, np.ndarray):
                mine = at.source == source
                size[mine] = sizes[at.block[mine]]
        missed_now, fetched_now = _least_recently_used(at.source, at.block, size, memory)
        missed, fetched, sampled = missed + missed_now, fetched + fetched_now, sampled + len(size)
        resident = max(resident, _open(at.source, at.block, size))
    read = sampled * plan.sequence_length * token_bytes
    return Reads(missed / sampled, fetched / read, resident, resident <= memory)


def _least_recently_used(
    source: npt.NDArray[np.int64], block: npt.NDArray[np.int64], size: npt.NDArray[np.int64], memory: int
) -> tuple[int, int]:
    """(misses, bytes fetched) of a series of reads."""
    kept: OrderedDict[tuple[int, int], int] = OrderedDict()
    held = misses = fetched = 0
    for s, b, n in zip(source.tolist(), block.tolist(), size.tolist(), strict=True):
        if (s, b) in kept:
            kept.move_to_end((s, b))
            continue
        kept[s, b] = n
        misses, fetched, held = misses + 1, fetched + n, held + n
        while held > memory and len(kept) > 1:
            held -= kept.popitem(last=False)[1]
    return misses, fetched


def _open(source: npt.NDArray[np.int64], block: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> int:
    """The most bytes of blocks that are between their first and their last read at one time."""
    _, which = np.unique(np.stack([source, block]), axis=1, return_inverse=True)
    which = which.ravel()
    first, last = np.full(which.max() + 1, len(which)), np.zeros(which.max() + 1, dtype=np.int64)
    where = np.arange(len(which))
    np.minimum.at(first, which, where)
    np.maximum.at(last, which, where)
    change = np.zeros(len(which) + 1, dtype=np.int64)
    np.add.at(change, first, size[first])
    np.add.at(change, last + 1, -size[first])
    return int(np.cumsum(change).max())
