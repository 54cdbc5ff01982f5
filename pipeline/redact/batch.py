"""Redaction of a batch: one scan of its texts, one rewrite of its buffer; Python objects per find only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.redact import SEPARATOR, Hit, Kind, identifier_labels
from corpusmill.pipeline.redact.addresses import coins, emails, hardware, ipv4, ipv6
from corpusmill.pipeline.redact.columns import cells
from corpusmill.pipeline.redact.identifiers import identifiers
from corpusmill.pipeline.redact.identity_numbers import NUMBERS, cards, iban_length, national, ssns
from corpusmill.pipeline.redact.kernels import (
    ASSIGNED,
    AT,
    CANDIDATES,
    CARD,
    CARD_TABLE,
    COIN,
    FORMAT,
    IBAN,
    IP4,
    IP6,
    LABELLED,
    MAC,
    MASKED,
    NUMBER,
    PEM,
    PHONE,
    QUERY,
    SSN,
    USERINFO,
    WORD,
)  # fmt: skip
from corpusmill.pipeline.redact.kernels.candidates import candidates
from corpusmill.pipeline.redact.known import Known
from corpusmill.pipeline.redact.masked_phones import masked_phones
from corpusmill.pipeline.redact.models import Detector, find_spans
from corpusmill.pipeline.redact.other_digits import Folded, fold
from corpusmill.pipeline.redact.phone_plans import plans
from corpusmill.pipeline.redact.phone_words import regions_of_language
from corpusmill.pipeline.redact.phones import phones
from corpusmill.pipeline.redact.pseudonyms import is_own, is_tag
from corpusmill.pipeline.redact.secrets import armoured, assigned, formats, query, userinfo
from corpusmill.schemas.stages import MODEL_KINDS

KNOWN = "everywhere/"  # prefix of counts
MAX_ROUNDS = 32  # far more than a text needs: a word reaches 60 bytes, and a tag is no such word
Replace = Callable[[Kind, bytes], bytes]


class Edit(NamedTuple):
    """Bytes `start` to `end` of a document's text as it came in, and what takes their place."""

    start: int
    end: int
    kind: Kind
    replacement: bytes
    known: bool = False  # recognised elsewhere, not here


class Look(NamedTuple):
    """What is looked for."""

    kinds: Sequence[Kind]
    regions: Sequence[str] = ()  # plans of telephone numbers without +
    every_ip: bool = False  # private ones too
    own: bool = False  # leave alone what `pseudonyms` makes
    detector: Detector | None = None  # of names and addresses
    known: Known | None = None  # what was recognised elsewhere


class Languages(NamedTuple):
    """The languages of the texts of a buffer."""

    offsets: npt.NDArray[np.int64]  # of the texts, and the end
    codes: npt.NDArray[np.int64]  # per text a place in `regions`
    regions: Sequence[tuple[str, ...]]  # by which telephone numbers are read in it

    def at(self, place: int) -> tuple[str, ...]:
        """The regions of the text that holds the byte at `place`."""
        return self.regions[int(self.codes[np.searchsorted(self.offsets, place, side="right") - 1])]


def find(
    buffer: bytes, look: Look, more: Sequence[Hit] = (), languages: Languages | None = None
) -> list[Hit]:
    """Non-overlapping finds in a buffer of separated texts, in order. Of finds that overlap, the earliest
    start wins, then the longest, then what was recognised here, then the kind named first. `more`: finds made elsewhere."""
    folded = fold(buffer)
    hits = [*more, *_recognised(buffer, look, folded, languages)]
    rank = {kind: place for place, kind in enumerate(look.kinds)}
    hits.sort(key=lambda hit: (hit.start, -hit.end, hit.known, rank.get(hit.kind, 0)))
    chosen: list[Hit] = []
    for hit in hits:
        if chosen and hit.start < chosen[-1].end:
            continue
        if look.own and is_own(buffer, hit.start, hit.end):
            continue
        if hit.kind not in MODEL_KINDS or not is_tag(buffer, hit.start, hit.end):
            chosen.append(hit)
    return chosen


def _recognised(
    buffer: bytes, look: Look, folded: Folded | None, languages: Languages | None
) -> Iterator[Hit]:
    """Finds in a buffer, looked for in what it was folded to."""
    read = buffer if folded is None else folded.buffer
    known = look.known.find(read) if look.known is not None else ()
    for hit in (*_all(read, look, folded, languages), *known):
        yield (
            hit if folded is None else hit._replace(start=folded.place(hit.start), end=folded.place(hit.end))
        )


