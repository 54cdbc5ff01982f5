"""Values that only the head of their column names, in documents that begin with a row of heads, as files of tables do.

A row counts where it has as many cells as the heads; a cell counts as a whole: digits in the signs of telephone numbers under a head
that labels one (`phone`, `tel. móvil`), what may be an identifier under a head that labels one (`patient_id`, `NHC`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from corpusmill.pipeline.redact import Hit, Kind, phone_words
from corpusmill.pipeline.redact.identifier_labels import KINDS, LABELS, NUMBERED, fold
from corpusmill.pipeline.redact.identifiers import is_date, is_plausible
from corpusmill.pipeline.redact.kernels.heads import heads

_NAMED = frozenset(("phone", *KINDS))  # what a head may name
DELIMITERS = b",;\t|"
_LONGEST_HEAD = 40  # bytes: a longer one is a sentence
_CELL = {
    sign: re.compile(rb'"(?:[^"\n]|"")*"|[^\n"' + re.escape(bytes([sign])) + rb"]*") for sign in DELIMITERS
}
_PHONE = re.compile(
    rb"[+(]{0,2}[0-9](?:[0-9 ()./-]|\xc2\xa0){5,22}[0-9](?:[ ,]{0,2}(?:x|ext\.?)[ ]?[0-9]{1,6})?",
    re.IGNORECASE,
)
_VALUE = re.compile(rb"[A-Za-z0-9]+(?:[-/._ ][A-Za-z0-9]+)*")


def cells(buffer: bytes, kinds: frozenset[Kind]) -> Iterator[Hit]:
    """Finds of `kinds` in the tables of a buffer of separated texts."""
    if kinds.isdisjoint(_NAMED):
        return
    for start in heads(buffer):
        end = buffer.find(b"\0", start)
        head, _, rows = buffer[start : end if end >= 0 else len(buffer)].partition(b"\n")
        delimiter = max(DELIMITERS, key=head.count)
        named = [_kind(head[low:high], kinds) for low, high in _spans(head, delimiter)]
        if not any(named):
            continue
        place = start + len(head) + 1
        for line in rows.split(b"\n"):
            spans = _spans(line, delimiter)
            if len(spans) == len(named):
                for kind, (low, high) in zip(named, spans, strict=True):
                    if kind is not None and _is_value(line[low:high], kind):
                        yield Hit(place + low, place + high, kind)
            place += len(line) + 1


def _spans(line: bytes, delimiter: int) -> list[tuple[int, int]]:
    """Where the cells of a line lie, without blanks and quotation marks around them."""
    found, place = [], 0
    while True:
        match = _CELL[delimiter].match(line, place)
        assert match is not None  # it matches nothing as well
        low, high = match.span()
        while low < high and line[low] in b' "\r':
            low += 1
        while high > low and line[high - 1] in b' "\r':
            high -= 1
        found.append((low, high))
        place = match.end()
        if place >= len(line) or line[place] != delimiter:
            return found
        place += 1


def _kind(head: bytes, kinds: frozenset[Kind]) -> Kind | None:
    """The kind that the head of a column names."""
    if not 2 <= len(head) <= _LONGEST_HEAD:
        return None
    name = head.replace(b"_", b" ").lower()
    if "phone" in kinds and any(word.labels for word in phone_words.words_in(name)):
        return "phone"
    words = fold(head.decode("utf-8", "ignore"))
    found: tuple[Kind | None, bool] = LABELS.get(words, (None, False))
    if not found[1] and len(words) > 1 and (words[0] in NUMBERED or words[-1] in NUMBERED):
        found = LABELS.get(words[1:] if words[0] in NUMBERED else words[:-1], found)[0], True
    kind, named = found
    return kind if named and kind in kinds else None


def _is_value(cell: bytes, kind: Kind) -> bool:
    if kind == "phone":
        digits = sum(48 <= byte <= 57 for byte in cell)
        least = 9 if digits == len(cell) else 7  # a count has no signs, and is shorter
        return least <= digits <= 20 and _PHONE.fullmatch(cell) is not None and not is_date(cell)
    return len(cell) <= 36 and _VALUE.fullmatch(cell) is not None and is_plausible(cell, kind, explicit=True)
