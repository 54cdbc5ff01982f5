"""The `dedup` stage: looks across partitions once, then removes from each what `prepare` found."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.dedup.banding import banding
from pipeline.publish import read_table
from pipeline.stage import Context, LocalStage
from pipeline.transform import Outcome, Transform
from schemas.documents import DOCUMENTS
from schemas.errors import WorkError
from schemas.ledger import DECISIONS, FAILED_RULE, REMOVED
from schemas.manifest import PublishedFile
from schemas.recipe import Recipe
from schemas.storage import Folder


class Dedup(LocalStage):
    """Exact copies by text hash, near-copies by MinHash LSH with an exact check of every pair.

    Publishes `clusters.parquet` (every document that has copies, with the one that stays and the exact
    similarity), `removals/`, `plan.json` and `quality.json`; intermediate files lie in `scratch/`.
    """

    name = "dedup"
    version = "1"
    looks_across = True

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.banding = banding(self.params)

    def key_params(self) -> dict[str, Any]:
        priorities = {name: source.priority for name, source in sorted(self.recipe.sources.items())}
        return {**self.recipe.params_of(self.name), "source_priority": priorities}

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from pipeline.dedup.run import Deduplication

        return Deduplication(context, self.params, self.banding, self.version).run()

    def transform(self, folder: Folder, partition: str) -> Transform:
        removals = read_table(folder / f"removals/{partition}.parquet")
        return partial(remove, removals, partition, self.params.similarity)


def remove(removals: pa.Table, partition: str, similarity: float, docs: pa.Table) -> Outcome:
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
    return Outcome(marked.filter(stays).cast(DOCUMENTS), _decisions(gone, similarity))


def _decisions(gone: pa.Table, similarity: float) -> pa.Table:
    count = len(gone)
    gone = gone.combine_chunks()

    def constant(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    def column(name: str) -> pa.Array:
        chunks = gone[name].chunks
        return chunks[0] if chunks else pa.array([], gone[name].type)

    threshold = constant(similarity, pa.float64())
    failed = pa.StructArray.from_arrays(
        [constant("dedup", pa.string()), column("rule"), column("jaccard"), threshold],
        fields=list(FAILED_RULE),
    )
    lists = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), failed)
    columns = {
        "doc_id": column("doc_id"),
        "outcome": constant(REMOVED, pa.string()),
        "stage": constant("dedup", pa.string()),
        "rule": column("rule"),
        "value": column("jaccard"),
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


def clean(folder: Folder) -> None:
    """Delete the stage's intermediate files; a finished stage does not need them."""
    (folder / "scratch").delete()


STAGE = Dedup
