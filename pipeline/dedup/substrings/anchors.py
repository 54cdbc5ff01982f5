"""The first two steps: the anchors of each partition, and which of them are repeated."""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.dedup.spans import Kept
from corpusmill.pipeline.dedup.substrings import anchor_kernels, equal_units, tokens
from corpusmill.pipeline.dedup.substrings.substring_job import ANCHOR, Job, Range, answer
from corpusmill.pipeline.engine.shuffle import Done, in_range, once, write
from corpusmill.pipeline.text.shingles import one_array, view
from corpusmill.schemas.manifest import hash_json


def scan(job: Job, kept: Kept) -> Done:
    """Publishes the distinct anchors of a partition (`anchors`), ascending, cut by range; counts documents,
    tokens and bytes."""
    key = hash_json([job.key, "scan", kept.index, kept.partition.name, kept.partition.xxh3, kept.xxh3])
    name = f"scan/{kept.index:06d}"

    def step() -> Done:
        text = one_array(kept.read(["text"])["text"])
        offsets, data = view(text)
        rows = np.arange(len(text), dtype=np.int64)
        anchors, count = anchor_kernels.winnow(offsets, data, rows, tokens.classes(), *job.winnow)
        anchors.sort()
        anchors = anchors[: anchor_kernels.distinct(anchors)]
        file = write(job.work, f"{name}.anchors", anchors, in_range(anchors, job.anchor_ranges))
        counters = {"documents": len(text), "tokens": int(count), "bytes": int(offsets[-1] - offsets[0])}
        return Done(key=key, files={"anchors": file}, counters=counters)

    return once(job.work, name, key, step)


def repeats(job: Job, item: Range) -> Done:
    """Answers whether each anchor of a range is repeated in the corpus."""
    return answer(job, "repeats", item, ANCHOR, equal_units.repeated)
