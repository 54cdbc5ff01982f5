"""Documents without the spans that line rules cut, and the ledger's edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.engine.stage import decisions
from corpusmill.pipeline.filter.text.view import spans as pieces
from corpusmill.pipeline.filter.text.view import text_buffers
from corpusmill.pipeline.text import splice
from corpusmill.schemas.ledger import KEPT

STAGE: Final = "filter"
Array = npt.NDArray[Any]


def cut(docs: pa.Table, spans: Array, names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """(`docs` with new `text` and `text_hash`, a `DECISIONS` row for each document from which something was cut).

    `spans`: int64[spans, 4] of row in `docs`, first byte, end, number of the rule in `names` plus 1; sorted, not
    overlapping, no code point cut in two. An edit per span, in characters of the text as it came.
    """
    if len(spans) == 0:
        return docs, decisions(rows=[])
    texts, characters, hashes, first = [], [], [], 0
    for chunk in docs["text"].chunks:
        for head, tail in pieces(chunk):
            low, high = np.searchsorted(spans[:, 0], [first + head, first + tail])
            mine = spans[low:high] - np.array([first + head, 0, 0, 0])
            data, offsets = text_buffers(chunk.slice(head, tail - head))
            characters.append(splice.in_characters(data, offsets, mine[:, 0], mine[:, 1], mine[:, 2]))
            new, bounds = splice.splice(data, offsets, mine)
            texts.append(
                pa.LargeStringArray.from_buffers(tail - head, pa.py_buffer(bounds), pa.py_buffer(new))
            )
            hashes += splice.hashes(new, bounds, np.unique(mine[:, 0]))
        first += len(chunk)
    rows = np.unique(spans[:, 0])
    changed = _with(docs, "text", pa.chunked_array(texts, pa.large_string()))
    changed = _with(changed, "text_hash", splice.with_hashes(docs["text_hash"], rows, hashes))
    kinds = pa.array(names, pa.string()).take(pa.array(spans[:, 3] - 1))
    return changed, decisions(
        doc_id=docs["doc_id"].take(pa.array(rows)).combine_chunks(),
        outcome=pa.repeat(pa.scalar(KEPT), len(rows)),
        stage=pa.repeat(pa.scalar(STAGE), len(rows)),
        edits=splice.edits(STAGE, spans[:, 0], kinds, np.concatenate(characters)),
    )


def counters(spans: Array, names: Sequence[str]) -> dict[str, int]:
    """`lines/<rule>/spans` and `lines/<rule>/bytes`: what each rule cut."""
    found = {}
    for code in np.unique(spans[:, 3]).tolist():
        mine = spans[spans[:, 3] == code]
        found[f"lines/{names[code - 1]}/spans"] = len(mine)
        found[f"lines/{names[code - 1]}/bytes"] = int((mine[:, 2] - mine[:, 1]).sum())
    return found


def _with(docs: pa.Table, name: str, values: Any) -> pa.Table:
    place = docs.schema.get_field_index(name)
    return docs.set_column(place, docs.schema.field(place), values)
