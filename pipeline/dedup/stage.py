"""The `dedup` stage: looks across partitions once, then removes from each what `prepare` found, and cuts repeated lines
and substrings out of the documents that stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import plain_size
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup import span_edges
from corpusmill.pipeline.dedup.banding import banding
from corpusmill.pipeline.dedup.lines import line_kernels
from corpusmill.pipeline.engine.found import clause, documents_removed, most
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.shuffle import starts_of
from corpusmill.pipeline.engine.stage import Context, LocalStage, Outcome, Transform, decisions
from corpusmill.pipeline.text import buffers as cuts
from corpusmill.pipeline.text import word_rule
from corpusmill.pipeline.text.buffers import one_array, view
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DECISIONS, DOCUMENTS, FAILED_RULE, KEPT, REMOVED, SPANS

I64 = npt.NDArray[np.int64]


def cut(docs: pa.Table, spans: Mapping[str, pa.Table], min_left: Mapping[str, int]) -> Outcome:
    """`docs` (schema `DOCUMENTS`) without the spans; `spans` maps a kind, which is also the rule's name, to
    the partition's `SPANS`.

    The union of all kinds is cut as `span_edges.py` describes, and what it takes along of white space is part
    of the edit. Every document from which anything was cut has a decision: `edits` per kind, in characters
    of the text as received, sorted, those of one kind apart; the union of them is exactly what is missing.
    A document left with fewer words than `min_left` of a kind that cut it is removed: by the rule that cut
    more bytes, with the words left as value.

    Raises `WorkError` for spans of documents that `docs` does not have, or outside of their texts.
    """
    text = one_array(docs["text"])
    offsets, data = view(text)
    rows, starts, stops, kinds = _spans(docs, offsets, spans)
    span_edges.snap(offsets, data, rows, starts, stops)
    pieces = span_edges.settle(offsets, data, word_rule.rule(), rows, starts, stops)
    if len(pieces) == 0:
        return Outcome(docs, decisions(rows=[]))
    edits = _merged(span_edges.credit(pieces, starts, stops, kinds))
    new_data, new_offsets = cuts.splice(data, offsets, pieces)
    edited = np.unique(pieces[:, 0])
    left = line_kernels.count_words(new_offsets, new_data, edited, word_rule.rule())

    names = list(spans)
    cut_bytes = np.zeros((len(edited), len(names)), np.int64)
    np.add.at(cut_bytes, (np.searchsorted(edited, edits[:, 0]), edits[:, 1]), edits[:, 3] - edits[:, 2])
    floor = np.array([min_left[name] for name in names], np.int64)
    failed = (cut_bytes > 0) & (left[:, None] < floor)
    stays = np.ones(len(docs), bool)
    stays[edited[failed.any(axis=1)]] = False

    new_text = pa.LargeStringArray.from_buffers(len(docs), pa.py_buffer(new_offsets), pa.py_buffer(new_data))
    new_hashes = cuts.with_hashes(docs["text_hash"], edited, cuts.hashes(new_data, new_offsets, edited))
    changed = docs
    for name, values in (("text", new_text), ("text_hash", new_hashes)):
        place = docs.column_names.index(name)
        changed = changed.set_column(place, DOCUMENTS.field(name), values)
    rule = np.where(failed, cut_bytes, -1).argmax(axis=1)
    characters = cuts.in_characters(data, offsets, edits[:, 0], edits[:, 2], edits[:, 3])
    edit_kinds = pa.array(names, pa.string()).take(pa.array(edits[:, 1]))
    listed = cuts.edits("dedup", edits[:, 0], edit_kinds, characters)
    table = _cut_decisions(docs, edited, names, failed, rule, left, floor, listed)
    return Outcome(changed.filter(pa.array(stays)), table)


def _spans(docs: pa.Table, offsets: I64, spans: Mapping[str, pa.Table]) -> tuple[I64, I64, I64, I64]:
    """(rows, starts, stops, kinds) of all spans, sorted by (row, start, kind)."""
    columns: list[list[I64]] = [[np.empty(0, np.int64)] for _ in range(4)]
    for kind, (name, table) in enumerate(spans.items()):
        row = pc.index_in(table["doc_id"], value_set=docs["doc_id"])
        if row.null_count:
            raise WorkError(f"{name}: spans were made for other documents; run the stage again")
        found = row.to_numpy().astype(np.int64)
        start, length = table["offset"].to_numpy(), table["length"].to_numpy()
        if ((start < 0) | (length < 0) | (start + length > (offsets[1:] - offsets[:-1])[found])).any():
            raise WorkError(f"{name}: spans were made for other texts; run the stage again")
        made = (found, start, start + length, np.full(len(found), kind))
        for column, values in zip(columns, made, strict=True):
            column.append(values)
    rows, starts, stops, kinds = (np.concatenate(column) for column in columns)
    order = np.lexsort((kinds, starts, rows))
    return rows[order], starts[order], stops[order], kinds[order]


def _merged(edits: I64) -> I64:
    """Edits (row, kind, start, stop) with those of one kind that touch made one; sorted by row, start, kind."""
    edits = edits[np.lexsort((edits[:, 2], edits[:, 1], edits[:, 0]))]
    # The furthest stop so far inside each (row, kind): groups are lifted apart so that one running maximum does.
    lift = np.cumsum(starts_of(edits[:, 0], edits[:, 1])) * (int(edits[:, 3].max()) + 2)
    reach = np.maximum.accumulate(edits[:, 3] + lift)
    new = np.r_[True, (edits[1:, 2] + lift[1:]) > reach[:-1]]
    heads = np.flatnonzero(new)
    last = np.r_[heads[1:], len(edits)] - 1
    merged = edits[heads]
    merged[:, 3] = (reach - lift)[last]
    return merged[np.lexsort((merged[:, 1], merged[:, 2], merged[:, 0]))]


def _cut_decisions(
    docs: pa.Table, edited: I64, names: list[str], failed: npt.NDArray[np.bool_], rule: I64, left: I64,
    floor: I64, edits: pa.ListArray,
) -> pa.Table:  # fmt: skip
    """A decision per edited document, sorted by its place in `docs`."""
    gone = np.logical_or.reduce(failed, axis=1)
    kept = pa.array(~gone)
    rules: list[Any] = [
        [
            {"stage": "dedup", "rule": names[k], "value": float(words), "threshold": float(floor[k])}
            for k in np.flatnonzero(flags)
        ]
        if out
        else None
        for flags, out, words in zip(failed, gone.tolist(), left.tolist(), strict=True)
    ]

    def only_gone(values: pa.Array) -> pa.Array:
        return pc.if_else(kept, pa.scalar(None, values.type), values)

    return decisions(
        doc_id=one_array(docs["doc_id"].take(pa.array(edited))),
        outcome=pc.if_else(kept, KEPT, REMOVED),
        stage=["dedup"] * len(edited),
        rule=only_gone(pa.array(names, pa.string()).take(pa.array(rule))),
        value=only_gone(pa.array(left.astype(np.float64))),
        threshold=only_gone(pa.array(floor[rule].astype(np.float64))),
        failed=pa.array(rules, pa.list_(FAILED_RULE)),
        edits=edits,
    )


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
                    f"dedup.remove_only_from: '{source}' is not a source; sources are"
                    f" {', '.join(sorted(recipe.sources))}"
                )

    def key_params(self) -> dict[str, Any]:
        priorities = {name: source.priority for name, source in sorted(self.recipe.sources.items())}
        return {**self.recipe.params_of(self.name), "source_priority": priorities}

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counters = manifest.counters
        shown = {
            "exact copies": "exact_removed", "near-copies": "near_removed", "copies by URL": "url_removed",
            "contained": "contained_removed",
        }  # fmt: skip
        removed = most({name: counters[counter] for name, counter in shown.items() if counters.get(counter)})
        cut = sum(counters.get(name, 0) for name in ("line_bytes_cut", "substring_bytes_cut"))
        parts = [clause(documents_removed(manifest.counts), removed)]
        return "; ".join([*parts, *([f"{plain_size(cut)} of repeated text cut"] if cut else [])])

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """As the estimator of deduplication has it, of which `transform` is the stage's own tasks."""
        from corpusmill.pipeline.dedup.estimate.run_plan import forecast

        return forecast(flow, known, self.params, banding(self.params))

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
    """Remove a partition's copies and near-duplicates, chosen in `election.py`: they get a decision, those that stay in a cluster its id.

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
