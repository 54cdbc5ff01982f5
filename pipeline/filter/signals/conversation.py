"""`conversation`: the turns of sources of conversations (`corpusmill.pipeline.text.turns`), measured for rules that look at them.
Texts that are no conversations have none."""

from __future__ import annotations

from typing import Final

import numpy as np

from corpusmill.pipeline.filter.signals.registry import SHARE, column, family
from corpusmill.pipeline.filter.text.view import Array, TextView, once, per_document, share
from corpusmill.pipeline.text.turns import MARK

TURNS, ANSWERS, SHORTEST, ANSWERED, ALL = range(5)  # columns of `turn_counts`
_MARK: Final = np.frombuffer(MARK.encode(), np.uint8)
# How the line of a turn that is an answer ends: a message of the assistant, or a text that is a part of the line.
_ENDS: Final = (b"assistant", b" completion", b" chosen", b" rejected", b" good", b" bad")


@once
def turn_counts(view: TextView) -> Array:
    """int64[D, 5]: turns, answers, characters of the shortest answer (0 if there is none), of all answers, and of all turns; white
    space around lines is not counted."""
    marked = _begins(view)
    where = np.flatnonzero(marked)
    answers = _ends_with(view, where)
    of_line = np.repeat(np.arange(len(view)), view.lines)  # the document
    document = of_line[where]
    turn = np.cumsum(marked) - 1  # that a line is in, if it is of the same document
    inside = np.flatnonzero(~marked & (turn >= 0))
    inside = inside[document[turn[inside]] == of_line[inside]]
    chars = np.zeros(len(where), np.int64)
    np.add.at(chars, turn[inside], view.line_chars[inside])
    found = np.zeros((len(view), 5), np.int64)
    found[:, TURNS] = per_document(marked, view.line_offsets)
    for values, place in ((answers, ANSWERS), (np.where(answers, chars, 0), ANSWERED), (chars, ALL)):
        np.add.at(found[:, place], document, values)
    shortest = np.full(len(view), np.iinfo(np.int64).max)
    np.minimum.at(shortest, document[answers], chars[answers])
    found[:, SHORTEST] = np.where(found[:, ANSWERS] > 0, shortest, 0)
    return found


def _begins(view: TextView) -> Array:
    """bool, one per line: whether it is the line of a turn, a mark and a number. Marks inside a turn are doubled."""
    marked = np.ones(len(view.line_start), np.bool_)
    last = max(0, len(view.data) - 1)
    for at, byte in enumerate(_MARK):
        marked &= view.data[np.minimum(view.line_start + at, last)] == byte
    digit = view.data[np.minimum(view.line_start + len(_MARK), last)]
    return np.asarray(marked & (digit >= ord("0")) & (digit <= ord("9")))


def _ends_with(view: TextView, lines: Array) -> Array:
    """bool, one per line of a turn: whether the turn is an answer."""
    found = np.zeros(len(lines), np.bool_)
    ends = view.line_end[lines]
    for word in _ENDS:
        same = np.ones(len(lines), np.bool_)
        for at, byte in enumerate(reversed(word), 1):
            same &= view.data[ends - at] == byte
        found |= same
    return found


own = family("conversation", "the conversation's turns", on_demand=True)
own("turns", "turns", column(turn_counts, TURNS), dtype="int")
own("answers", "answers", column(turn_counts, ANSWERS), ", the assistant's among them", dtype="int")
own(
    "shortest_answer", "characters", column(turn_counts, SHORTEST),
    ", the assistant's among them; 0 if there is none", dtype="int",
)  # fmt: skip
own(
    "answer_share", "share of characters",
    lambda v: share(turn_counts(v)[:, ANSWERED], turn_counts(v)[:, ALL]),
    ", the assistant's among them", range=SHARE,
)  # fmt: skip
