"""Redaction of a batch: one scan of its texts, one rewrite of its buffer; Python objects per find only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.redact.network import addresses, emails
from pipeline.redact.numbers import cards, ibans, runs, ssns
from pipeline.redact.phones import phones
from pipeline.redact.pseudonyms import OWN
from pipeline.redact.scan import SEPARATOR, Hit, Kind, spans
from pipeline.redact.secrets import secrets

MAX_ROUNDS = 8
Replace = Callable[[Kind, bytes], bytes]


class Edit(NamedTuple):
    """Bytes `start` to `end` of a document's text as it came in, and what takes their place."""

    start: int
    end: int
    kind: Kind
    replacement: bytes


def find(buffer: bytes, kinds: Sequence[Kind], regions: Sequence[str], own: bool) -> list[Hit]:
    """Non-overlapping finds in a buffer of separated texts, in order. Of finds that overlap, the earliest
    start wins, then the longest, then the kind named first in `kinds`. `own`: leave pseudonyms alone."""
    hits = list(_all(buffer, frozenset(kinds), regions))
    rank = {kind: place for place, kind in enumerate(kinds)}
    hits.sort(key=lambda hit: (hit.start, -hit.end, rank[hit.kind]))
    taken = [(start, end) for start, end in spans(OWN, buffer)] if own and hits else []
    chosen: list[Hit] = []
    place = 0
    for hit in hits:
        while place < len(taken) and taken[place][1] <= hit.start:
            place += 1
        if place < len(taken) and taken[place][0] < hit.end:
            continue
        if not chosen or hit.start >= chosen[-1].end:
            chosen.append(hit)
    return chosen


def _all(buffer: bytes, kinds: frozenset[str], regions: Sequence[str]) -> Iterator[Hit]:
    if "email" in kinds:
        yield from emails(buffer)
    if "ip" in kinds:
        yield from addresses(buffer)
    if "secret" in kinds:
        yield from secrets(buffer)
    if "iban" in kinds:
        yield from ibans(buffer)
    if kinds & {"card", "ssn", "phone"}:
        for groups, likely in runs(buffer, kinds):
            if "card" in likely:
                yield from cards(buffer, groups)
            if "ssn" in likely:
                yield from ssns(buffer, groups)
            if "phone" in likely:
                yield from phones(buffer, groups, regions)


def find_edits(
    texts: pa.LargeStringArray, kinds: Sequence[Kind], regions: Sequence[str], replace: Replace, own: bool
) -> dict[int, list[Edit]]:
    """Row -> its edits, in order, for the rows that have any.

    What was written is scanned again until nothing is found, since a replacement moves its neighbours closer
    to a word that tells what they are: so a second pass over the output has nothing left to do.
    """
    edits: dict[int, list[Edit]] = {}
    rows = np.arange(len(texts))
    current = texts
    for _ in range(MAX_ROUNDS):
        found = _scan(current, kinds, regions, replace, own)
        if not found:
            return edits
        for row, new in found.items():
            edits[int(rows[row])] = compose(edits.get(int(rows[row]), []), new)
        places = sorted(found)
        current = rewrite(current.take(pa.array(places)), {i: found[row] for i, row in enumerate(places)})
        rows = rows[places]
    return edits


def _scan(
    texts: pa.LargeStringArray, kinds: Sequence[Kind], regions: Sequence[str], replace: Replace, own: bool
) -> dict[int, list[Edit]]:
    if len(texts) == 0:
        return {}
    large = pa.large_string()
    joined = pc.binary_join_element_wise(texts, pa.scalar(SEPARATOR, large), pa.scalar("", large))
    offsets = text_offsets(joined)
    buffer = joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    offsets = offsets - offsets[0]
    hits = find(buffer, kinds, regions, own)
    rows = np.searchsorted(offsets, np.array([hit.start for hit in hits], dtype=np.int64), side="right") - 1
    found: dict[int, list[Edit]] = {}
    for hit, row in zip(hits, rows.tolist(), strict=True):
        base = int(offsets[row])
        value = replace(hit.kind, buffer[hit.start : hit.end])
        found.setdefault(row, []).append(Edit(hit.start - base, hit.end - base, hit.kind, value))
    return found


def compose(old: list[Edit], new: list[Edit]) -> list[Edit]:
    """Edits of a text, and edits of what they made of it, as edits of the text alone. A new edit that touches
    what an old one wrote takes its place."""
    if not old:
        return new
    result: list[Edit] = []
    place = shift = 0  # shift: bytes that the text grew by, before the old edit at `place`
    for edit in new:
        start = end = -1
        while place < len(old) and old[place].start + shift + len(old[place].replacement) <= edit.start:
            result.append(old[place])
            shift += _growth(old[place])
            place += 1
        start, end = edit.start - shift, 0
        while place < len(old) and old[place].start + shift < edit.end:
            start, end = min(start, old[place].start), old[place].end
            shift += _growth(old[place])
            place += 1
        end, replacement = max(end, edit.end - shift), edit.replacement
        if result and start < result[-1].end:  # two new edits in what one old edit wrote
            last = result.pop()
            start, end, replacement = last.start, max(last.end, end), last.replacement + replacement
        result.append(Edit(start, end, edit.kind, replacement))
    return result + old[place:]


def _growth(edit: Edit) -> int:
    return len(edit.replacement) - (edit.end - edit.start)


def rewrite(texts: pa.LargeStringArray, edits: dict[int, list[Edit]]) -> pa.LargeStringArray:
    """`texts` with the edits done, in one pass over the buffer."""
    offsets = text_offsets(texts)
    if not edits or len(texts) == 0:
        return texts
    data = memoryview(texts.buffers()[2])
    pieces: list[bytes | memoryview] = []
    growth = np.zeros(len(texts) + 1, dtype=np.int64)
    position = int(offsets[0])
    for row in sorted(edits):
        base = int(offsets[row])
        for edit in edits[row]:
            pieces += [data[position : base + edit.start], edit.replacement]
            position = base + edit.end
            growth[row + 1] += _growth(edit)
    pieces.append(data[position : int(offsets[-1])])
    moved = offsets - offsets[0] + np.cumsum(growth)
    return pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(moved.tobytes()), pa.py_buffer(b"".join(pieces))
    )


def text_offsets(texts: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """The len + 1 byte offsets of an array's texts in its data buffer."""
    return np.frombuffer(texts.buffers()[1], dtype=np.int64, count=len(texts) + 1 + texts.offset)[
        texts.offset :
    ]