def _all(buffer: bytes, look: Look, folded: Folded | None, languages: Languages | None) -> Iterator[Hit]:
    kinds = frozenset(look.kinds)
    data = np.frombuffer(buffer, dtype=np.uint8)
    inferred = () if languages is None else tuple(dict.fromkeys(r for row in languages.regions for r in row))
    table = candidates(data, wanted(kinds), plans(look.regions, inferred), iban_lengths())
    for kind, start, end in table.tolist():
        if kind == PHONE:
            own = languages.at(folded.place(start) if folded else start) if languages is not None else ()
            yield from phones(buffer, start, end, look.regions, own)
        elif kind == LABELLED:
            yield from identifiers(buffer, start, kinds)
        elif kind == MASKED:
            yield from masked_phones(buffer, start, end)
        elif kind == IP4:
            yield from ipv4(buffer, start, end, look.every_ip)
        elif kind == AT:
            yield from emails(buffer, start, end)
        elif kind in (NUMBER, WORD):
            yield from national(buffer, start, end, kinds)
        elif kind in (CARD, CARD_TABLE):
            yield from cards(buffer, start, end, kind == CARD_TABLE)
        elif kind == SSN:
            yield from ssns(buffer, start, end)
        elif kind == IP6:
            yield from ipv6(buffer, start, end, look.every_ip)
        elif kind == MAC:
            yield from hardware(buffer, start, end)
        elif kind == IBAN:
            yield Hit(start, end, "iban")
        elif kind == COIN:
            yield from coins(buffer, start, end)
        elif kind == FORMAT:
            yield from formats(buffer, start)
        elif kind == PEM:
            yield from armoured(buffer, start)
        elif kind == ASSIGNED:
            yield from assigned(buffer, start)
        elif kind == USERINFO:
            yield from userinfo(buffer, start)
        else:
            yield from query(buffer, start, end)
    yield from cells(buffer, kinds)


_CANDIDATES: dict[Kind, tuple[int, ...]] = {
    "email": (AT,), "url_credential": (USERINFO, QUERY), "ip": (IP4, IP6), "mac": (MAC,), "card": (CARD, CARD_TABLE),
    "iban": (IBAN,), "ssn": (SSN,), "crypto": (COIN,), "secret": (FORMAT, PEM, ASSIGNED), "phone": (PHONE,),
    "masked_phone": (MASKED,), **dict.fromkeys(NUMBERS, (NUMBER, WORD)), **dict.fromkeys(identifier_labels.KINDS, (LABELLED,)),
}  # fmt: skip


@lru_cache(maxsize=64)
def wanted(kinds: frozenset[Kind]) -> npt.NDArray[np.bool_]:
    """bool per class of candidates: whether a detector of the kinds looks at it."""
    table = np.zeros(CANDIDATES, np.bool_)
    for kind in kinds:
        table[list(_CANDIDATES.get(kind, ()))] = True
    return table


