"""What the driver of a run holds, by simulation: its structures at a hundredth and a tenth of the numbers of ten billion
documents, made of synthetic results without any text, each in a process of its own whose peak memory is measured."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bench.peers import ONE_THREAD

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = 10_000_000_000
PARTITIONS, TARS = 10_000, 4_000
# Structure -> how many there are for ten billion documents in that layout.
NUMBERS = {
    "manifest": PARTITIONS * 5, "survey": PARTITIONS, "slice": PARTITIONS * TARS, "row": 10_000_000, "block": 1_800_000,
}  # fmt: skip
SHARES = (0.01, 0.1)


class Held(NamedTuple):
    """Of one structure: numbers that were made and bytes that they took at most; bytes of one by the line through them; and what
    that makes for ten billion documents."""

    numbers: tuple[int, ...]
    bytes: tuple[int, ...]
    each: float
    at_ten_billion: float


def measure(shares: tuple[float, float] = SHARES) -> dict[str, Held]:
    """Every structure."""
    found = {}
    for name, number in NUMBERS.items():
        numbers = tuple(max(100, round(number * share)) for share in shares)
        peaks = tuple(in_child(name, one) for one in numbers)
        each = (peaks[1] - peaks[0]) / (numbers[1] - numbers[0])
        found[name] = Held(numbers, peaks, each, each * number)
    return found


def per_unit(found: dict[str, Held]) -> dict[str, float]:
    """The constants of `Constants`."""
    return {f"{name}_bytes": max(0.0, held.each) for name, held in found.items()}


def in_child(name: str, number: int) -> int:
    """Bytes that so many take at most, in a new process."""
    command = [sys.executable, "-c", "import sys; from bench._plan_driver import child; child(*sys.argv[1:])"]
    done = subprocess.run(
        [*command, name, str(number)], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True,
        env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    return int(json.loads(done.stdout))


def child(name: str, number: str) -> None:
    """What the process does: a few are made first, so that all is imported, then all of them."""
    from corpusmill.common.costs import peak_bytes, reset_peak

    STRUCTURES[name](100)
    reset_peak()
    before = peak_bytes()
    kept = STRUCTURES[name](int(number))
    print(json.dumps(peak_bytes() - before))
    del kept


def sent(value: Any) -> Any:
    """A task's result as it comes out of another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (our own)


def manifests(number: int) -> Any:
    """Manifests of partitions, as the tasks of local stages return them."""
    from corpusmill.schemas.manifest import Counts, PartitionManifest, PublishedFile

    counts = Counts(
        docs_in=1_000_000, kept=900_000, removed=100_000, bytes_in=3 * 10**9, bytes_kept=27 * 10**8
    )
    counters = {f"source/web/rule_number_{i}": i for i in range(40)}

    def one(i: int) -> PartitionManifest:
        kinds = ("documents", "decisions", "signals")
        files = [
            PublishedFile(path=f"{kind}/00-web_{i:08d}-000.parquet", rows=i, bytes=i, xxh3=f"{i:032x}")
            for kind in kinds
        ]
        return PartitionManifest(
            partition=f"00-web_{i:08d}-000", key=f"{i:032x}", counts=counts, per_source={"web": counts},
            files=files, counters=counters, seconds=1.0,
        )  # fmt: skip

    return [sent(one(i)) for i in range(number)]


def surveys(number: int) -> Any:
    """The report's counts of partitions, gathered as the stage does it."""
    from functools import partial

    from corpusmill.pipeline.report.survey import Survey

    total = Survey()
    for part in _Many(number).map(partial(_survey), range(number), ""):
        total.add(part, 3)
    return total


def _survey(i: int) -> Any:
    from collections import Counter

    from corpusmill.pipeline.report.survey import Failures, Rule, Survey

    rules = [Rule("filter", f"gopher.rule_{n}") for n in range(30)]
    rows = [
        {"doc_id": bytes([n]) * 16, "source": "web", "locator": "x" * 60, "detail": "y" * 60, "value": 0.5}
        for n in range(3)
    ]
    return Survey(
        outcomes=Counter({("web", "kept"): i}), text_bytes=Counter({("web", "kept"): i}),
        first=Counter({(rule, "removed", "web"): i for rule in rules}),
        failures=Failures(
            Counter(dict.fromkeys(rules, i)), Counter(dict.fromkeys(rules, i)),
            Counter({(a, b): i for a in rules for b in rules if a < b}),
            Counter({(rule, what, "web"): i for rule in rules for what in ("first", "failed", "alone")}),
        ),
        lengths=Counter({("kept", n): i for n in range(30)}), languages=Counter({("in", str(n)): i for n in range(60)}),
        picks={("removed", "filter", rule.rule): rows for rule in rules},
    )  # fmt: skip


