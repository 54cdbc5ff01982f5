"""Documents in, an `Outcome` out: edits in the ledger, the datum itself nowhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.task_progress import advance
from corpusmill.pipeline.engine.stage import Outcome, decisions, with_texts
from corpusmill.pipeline.redact import Kind, models
from corpusmill.pipeline.redact.batch import Edit, Look, find_edits, rewrite
from corpusmill.pipeline.redact.pseudonyms import pseudonym, tag
from corpusmill.schemas.stages import RedactParams
from corpusmill.schemas.tables import KEPT, REMOVED

STAGE = "redact"
BATCH_BYTES = 4 << 20  # text scanned at once


def redact(docs: pa.Table, params: RedactParams, key: bytes = b"") -> Outcome:
    """`docs` (schema `DOCUMENTS`) with personal data replaced, and without those that hold a kind to be removed for.

    A decision per edited or removed document. `edits` count characters of the text as it came; a removed document has
    the rule `redact.<kind>` of the first such kind in `params.kinds`, the number of its finds, and all such kinds in
    `failed`. Counters: finds replaced per kind and per source and kind, documents removed per kind. A second pass over
    the output changes nothing, for the patterns; for a model this cannot be guaranteed.
    """
    how = {kind: params.replacement_of(kind) for kind in params.kinds}
    own = "pseudonym" in how.values()
    detector = models.load(params.model) if params.model else None
    look = Look(params.kinds, tuple(params.phone_regions), params.ip == "all", own, detector)

    def replace(kind: Kind, value: bytes) -> bytes:
        named = how[kind] == "pseudonym"
        return pseudonym(key, kind, value, params.phone_regions) if named else tag(kind)

    removing = [kind for kind in params.kinds if how[kind] == "remove"]
    batches, rows, counters = [], [], Counter[str]()
    for batch in _batches(docs):
        texts = batch["text"].combine_chunks()
        edits, finds = find_edits(texts, look, replace)
        ids, sources = (
            batch[name].take(pa.array(sorted(edits), pa.int64())).to_pylist() for name in ("doc_id", "source")
        )
        gone, edited = [], {}
        for row, doc_id, source in zip(sorted(edits), ids, sources, strict=True):
            reasons = [kind for kind in removing if finds[row][kind]]
            if reasons:
                gone.append(row)
                rows.append(_removed(doc_id, reasons, finds[row]))
                counters.update(f"removed/{kind}" for kind in reasons)
                continue
            edited[row] = edits[row]
            counters["documents_edited"] += 1
            for edit in edits[row]:
                counters.update((edit.kind, f"source/{source}/{edit.kind}"))
            spans = _ledger(texts[row].as_buffer(), edits[row])
            rows.append({"doc_id": doc_id, "outcome": KEPT, "stage": STAGE, "edits": spans})
        batches.append(_without(_edited(batch, texts, edited), gone))
        advance(pc.sum(pc.binary_length(texts)).as_py())
    kept = pa.concat_tables(batches).cast(docs.schema) if batches else docs
    return Outcome(kept, decisions(rows), counters=dict(sorted(counters.items())))


def _edited(batch: pa.Table, texts: pa.LargeStringArray, edits: dict[int, list[Edit]]) -> pa.Table:
    """The batch with the edits done."""
    rows = sorted(edits)
    new = rewrite(
        texts.take(pa.array(rows, pa.int64())), {place: edits[row] for place, row in enumerate(rows)}
    )
    return with_texts(batch, dict(zip(rows, new.to_pylist(), strict=True)))


def _without(batch: pa.Table, gone: list[int]) -> pa.Table:
    if not gone:
        return batch
    stays = np.ones(len(batch), np.bool_)
    stays[gone] = False
    return batch.filter(pa.array(stays))


def _removed(doc_id: bytes, kinds: list[Kind], finds: Counter[str]) -> dict[str, Any]:
    failed = [
        {"stage": STAGE, "rule": f"{STAGE}.{kind}", "value": float(finds[kind]), "threshold": 0.0}
        for kind in kinds
    ]
    return {"doc_id": doc_id, "outcome": REMOVED, **failed[0], "failed": failed}


def _batches(docs: pa.Table) -> list[pa.Table]:
    """Slices of about `BATCH_BYTES` of text."""
    if len(docs) == 0:
        return []
    ends = np.cumsum(pc.binary_length(docs["text"]).to_numpy())
    limits = np.arange(BATCH_BYTES, int(ends[-1]) + BATCH_BYTES, BATCH_BYTES)
    cuts = np.searchsorted(ends, limits, side="left") + 1
    edges = np.unique(np.concatenate([[0], np.minimum(cuts, len(docs)), [len(docs)]]))
    return [docs.slice(int(a), int(b - a)) for a, b in pairwise(edges)]


def _ledger(text: Any, edits: list[Edit]) -> list[dict[str, Any]]:
    """Edits with offset, length and what was written in characters."""
    data = memoryview(text)
    result, position, chars = [], 0, 0
    for edit in edits:
        chars += len(bytes(data[position : edit.start]).decode())
        length = len(bytes(data[edit.start : edit.end]).decode())
        written = len(edit.replacement.decode())
        result.append(
            {"stage": STAGE, "kind": edit.kind, "offset": chars, "length": length, "written": written}
        )
        position, chars = edit.end, chars + length
    return result
