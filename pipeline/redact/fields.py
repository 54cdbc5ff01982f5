"""Columns besides the text, redacted: URLs stay URLs and JSON stays JSON, and what is not replaced keeps its bytes."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from corpusmill.pipeline.redact.batch import Edit
from corpusmill.pipeline.redact.slots import GLANCES, SLOTS, Slot, any_slots, any_texts

Find = Callable[[pa.LargeStringArray], tuple[dict[int, list[Edit]], dict[int, Counter[str]]]]
MAX_ROUNDS = 16  # as `batch.MAX_ROUNDS`: one is nearly always enough


def redact_column(values: pa.Array, name: str, find: Find) -> tuple[pa.Array, dict[int, Counter[str]]]:
    """(the column redacted, row -> finds by kind). `name`: `url`, `metadata` and `text` are read as such, all
    others as what each value looks like; `strings` is JSON without its numbers. Equal values are read once. A second pass over the result finds nothing."""
    coded = values.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    changed, finds = _redacted(_suspects(distinct, name, find), SLOTS.get(name, any_slots), find)
    if not finds:
        return values, {}
    new = pa.array([changed.get(place, value) for place, value in enumerate(distinct)], values.type)
    places = coded.indices.to_pylist()
    rows = {row: finds[place] for row, place in enumerate(places) if place is not None and place in finds}
    return new.take(coded.indices), rows


def _suspects(values: Sequence[str], name: str, find: Find) -> dict[int, str]:
    """place -> value of those in which something is found, and of those whose texts are not read at a glance. Most values have
    nothing, and for them no slots are made."""
    glance = GLANCES.get(name, any_texts)
    suspects: dict[int, str] = {}
    texts: list[str] = []
    ends: list[int] = []
    for place, value in enumerate(values):
        found = glance(value)
        if found is None:
            suspects[place] = value
        else:
            texts += found
        ends.append(len(texts))
    edits, _ = find(pa.array(texts, pa.large_string()))
    for place in np.searchsorted(ends, np.array(sorted(edits), np.int64), side="right").tolist():
        suspects[place] = values[place]
    return dict(sorted(suspects.items()))


def _redacted(
    current: dict[int, str], slots_of: Callable[[str], list[Slot]], find: Find
) -> tuple[dict[int, str], dict[int, Counter[str]]]:
    """(place -> new value, place -> finds) of those in which something is found."""
    changed: dict[int, str] = {}
    finds: dict[int, Counter[str]] = {}
    for _ in range(MAX_ROUNDS):
        slots = [(place, slot) for place, value in current.items() for slot in slots_of(value)]
        texts = pa.array([slot.lead + slot.text for _, slot in slots], pa.large_string())
        edits, counts = find(texts)
        made: dict[int, list[tuple[int, int, str]]] = {}
        for row in sorted(edits):
            place, slot = slots[row]
            splices = _splices(slot, edits[row], current[place])
            if splices:
                made.setdefault(place, []).extend(splices)
                finds.setdefault(place, Counter()).update(counts[row])
        current = {place: _spliced(current[place], splices) for place, splices in made.items()}
        changed.update(current)
        if not current:
            break
    return changed, finds


def _splices(slot: Slot, edits: Sequence[Edit], raw: str) -> list[tuple[int, int, str]]:
    """Edits, in bytes of a slot's lead and text, as (start, end, written) in characters of the raw value; none where they are of the
    lead alone, which is read as a slot of its own."""
    data = (slot.lead + slot.text).encode()
    lead = len(slot.lead)
    found = []
    for edit in edits:
        start, end = (max(0, len(data[:at].decode()) - lead) for at in (edit.start, edit.end))
        if end > 0:
            found.append((start, end, edit.replacement.decode()))
    if not found:
        return []
    if slot.number:
        return [(slot.start, slot.end, "0")]
    if slot.spans is None:
        text = slot.text
        for start, end, written in reversed(found):
            text = text[:start] + written + text[end:]
        if slot.scope is not None:
            text = slot.scope.distinct(text)
        return [(slot.start, slot.end, slot.write(text))]
    return [_in_url(slot, raw, *edit) for edit in found]


def _in_url(slot: Slot, raw: str, start: int, end: int, written: str) -> tuple[int, int, str]:
    assert slot.spans is not None
    low, high = slot.spans[start], slot.spans[end]
    if raw[low - 1 : low] == "[" and raw[high : high + 1] == "]":  # an IPv6 host
        if _is_ip(written):
            return low, high, written
        low, high = low - 1, high + 1
    return low, high, quote(written, safe="")


def _is_ip(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _spliced(raw: str, splices: list[tuple[int, int, str]]) -> str:
    pieces, at = [], 0
    for start, end, written in sorted(splices):
        pieces += [raw[at:start], written]
        at = end
    return "".join([*pieces, raw[at:]])
