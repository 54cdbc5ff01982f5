"""What ingest mended in a text, as edits: line ends, control characters, mojibake; and what a tokenizer composed (NFC)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

STAGE: Final = "ingest"
COMPOSING: Final = "tokenizer"  # which composes texts, if it is one that does
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\u2028\u2029]")  # ingest looks no further
_RUN = re.compile(
    "[\x00-\x7f]?[^\x00-\x7f]+"
)  # an ASCII character may compose with what follows it, never before
_LINE_ENDS = "\r\x0b\x0c\x85\u2028\u2029"
Clean = Callable[[Sequence[str], bool], list[str]]  # texts, whether to mend mojibake


def repairs(before: str, after: str, clean: Clean) -> list[dict[str, Any]]:
    """Edits (rows of `corpusmill.schemas.ledger.EDIT`) that make `after`, what ingest kept, of `before`, what the reader found.

    Line ends and control characters give exact edits. Of a line whose mojibake was mended, what lies between its first
    and last changed character is one edit.
    """
    if before == after:
        return []
    lines = _LINE.findall(before)
    mended = clean(lines, True)
    if "".join(mended) != after:  # what is mojibake was decided by looking at the whole
        return [_hull(before, after, 0)]
    plain = clean(lines, False)
    edits: list[dict[str, Any]] = []
    at = 0
    for line, whole, lined in zip(lines, mended, plain, strict=True):
        if whole != line:
            exact = _exact(line, at, clean) if whole == lined else None
            edits += exact if exact is not None else [_hull(line, whole, at)]
        at += len(line)
    return edits


def _exact(line: str, at: int, clean: Clean) -> list[dict[str, Any]] | None:
    """One edit for each run of characters that is not kept as it is; None if these do not make the cleaned line."""
    alone = _alone(clean)
    edits: list[dict[str, Any]] = []
    made, end = [], 0
    for match in _SUSPECT.finditer(line):
        place, char = match.start(), match[0]
        written = "" if line[place : place + 2] == "\r\n" else alone(char)
        made += [line[end:place], written]
        end = match.end()
        last = edits[-1] if edits else None
        if written == char:
            continue
        if last and last["offset"] + last["length"] == at + place and not (last["written"] or written):
            last["length"] += 1
        else:
            kind = "line_end" if char in _LINE_ENDS else "control"
            edits.append(_edit(kind, at + place, 1, len(written)))
    made.append(line[end:])
    return edits if "".join(made) == clean([line], False)[0] else None


@lru_cache(maxsize=4)
def _alone(clean: Clean) -> Callable[[str], str]:
    """What is made of a character by itself."""

    @lru_cache(maxsize=1 << 12)
    def alone(char: str) -> str:
        return clean([char], False)[0]

    return alone


def _hull(before: str, after: str, at: int, kind: str = "mojibake", stage: str = STAGE) -> dict[str, Any]:
    """One edit, of what lies between the characters that both begin and end with; of one character at least."""
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - head) if before[-1 - i] != after[-1 - i]), shorter - head)
    if head + tail == len(before):  # something was put in: its neighbour goes with it
        head, tail = (head - 1, tail) if head else (head, tail - 1)
    return _edit(kind, at + head, len(before) - tail - head, len(after) - tail - head, stage)


def _edit(kind: str, offset: int, length: int, written: int, stage: str = STAGE) -> dict[str, Any]:
    return {"stage": stage, "kind": kind, "offset": offset, "length": length, "written": written}


def composition(before: str, after: str) -> list[dict[str, Any]]:
    """Edits that make `after`, the canonical composition (NFC) of `before`: one for each run of characters that compose,
    or change their order."""
    if before == after:
        return []
    edits: list[dict[str, Any]] = []
    made, end = [], 0
    for match in _RUN.finditer(before):
        run, whole = match[0], unicodedata.normalize("NFC", match[0])
        if whole != run:
            head = next((i for i, (a, b) in enumerate(zip(run, whole, strict=False)) if a != b), 0)
            edits.append(_edit("nfc", match.start() + head, len(run) - head, len(whole) - head, COMPOSING))
        made += [before[end : match.start()], whole]
        end = match.end()
    made.append(before[end:])
    return edits if "".join(made) == after else [_hull(before, after, 0, "nfc", COMPOSING)]
