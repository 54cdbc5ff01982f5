"""`redact`: personal data and secrets replaced; every edit in the ledger, the datum itself nowhere."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from pipeline.stage import LocalStage
from pipeline.transform import Outcome, Transform, decisions
from schemas.documents import ID
from schemas.errors import UserError
from schemas.ids import text_hash
from schemas.ledger import KEPT
from schemas.recipe import Recipe
from schemas.redact import RedactParams
from schemas.storage import Folder

BATCH_BYTES = 16 << 20  # text scanned at once


class Redact(LocalStage):
    """Replaces e-mail addresses, telephones, public IPs, cards, IBANs, SSNs and secrets."""

    name = "redact"
    version = "1"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: RedactParams = self.params
        if len(set(params.kinds)) != len(params.kinds):
            raise UserError("redact.kinds: each kind may be named once")
        self.key = b""
        if params.replacement == "pseudonym":
            from pipeline.redact.pseudonyms import read_key

            self.key = read_key(params.key_env)
        if "phone" in params.kinds:
            from pipeline.redact.phones import known_region

            for region in params.phone_regions:
                if not known_region(region):
                    raise UserError(
                        f"redact.phone_regions: '{region}' has no numbering plan; regions are ISO 3166"
                        " codes in capitals, such as US, GB, DE"
                    )

    def key_params(self) -> dict[str, Any]:
        """The parameters, and which key made the pseudonyms: another key is another output."""
        params = super().key_params()
        params.pop("seed")  # nothing here is drawn
        if self.key:
            from pipeline.redact.pseudonyms import fingerprint

            params["key_fingerprint"] = fingerprint(self.key)
        return params

    def transform(self, folder: Folder, partition: str) -> Transform:
        return partial(redact, params=self.params, key=self.key)


def redact(docs: pa.Table, params: RedactParams, key: bytes = b"") -> Outcome:
    """`docs` (schema `DOCUMENTS`) with personal data replaced; a decision per edited document, whose `edits`
    count characters of the text as it came. Second pass over the output: no edit."""
    from pipeline.redact.batch import Edit, find_edits, rewrite
    from pipeline.redact.pseudonyms import pseudonym, tag
    from pipeline.redact.scan import Kind

    own = params.replacement == "pseudonym"

    def replace(kind: Kind, value: bytes) -> bytes:
        return pseudonym(key, kind, value) if own else tag(kind)

    batches, rows, counters = [], [], Counter[str]()
    for batch in _batches(docs):
        texts = batch["text"].combine_chunks()
        edits: dict[int, list[Edit]] = find_edits(texts, params.kinds, params.phone_regions, replace, own)
        if not edits:
            batches.append(batch)
            continue
        places = sorted(edits)
        new_texts = rewrite(texts, edits)
        edited = batch.select(["doc_id", "source"]).take(pa.array(places))
        hashes = batch["text_hash"].to_pylist()
        for row, doc_id, source in zip(
            places, *(edited[c].to_pylist() for c in ("doc_id", "source")), strict=True
        ):
            hashes[row] = text_hash(new_texts[row].as_py())
            counters["documents_edited"] += 1
            for edit in edits[row]:
                counters.update((edit.kind, f"source/{source}/{edit.kind}"))
            rows.append(
                {
                    "doc_id": doc_id,
                    "outcome": KEPT,
                    "stage": "redact",
                    "edits": _ledger(texts[row].as_buffer(), edits[row]),
                }
            )
        for name, values in (("text", new_texts), ("text_hash", pa.array(hashes, ID))):
            place = batch.column_names.index(name)
            batch = batch.set_column(place, docs.schema.field(name), values)
        batches.append(batch)
    kept = pa.concat_tables(batches).cast(docs.schema) if batches else docs
    return Outcome(kept, decisions(rows), counters=dict(sorted(counters.items())))


def _batches(docs: pa.Table) -> list[pa.Table]:
    """Slices of about `BATCH_BYTES` of text."""
    import numpy as np
    import pyarrow.compute as pc

    if len(docs) == 0:
        return []
    ends = np.cumsum(pc.binary_length(docs["text"]).to_numpy())
    cuts = (
        np.searchsorted(ends, np.arange(BATCH_BYTES, int(ends[-1]) + BATCH_BYTES, BATCH_BYTES), side="left")
        + 1
    )
    edges = np.unique(np.concatenate([[0], np.minimum(cuts, len(docs)), [len(docs)]]))
    return [docs.slice(int(a), int(b - a)) for a, b in pairwise(edges)]


def _ledger(text: Any, edits: list[Any]) -> list[dict[str, Any]]:
    """Edits with offset and length in characters."""
    data = memoryview(text)
    result, position, chars = [], 0, 0
    for edit in edits:
        chars += len(bytes(data[position : edit.start]).decode())
        length = len(bytes(data[edit.start : edit.end]).decode())
        result.append({"stage": "redact", "kind": edit.kind, "offset": chars, "length": length})
        position, chars = edit.end, chars + length
    return result


STAGE = Redact