class _Many:
    """A scheduler whose results come from other processes, as many as are held at once."""

    def __init__(self, number: int) -> None:
        self.number = number

    def map(self, function: Callable[[Any], Any], items: Any, label: str, sizes: Any = None) -> list[Any]:
        return [sent(function(item)) for item in items]


def slices(number: int) -> Any:
    """Slices between the phases of `shard`: sorted by shard, and the tasks of the second phase as they are sent."""
    from corpusmill.pipeline.shard.segments import SEGMENT
    from corpusmill.pipeline.shard.write import Routed, gather

    tars = max(10, round((number * TARS / PARTITIONS) ** 0.5))
    routed = []
    for i in range(max(1, number // tars)):
        segments = np.zeros(tars, SEGMENT)
        segments["bucket"], segments["docs"] = np.arange(tars), 1
        routed.append(sent(Routed(f"tokens/00-web_{i:08d}-000.bin", segments)))
    buckets = gather(routed)
    return routed, buckets, [pickle.dumps(bucket) for bucket in buckets]


def rows(number: int) -> Any:
    """Duplicate clusters by source, from as many partitions, until the groups of validation are chosen."""
    from corpusmill.pipeline.split.choose import choose
    from corpusmill.pipeline.split.measure import REST, ROWS, Measured, components_of, merged
    from corpusmill.schemas.split import SplitParams

    each = 6_000
    ids = np.random.default_rng(1).integers(0, 2**63, (number, 2))
    parts = []
    for first in range(0, number, each):
        some = np.ascontiguousarray(ids[first : first + each])
        unit = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(some), [None, pa.py_buffer(some.tobytes())]
        )
        size = pa.array(np.full(len(some), 3000))
        table = pa.table(
            {
                "source": ["web"] * len(some), "unit": unit, "host": [""] * len(some),
                "cluster": [True] * len(some), "docs": pa.array(np.ones(len(some), np.int64)), "bytes": size,
            },
            schema=ROWS,
        )  # fmt: skip
        rest = pa.table(
            {"source": ["web"], "docs": [10], "bytes": [30_000], "groups": [10], "complete": [2**64 - 1]},
            schema=REST,
        )
        parts.append(Measured(table, ROWS.empty_table(), rest))
    made = components_of(*merged(parts, 1))
    return choose(made, {"web": SplitParams().target("web")}, 1)


def blocks(number: int) -> Any:
    """Blocks of tokens in the results of tasks, in the index, and that as JSON."""
    from corpusmill.schemas.shards import Block, Shard, ShardIndex

    def one(i: int) -> Block:
        sums = dict.fromkeys(("xxh3", "docs_xxh3", "json_xxh3"), f"{i:032x}")
        sizes = dict.fromkeys(("size", "docs_size", "json_size", "header", "ntokens", "ndocs"), i)
        places = dict.fromkeys(("offset", "docs_offset", "json_offset"), i)
        return Block(key=f"web-train-{i // 450:06d}-{i % 450:06d}", **sums, **sizes, **places)

    shards = []
    for first in range(0, number, 450):
        mine = [one(i) for i in range(first, min(number, first + 450))]
        shard = Shard(
            url=f"web-train-{first:06d}.tar", nsamples=len(mine), filesize=1, sha256="0" * 64, ntokens=1, ndocs=1,
            text_bytes=1, blocks=mine,
        )  # fmt: skip
        shards.append(sent(shard))
    fields = {
        "name": "web-train", "source": "web", "split": "train", "shardlist": shards, **ShardIndex.totals(shards),
        "dtype": "uint16", "vocab_size": 32_000, "eos_id": 0, "tokenizer": "../../tokenizer.json",
        "tokenizer_xxh3": "0" * 32, "block_tokens": 1 << 22,
    }  # fmt: skip
    index = ShardIndex.model_validate(fields)
    return index, index.to_json()


STRUCTURES: dict[str, Callable[[int], Any]] = {
    "manifest": manifests, "survey": surveys, "slice": slices, "row": rows, "block": blocks,
}  # fmt: skip
