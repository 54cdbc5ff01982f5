"""The `dedup` stage: looks across partitions once, then removes from each what `prepare` found."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import banding
from corpusmill.pipeline.dedup.spans import SPANS, cut
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Context, LocalStage, Outcome, Transform
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.documents import DOCUMENTS
from corpusmill.schemas.ledger import DECISIONS, FAILED_RULE, REMOVED
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.recipe import Recipe


class Dedup(LocalStage):
    """Exact copies by text, words or URL; near-copies by MinHash LSH with an exact check of every pair; then
    repeated lines and runs of words cut out of what stays.

    Publishes `clusters.parquet` (every document that has copies, with the one that stays and the exact
    similarity), `removals/`, `spans/`, `plan.json` and `quality.json`; intermediate files lie in `scratch/`.
    """

    name = "dedup"
    version = "4"
    looks_across = True

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.banding = banding(self.params)
        for source in self.params.remove_only_from or ():
            if source not in recipe.sources:
                raise UserError(
                    f"dedup.remove_only_from: '{source}' is no source; sources are"
                    f" {', '.join(sorted(recipe.sources))}"
                )

    def key_params(self) -> dict[str, Any]:
        priorities = {name: source.priority for name, source in sorted(self.recipe.sources.items())}
        return {**self.recipe.params_of(self.name), "source_priority": priorities}

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.dedup.deduplication import Deduplication

        return Deduplication(context, self.params, self.banding, self.version).run()

    def transform(self, folder: Folder, partition: str) -> Transform:
        removals = read_table(folder / f"removals/{partition}.parquet")
        params: DedupParams = self.params
        spans = {
            kind: read_table(folder / f"spans/{kind.partition('.')[2]}/{partition}.parquet").cast(SPANS)
            for kind, wanted in (("dedup.lines", params.lines), ("dedup.substrings", params.substrings))
            if wanted is not None
        }
        return partial(apply, params, removals, spans, partition)


def apply(
    params: DedupParams, removals: pa.Table, spans: dict[str, pa.Table], partition: str, docs: pa.Table
) -> Outcome:
    """Remove a partition's documents as decided, then cut the spans out of those that stay."""
    whole = remove(removals, partition, params, docs)
    if not spans:
        return whole
    least = {"dedup.lines": params.lines, "dedup.substrings": params.substrings}
    cutting = cut(whole.kept, spans, {kind: limits.min_left for kind, limits in least.items() if limits})
    decisions = pa.concat_tables([whole.decisions, cutting.decisions])
    return Outcome(cutting.kept, decisions, counters=cutting.counters)


def remove(removals: pa.Table, partition: str, params: DedupParams, docs: pa.Table) -> Outcome:
    """Apply a partition's removals: removed documents get a decision, those that stay in a cluster its id.

    Raises `WorkError` if `removals` names a document that the partition has not.
    """
    row = pc.index_in(docs["doc_id"], value_set=removals["doc_id"])
    if len(removals) != len(docs) - row.null_count:
        raise WorkError(
            f"dedup: removals/{partition}.parquet was made for other documents; run the stage again"
        )
    kept_flags = removals["kept"].take(row)
    stays = pc.fill_null(kept_flags, True)
    marked = docs.set_column(
        DOCUMENTS.get_field_index("cluster_id"),
        DOCUMENTS.field("cluster_id"),
        removals["cluster_id"].take(row),
    )
    gone = removals.take(row.filter(pc.invert(stays)))
    return Outcome(marked.filter(stays).cast(DOCUMENTS), _decisions(gone, params))


def _decisions(gone: pa.Table, params: DedupParams) -> pa.Table:
    count = len(gone)
    gone = gone.combine_chunks()

    def constant(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    def column(name: str) -> pa.Array:
        chunks = gone[name].chunks
        return chunks[0] if chunks else pa.array([], gone[name].type)

    threshold = pa.nulls(count, pa.float64())
    limits = {
        "dedup.exact": 1.0, "dedup.normalized": 1.0, "dedup.containment": params.containment, "dedup.url": None,
    }  # fmt: skip
    for rule in pc.unique(column("rule")).to_pylist():
        limit = pa.scalar(limits.get(rule, params.similarity), pa.float64())
        threshold = pc.if_else(pc.equal(column("rule"), rule), limit, threshold)
    failed = pa.StructArray.from_arrays(
        [constant("dedup", pa.string()), column("rule"), column("value"), threshold],
        fields=list(FAILED_RULE),
    )
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), failed)
    columns = {
        "doc_id": column("doc_id"),
        "outcome": constant(REMOVED, pa.string()),
        "stage": constant("dedup", pa.string()),
        "rule": column("rule"),
        "value": column("value"),
        "threshold": threshold,
        "failed": lists,
        "duplicate_of": column("survivor"),
        "jaccard": column("jaccard"),
        "cluster_id": column("cluster_id"),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in DECISIONS]
    return pa.Table.from_arrays(
        [a.cast(f.type) for a, f in zip(arrays, DECISIONS, strict=True)], schema=DECISIONS
    )


STAGE = Dedup
