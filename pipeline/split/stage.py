"""`split`: which documents are validation, decided once for the whole run."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.publish import publish_bytes, publish_table
from pipeline.splits import GROUPS, SUMMARY, VALIDATION, groups_of, purpose_seed
from pipeline.stage import Context, GlobalStage, Partition
from schemas.manifest import PublishedFile
from schemas.split import SplitParams


class Split(GlobalStage):
    """Publishes `validation.parquet` (the groups, sorted) and `split.json` (documents, bytes and groups per
    source and split)."""

    name = "split"
    version = "1"

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from pipeline.split.choose import ROWS, choose, collect

        params: SplitParams = self.params
        tables = context.scheduler.map(
            measure, context.partitions, "split", [part.text_bytes for part in context.partitions]
        )
        rows = pa.concat_tables([ROWS.empty_table(), *tables])
        rows = rows.take(
            pa.array(range(len(rows)), pa.int64())
        )  # what came by network lies unaligned: copy it
        rows = collect(rows["source"], rows["group"], rows["docs"], rows["bytes"])
        seed = purpose_seed(self.recipe.seed, "split")
        choice = choose(rows, params.validation_share, params.min_documents, seed)
        counters: dict[str, int] = {"validation_groups": len(choice.groups), "sources_without_validation": 0}
        for source, splits in choice.sources.items():
            for split, numbers in splits.items():
                counters |= {f"source/{source}/{split}_{what}": number for what, number in numbers.items()}
            counters["sources_without_validation"] += not splits["validation"]["docs"]
        text = json.dumps({"sources": choice.sources}, indent=1, sort_keys=True) + "\n"
        files = [
            publish_table(context.folder, VALIDATION, pa.Table.from_arrays([choice.groups], schema=GROUPS)),
            publish_bytes(context.folder, SUMMARY, text.encode()),
        ]
        return files, counters


def measure(partition: Partition) -> pa.Table:
    """Documents and bytes by (source, group) of one partition."""
    from pipeline.split.choose import collect

    docs = partition.read(["doc_id", "source", "cluster_id", "text"])
    sizes = pc.cast(pc.binary_length(docs["text"]), pa.int64())
    return collect(docs["source"], groups_of(docs), pa.array([1] * len(docs), pa.int64()), sizes)


STAGE = Split