@lru_cache(maxsize=1)
def iban_lengths() -> npt.NDArray[np.uint8]:
    """uint8[676]: the characters of an IBAN per pair of letters, 0 for no country's."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return np.array([iban_length(a + b) for a in letters for b in letters], dtype=np.uint8)


def find_edits(
    texts: pa.LargeStringArray, look: Look, replace: Replace, languages: pa.StringArray | None = None
) -> tuple[dict[int, list[Edit]], dict[int, Counter[str]]]:
    """(row -> its edits, in order; row -> finds by kind) for the rows that have any.

    What was written is scanned again until nothing is found, since a replacement moves its neighbours closer
    to a context word: so a second pass over the output has nothing left to do. A find may so
    take the place of an earlier one, and its edit that of the earlier edit; `finds` counts both. It counts those that were
    recognised elsewhere also as `everywhere/<kind>`. `languages`: of the texts, where they are known.
    """
    edits: dict[int, list[Edit]] = {}
    finds: dict[int, Counter[str]] = {}
    rows = np.arange(len(texts))
    current, spoken = texts, languages
    for _ in range(MAX_ROUNDS):
        found = _scan(current, look, replace, spoken)
        if not found:
            break
        for place, new in found.items():
            row = int(rows[place])
            edits[row] = compose(edits.get(row, []), new)
            counts = finds.setdefault(row, Counter())
            counts.update(edit.kind for edit in new)
            counts.update(f"{KNOWN}{edit.kind}" for edit in new if edit.known)
        places = sorted(found)
        current = rewrite(current.take(pa.array(places)), {i: found[row] for i, row in enumerate(places)})
        spoken = None if spoken is None else spoken.take(pa.array(places))
        rows = rows[places]
    return edits, finds


def _scan(
    texts: pa.LargeStringArray, look: Look, replace: Replace, languages: pa.StringArray | None
) -> dict[int, list[Edit]]:
    if len(texts) == 0:
        return {}
    large = pa.large_string()
    joined = pc.binary_join_element_wise(texts, pa.scalar(SEPARATOR, large), pa.scalar("", large))
    offsets = text_offsets(joined)
    buffer = joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    offsets = offsets - offsets[0]
    more = _by_model(texts, offsets, look) if look.detector else ()
    hits = find(buffer, look, more, None if languages is None else _regions(languages, offsets))
    rows = np.searchsorted(offsets, np.array([hit.start for hit in hits], dtype=np.int64), side="right") - 1
    found: dict[int, list[Edit]] = {}
    for hit, row in zip(hits, rows.tolist(), strict=True):
        base = int(offsets[row])
        value = replace(hit.kind, buffer[hit.start : hit.end])
        found.setdefault(row, []).append(Edit(hit.start - base, hit.end - base, hit.kind, value, hit.known))
    return found


def _regions(languages: pa.StringArray, offsets: npt.NDArray[np.int64]) -> Languages | None:
    """The regions of texts of these languages; None where there are none."""
    coded = languages.dictionary_encode("encode")
    regions = [regions_of_language(code) if code else () for code in coded.dictionary.to_pylist()]
    if not any(regions):
        return None
    return Languages(offsets, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), regions)


def _by_model(texts: pa.LargeStringArray, offsets: npt.NDArray[np.int64], look: Look) -> list[Hit]:
    """What the detector finds, in bytes of the joined buffer."""
    hits = []
    assert look.detector is not None
    for row, text in enumerate(texts.to_pylist()):
        place, at = 0, int(offsets[row])  # the same place in characters of the text, and in bytes
        for span in find_spans(look.detector, text):
            if span.kind not in look.kinds or span.start < place:
                continue
            start = at + len(text[place : span.start].encode())
            place, at = span.end, start + len(text[span.start : span.end].encode())
            hits.append(Hit(start, at, span.kind))
    return hits


def compose(old: list[Edit], new: list[Edit]) -> list[Edit]:
    """Edits of a text, and edits of what they made of it, as edits of the text alone: done at once they give the same.

    Edits that share a byte of the text between become one, of the last new edit's kind.
    """
    result: list[Edit] = []
    place = shift = 0  # shift: bytes that the text grew by, before the old edit at `place`
    i = 0
    while i < len(new):
        while place < len(old) and _end(old[place], shift) <= new[i].start:
            result.append(old[place])
            shift += _growth(old[place])
            place += 1
        # Of the text between: from `low` to `high` every byte is in an edit, `at` is where `written` has come to.
        before, first = shift, place
        low = high = new[i].start
        group: list[Edit] = []
        while True:
            if i < len(new) and (new[i].start < high or not group):
                group.append(new[i])
                high = max(high, new[i].end)
                i += 1
            elif place < len(old) and old[place].start + shift < high:
                low, high = min(low, old[place].start + shift), max(high, _end(old[place], shift))
                shift += _growth(old[place])
                place += 1
            else:
                break
        written = _written(old[first:place], before, group, low, high)
        result.append(Edit(low - before, high - shift, group[-1].kind, written))
    return result + old[place:]


def _written(old: list[Edit], shift: int, new: list[Edit], low: int, high: int) -> bytes:
    """What stands in the end where the text between had `low` to `high`: what new edits wrote, and what they left of
    what the old ones wrote."""
    left: dict[int, bytes] = {}  # where what an old edit wrote begins in the text between
    for edit in old:
        left[edit.start + shift] = edit.replacement
        shift += _growth(edit)
    pieces: list[bytes] = []
    at = low
    for start, end, value in [*((e.start, e.end, e.replacement) for e in new), (high, high, b"")]:
        for place, text in left.items():
            pieces.append(text[max(at - place, 0) : max(start - place, 0)])
        pieces.append(value)
        at = end
    return b"".join(pieces)


def _end(edit: Edit, shift: int) -> int:
    """Where what an edit wrote ends, in a text that grew by `shift` before it."""
    return edit.start + shift + len(edit.replacement)


def _growth(edit: Edit) -> int:
    return len(edit.replacement) - (edit.end - edit.start)


def rewrite(texts: pa.LargeStringArray, edits: dict[int, list[Edit]]) -> pa.LargeStringArray:
    """`texts` with the edits done, in one pass over the buffer."""
    if not edits or len(texts) == 0:
        return texts
    offsets = text_offsets(texts)
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
