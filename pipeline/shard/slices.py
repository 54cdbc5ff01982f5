"""How many slices the two phases of `shard` exchange, how they are read, and what both cost: the plan of the stage."""

from __future__ import annotations

import math
from dataclasses import replace

from corpusmill.common.storage import PART
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work, over_partitions
from corpusmill.pipeline.shard.plan import AROUND_TEXT, MIB
from corpusmill.pipeline.shard.segments import HEADER, window_bytes
from corpusmill.schemas.shards import ShardFormat, ShardParams

ITEM = 2  # bytes of a token: vocabularies above 65,536 have 4
NAME = "shard"


def touched(cells: float, records: float) -> float:
    """How many of `cells` get one or more of `records` that fall at random."""
    return cells * -math.expm1(-records / cells) if cells > 0 else 0.0


def expected(params: ShardParams, loaded: float, flow: Flow, known: Constants) -> Forecast:
    """The steps of the stage. Each partition is of one source, and its documents are spread over that source's shards;
    each task loads the tokenizer, of `loaded` bytes."""
    own, count = known.of(NAME), flow.partitions
    tokens = flow.text_bytes / known.bytes_per_token + flow.documents
    sizes = []  # of the kinds of shards
    if params.format != ShardFormat.text:
        sizes.append(tokens * ITEM)
    if params.format != ShardFormat.tokens:
        sizes.append(flow.text_bytes + flow.documents * AROUND_TEXT)
    routed = sum(sizes) + len(sizes) * flow.documents * HEADER.itemsize
    route = over_partitions(
        NAME, "route", flow, known, gets=3 * count, puts=(1 + len(sizes)) * count, written_bytes=routed,
        read_bytes=(16 * flow.validation + loaded) * count,
    )  # fmt: skip
    shards = slices = gets = puts = window = 0.0
    for size in sizes:
        mine = max(2.0 * flow.sources, size / (params.shard_mb * MIB))
        cut = count * touched(mine / flow.sources, flow.documents / max(1.0, count))
        files = cut / mine  # that a shard has slices of
        wide = min(float(window_bytes(math.ceil(files))), size / mine)
        windows = size / mine / max(1.0, wide)
        gets += cut + mine * (windows * touched(files, flow.documents / mine / max(1.0, windows)) + 2)
        puts += mine * (3 + max(0.0, size / mine / PART))
        shards, slices, window = shards + mine, slices + cut, max(window, wide)
    blocks = 0.0 if params.format == ShardFormat.text else tokens / params.block_tokens + shards
    written = sum(sizes) + flow.documents * own.row_bytes
    held = slices * known.slice_bytes + shards * known.task_bytes
    write = Work(
        "write", shards, read_bytes=routed + loaded * shards, written_bytes=written, kept_bytes=written, gets=gets, puts=puts,
        worker_bytes=own.base_bytes + 4 * window + flow.documents / max(1.0, shards) * HEADER.itemsize * 3,
        driver_bytes=held + blocks * known.block_bytes,
    )  # fmt: skip
    index = Work(
        "index", 1, puts=2 * flow.sources + 4, written_bytes=600 * blocks, kept_bytes=600 * blocks, one_core=True,
        driver_bytes=blocks * known.block_bytes,
    )  # fmt: skip
    return Forecast([replace(route, units={"mb": flow.megabytes}), write, index], flow)
