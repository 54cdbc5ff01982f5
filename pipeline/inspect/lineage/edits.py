"""Positions through edits: from the text that a stage gave to the text that it got, and back, in characters; and the edits of what
keeps none: what ingest mended (line ends, control characters, mojibake), and what a tokenizer composed (NFC)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from corpusmill.common.errors import UserError, WorkError


class Edit(NamedTuple):
    """Characters `start` to `end` of the text as a stage got it, in whose place `written` stand at `place` of the text
    that it gave. Cuts that overlap are one, of all their kinds."""

    stage: str
    kinds: tuple[str, ...]
    start: int
    end: int
    place: int
    written: int


class Piece(NamedTuple):
    """Characters `start` to `end` of a text, and where they come from in an older one.

    `inside`: the edits whose writing they are, the newest first. None: the characters are the same there. Else
    `old_start` to `old_end` is the whole span that the last of these edits replaced.
    """

    start: int
    end: int
    old_start: int
    old_end: int
    inside: tuple[Edit, ...] = ()


class StageEdits:
    """What one stage did to one text. Raises `WorkError` for edits that no stage can have made."""

    def __init__(self, stage: str, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.stage = stage
        self.edits: list[Edit] = []
        end = growth = 0
        for row in sorted(rows, key=lambda row: (row["offset"], row["length"])):
            start, stop, written = row["offset"], row["offset"] + row["length"], row["written"]
            if written is None:
                raise UserError(
                    f"{stage}: the ledger was written by an older version, which did not keep what edits wrote; run the"
                    " recipe again"
                )
            if start < end:
                last = self.edits[-1]
                if written or last.written:
                    raise WorkError(f"{stage}: edits overlap in the ledger, at character {start}")
                growth -= max(stop - end, 0)
                end = max(stop, end)
                kinds = tuple(dict.fromkeys((*last.kinds, row["kind"])))
                self.edits[-1] = last._replace(end=end, kinds=kinds)
                continue
            self.edits.append(Edit(stage, (row["kind"],), start, stop, start + growth, written))
            growth += written - (stop - start)
            end = stop
        self.growth = growth  # characters by which the text grew
        self._starts = [edit.start for edit in self.edits]
        self._places = [edit.place for edit in self.edits]

    def back(self, start: int, end: int) -> list[Piece]:
        """Where characters `start` to `end` (at least one) of the text that the stage gave come from, in order. Cuts
        between them part the pieces; cuts at the ends do not count."""
        pieces: list[Piece] = []
        at = start
        i = bisect_right(self._places, start)
        # Of edits at one place only the last can have written.
        if i and self.edits[i - 1].place + self.edits[i - 1].written > start:
            edit = self.edits[i - 1]
            at = min(end, edit.place + edit.written)
            pieces.append(Piece(start, at, edit.start, edit.end, (edit,)))
        shift = self._shift(i)
        while at < end:
            following = self.edits[i] if i < len(self.edits) and self.edits[i].place < end else None
            stop = end if following is None else following.place
            if at < stop:
                pieces.append(Piece(at, stop, at - shift, stop - shift))
                at = stop
            if following is not None:
                if following.written:
                    at = min(end, following.place + following.written)
                    pieces.append(Piece(following.place, at, following.start, following.end, (following,)))
                i += 1
                shift = self._shift(i)
        return pieces

    def forward(self, start: int, end: int) -> tuple[int, int]:
        """What stands for characters `start` to `end` of the text that the stage got: from the first of them that is
        left, or of what was written in their place, to one past the last. Empty if all are cut."""
        i = bisect_left(self._starts, start)
        if i and self.edits[i - 1].end > start:
            low = self.edits[i - 1].place
        else:
            low = start + self._shift(i)
        j = bisect_left(self._starts, end)
        if j and self.edits[j - 1].end > end:
            high = self.edits[j - 1].place + self.edits[j - 1].written
        else:
            high = end + self._shift(j)
        return low, max(low, high)

    def before(self, place: int) -> tuple[int, int]:
        """(edits, growth) in front of a place of the text that the stage gave."""
        i = bisect_right(self._places, place)
        while i and self.edits[i - 1].place + self.edits[i - 1].written > place:
            i -= 1
        return i, self._shift(i)

    def _shift(self, i: int) -> int:
        """By how much the text grew through the first `i` edits."""
        if i == 0:
            return 0
        edit = self.edits[i - 1]
        return edit.place + edit.written - edit.end


def by_stage(stages: Sequence[str], edits: Iterable[Mapping[str, Any]] | None) -> list[StageEdits]:
    """The edits of a ledger row by stage, in the order in which the stages worked."""
    rows: dict[str, list[Mapping[str, Any]]] = {stage: [] for stage in stages}
    for edit in edits or ():
        if edit["stage"] not in rows:
            raise WorkError(f"the ledger has edits of {edit['stage']}, which is not a stage of this run")
        rows[edit["stage"]].append(edit)
    return [StageEdits(stage, rows[stage]) for stage in stages]


def back(chain: Sequence[StageEdits], start: int, end: int) -> list[Piece]:
    """Where characters `start` to `end` of the text that the last of the stages gave come from in the text that the
    first one got."""
    pieces = [Piece(start, end, start, end)]
    for stage in reversed(chain):
        pieces = [older for piece in pieces for older in _older(stage, piece)]
    return pieces


def _older(stage: StageEdits, piece: Piece) -> list[Piece]:
    if piece.inside:
        found = stage.back(piece.old_start, piece.old_end)
        inside = piece.inside + tuple(edit for one in found for edit in one.inside)
        return [piece._replace(old_start=found[0].old_start, old_end=found[-1].old_end, inside=inside)]
    shift = piece.start - piece.old_start
    return [
        one._replace(start=one.start + shift, end=one.end + shift)
        for one in stage.back(piece.old_start, piece.old_end)
    ]


def forward(chain: Sequence[StageEdits], start: int, end: int) -> tuple[int, int]:
    """What stands in the end for characters `start` to `end` of the text that the first of the stages got."""
    for stage in chain:
        start, end = stage.forward(start, end)
        if start == end:  # cut: nothing after it can bring it back
            return start, end
    return start, end


STAGE: Final = "ingest"
COMPOSING: Final = "tokenizer"  # which composes texts, if it is one that does
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\u2028\u2029]")  # ingest looks no further
# An ASCII character may compose with what follows it, never before.
_RUN = re.compile("[\x00-\x7f]?[^\x00-\x7f]+")
_LINE_ENDS = "\r\x0b\x0c\x85\u2028\u2029"
Clean = Callable[[Sequence[str], bool], list[str]]  # texts, whether to mend mojibake


def repairs(before: str, after: str, clean: Clean) -> list[dict[str, Any]]:
    """Edits (rows of `corpusmill.schemas.tables.EDIT`) that make `after`, what ingest kept, of `before`, what the reader found.

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
