"""Documents without the spans that line rules cut, and the ledger's edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from pipeline.filter.lines import kernel
from pipeline.filter.text.view import spans as pieces
from pipeline.filter.text.view import text_buffers
from pipeline.transform import decisions
from schemas.documents import ID
from schemas.ledger import EDIT, KEPT

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
            characters.append(kernel.in_characters(data, offsets, mine))
            new, bounds = kernel.splice(data, offsets, mine)
            texts.append(
                pa.LargeStringArray.from_buffers(tail - head, pa.py_buffer(bounds), pa.py_buffer(new))
            )
            hashes += [
                xxhash.xxh3_128_digest(new.data[bounds[row] : bounds[row + 1]])
                for row in np.unique(mine[:, 0]).tolist()
            ]
        first += len(chunk)
    rows, heads = np.unique(spans[:, 0], return_index=True)
    changed = _with(docs, "text", pa.chunked_array(texts, pa.large_string()))
    changed = _with(changed, "text_hash", _hashes(docs["text_hash"], rows, hashes))
    return changed, _rows(docs, spans, rows, heads, np.concatenate(characters), names)


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


def _hashes(column: pa.ChunkedArray, rows: Array, hashes: list[bytes]) -> pa.Array:
    """`text_hash` of all documents, those of `rows` anew."""
    old = column.combine_chunks()
    whole = np.frombuffer(old.buffers()[1], np.uint8, 16 * len(old), 16 * old.offset).reshape(-1, 16).copy()
    whole[rows] = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 16)
    return pa.FixedSizeBinaryArray.from_buffers(ID, len(old), [None, pa.py_buffer(whole.tobytes())])


def _rows(
    docs: pa.Table, spans: Array, rows: Array, heads: Array, characters: Array, names: Sequence[str]
) -> pa.Table:
    columns = [
        pa.repeat(pa.scalar(STAGE, pa.string()), len(spans)),
        pa.array(names, pa.string()).take(pa.array(spans[:, 3] - 1)),
        pa.array(characters[:, 0]),
        pa.array(characters[:, 1]),
        pa.repeat(pa.scalar(0, pa.int64()), len(spans)),
    ]
    bounds = pa.array(np.append(heads, len(spans)).astype(np.int32))
    return decisions(
        doc_id=docs["doc_id"].take(pa.array(rows)).combine_chunks(),
        outcome=pa.repeat(pa.scalar(KEPT), len(rows)),
        stage=pa.repeat(pa.scalar(STAGE), len(rows)),
        edits=pa.ListArray.from_arrays(bounds, pa.StructArray.from_arrays(columns, fields=list(EDIT))),
    )
