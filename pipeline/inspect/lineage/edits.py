"""Positions through edits: from the text that a stage gave to the text that it got, and back, in characters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
            edit_or_none = self.edits[i] if i < len(self.edits) and self.edits[i].place < end else None
            stop = end if edit_or_none is None else edit_or_none.place
            if at < stop:
                pieces.append(Piece(at, stop, at - shift, stop - shift))
                at = stop
            if edit_or_none is not None:
                edit = edit_or_none
                if edit.written:
                    at = min(end, edit.place + edit.written)
                    pieces.append(Piece(edit.place, at, edit.start, edit.end, (edit,)))
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
            raise WorkError(f"the ledger has edits of {edit['stage']}, which is no stage of this run")
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
