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
from corpusmill.pipeline.redact.batch import KNOWN, Edit, Look, find_edits, rewrite
from corpusmill.pipeline.redact.fields import redact_column
from corpusmill.pipeline.redact.known import Known
from corpusmill.pipeline.redact.pseudonyms import pseudonym, tag
from corpusmill.schemas.stages import RedactParams
from corpusmill.schemas.tables import KEPT, REMOVED

STAGE = "redact"
BATCH_BYTES = 4 << 20  # text scanned at once


class Redactor:
    """What is looked for, and what is written in its place. `known`: what was recognised elsewhere in the run."""

    def __init__(self, params: RedactParams, key: bytes = b"", known: Known | None = None) -> None:
        self.params, self.key = params, key
        self._how = {kind: params.replacement_of(kind) for kind in params.kinds}
        self.known = None if known is None else known._replace(kinds=frozenset(params.known_kinds))
        detector = models.load(params.model) if params.model else None
        own = "pseudonym" in self._how.values()
        self.look = Look(
            params.kinds, tuple(params.phone_regions), params.ip == "all", own, detector, self.known
        )

    def replacement(self, kind: Kind, value: bytes) -> bytes:
        """What is written in a datum's place."""
        if self._how[kind] != "pseudonym":
            return tag(kind)
        if self.known is not None:
            value = self.known.spelled(kind, value)
        return pseudonym(self.key, kind, value, self.params.phone_regions)

    def find(
        self, texts: pa.LargeStringArray, languages: pa.StringArray | None = None
    ) -> tuple[dict[int, list[Edit]], dict[int, Counter[str]]]:
        """(row -> its edits, row -> finds by kind) of the texts that have any. `languages`: of the texts, where known."""
        return find_edits(
            texts, self.look, self.replacement, languages if self.params.phone_languages else None
        )

    def column(self, values: pa.Array, name: str) -> tuple[pa.Array, dict[int, Counter[str]]]:
        """(the column, row -> finds by kind) of a column besides the text. A model reads no URLs and no ids."""
        look = self.look if name == "metadata" else self.look._replace(detector=None)
        return redact_column(values, name, lambda texts: find_edits(texts, look, self.replacement))

    @property
    def removing(self) -> list[Kind]:
        """Kinds whose documents are removed."""
        return [kind for kind in self.params.kinds if self._how[kind] == "remove"]


def redact(docs: pa.Table, params: RedactParams, key: bytes = b"", known: Known | None = None) -> Outcome:
    """`docs` (schema `DOCUMENTS`) with personal data replaced, and without those that hold a kind to be removed for.

    A decision per edited or removed document. `edits` count characters of the text as it came; what was replaced in other
    columns is in `detail` alone, by kind. A removed document has the rule `redact.<kind>` of the first such kind in
    `params.kinds`, the number of its finds in text and fields, and all such kinds in `failed`. Counters: finds replaced per kind
    and per source and kind; of these in each field, and those that were recognised elsewhere; documents removed per kind. A
    second pass over the output changes nothing, for the patterns; for a model this cannot be guaranteed.
    """
    redactor = Redactor(params, key, known)
    batches, rows, counters = [], [], Counter[str]()
    for batch in batches_of(docs):
        texts = batch["text"].combine_chunks()
        edits, in_text = redactor.find(texts, batch["language"].combine_chunks())
        changed, finds = _fields(batch, redactor)
        finds["text"] = in_text
        touched = sorted({row for found in finds.values() for row in found})
        ids, sources = (
            batch[name].take(pa.array(touched, pa.int64())).to_pylist() for name in ("doc_id", "source")
        )
        gone, edited = [], {}
        for row, doc_id, source in zip(touched, ids, sources, strict=True):
            total = sum((found[row] for found in finds.values() if row in found), Counter[str]())
            where = _where({name: found[row] for name, found in finds.items() if row in found})
            reasons = [kind for kind in redactor.removing if total[kind]]
            if reasons:
                gone.append(row)
                rows.append({**_removed(doc_id, reasons, total), "detail": where})
                counters.update(f"removed/{kind}" for kind in reasons)
                continue
            counters["documents_edited"] += 1
            spans = []
            if row in edits:
                edited[row] = edits[row]
                spans = _ledger(texts[row].as_buffer(), edits[row])
                kinds = [edit.kind for edit in edits[row]]
                counters.update([*kinds, *(f"source/{source}/{kind}" for kind in kinds)])
            _count(counters, source, {name: found[row] for name, found in finds.items() if row in found})
            rows.append({"doc_id": doc_id, "outcome": KEPT, "stage": STAGE, "edits": spans, "detail": where})
        batches.append(_without(_edited(changed, texts, edited), gone))
        advance(pc.sum(pc.binary_length(texts)).as_py())
    kept = pa.concat_tables(batches).cast(docs.schema) if batches else docs
    return Outcome(kept, decisions(rows), counters=dict(sorted(counters.items())))


def _fields(batch: pa.Table, redactor: Redactor) -> tuple[pa.Table, dict[str, dict[int, Counter[str]]]]:
    """The batch with its fields redacted, and the finds by field, row and kind."""
    finds: dict[str, dict[int, Counter[str]]] = {}
    for name in redactor.params.fields:
        column, found = redactor.column(batch[name].combine_chunks(), name)
        if found:
            finds[name] = found
            batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
    return batch, finds


def _where(finds: dict[str, Counter[str]]) -> str | None:
    """What was found in which field; None where it was in the text alone."""
    shown = [
        f"{name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts) if "/" not in kind)
        for name, counts in finds.items()
        if name != "text"
    ]
    return "; ".join(shown) or None


def _count(counters: Counter[str], source: str, finds: dict[str, Counter[str]]) -> None:
    """Finds in fields, in all and by field; and everywhere those that were recognised elsewhere."""
    for name, counts in finds.items():
        for kind, number in counts.items():
            if kind.startswith(KNOWN):
                counters[kind] += number
            elif name != "text":
                for counter in (kind, f"source/{source}/{kind}", f"field/{name}/{kind}"):
                    counters[counter] += number


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


def batches_of(docs: pa.Table) -> list[pa.Table]:
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
