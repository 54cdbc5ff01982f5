"""Which lines of a batch meet which line rule (comparisons on values of lines, patterns by RE2 on all of them at once), and
the documents without the spans that are cut, with the ledger's edits.

Kernels work on the flat arrays of a view whose text begins at byte 0. `owner`, int16 per byte, holds the rule that cuts the
byte: 0 if it stays, else 1 + the number of the rule. Spans are its runs, the text that stays is where it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.engine.stage import decisions
from corpusmill.pipeline.filter.rules.rule_files import COMPARED, LineRule
from corpusmill.pipeline.filter.text.view import Array, TextView, share, text_buffers
from corpusmill.pipeline.filter.text.view import spans as pieces
from corpusmill.pipeline.text import buffers
from corpusmill.pipeline.text.unicode_tables import ALPHA, PUNCT, class_table
from corpusmill.pipeline.text.utf8 import decode
from corpusmill.schemas.tables import KEPT

# Columns of `line_counts`.
LETTERS, PUNCTS = range(2)
MARKER = 0xFF  # stands in no UTF-8: set around what a pattern found


@compiled
def line_counts(data: Any, table: Any, starts: Any, ends: Any) -> Any:
    """int32[lines, 2]: letters and punctuation."""
    counts = np.zeros((len(starts), 2), np.int32)
    for line in range(len(starts)):
        i = starts[line]
        while i < ends[line]:
            point, size = decode(data, i)
            c = np.int64(table[point])
            counts[line, LETTERS] += (c & ALPHA) != 0
            counts[line, PUNCTS] += (c & PUNCT) != 0
            i += size
    return counts


@compiled
def claim_found(marked: Any, offsets: Any, starts: Any, owner: Any, code: int) -> int:
    """Give what a pattern found in lines to `code`, from a copy of them with `MARKER` before and after each find.

    `starts`: where each of the lines begins in the text of `owner`. Returns the number of bytes claimed.
    """
    claimed = 0
    for line in range(len(starts)):
        at, inside = starts[line], False
        for i in range(offsets[line], offsets[line + 1]):
            if marked[i] == MARKER:
                inside = not inside
                continue
            if inside:
                owner[at] = code
                claimed += 1
            at += 1
    return claimed


@compiled
def documents_with(offsets: Any, owner: Any) -> Any:
    """bool[D]: documents of which a byte belongs to a rule."""
    hit = np.zeros(len(offsets) - 1, np.bool_)
    for d in range(len(hit)):
        some = np.int16(0)
        for i in range(offsets[d], offsets[d + 1]):  # to the end: the compiler takes many at a time
            some |= owner[i]
        hit[d] = some != 0
    return hit


@compiled
def places_without(offsets: Any, owner: Any, rows: Any, bounds: Any) -> Any:
    """int64: the places of the bytes of documents `rows` that belong to no rule; `bounds` (int64[rows + 1]) of each document in them."""
    size: Any = np.int64(0)
    for row in rows:
        size += offsets[row + 1] - offsets[row]
    places = np.empty(size, np.int64)
    size, bounds[0] = np.int64(0), 0
    for n in range(len(rows)):
        for i in range(offsets[rows[n]], offsets[rows[n] + 1]):
            if owner[i] == 0:
                places[size] = i
                size += 1
        bounds[n + 1] = size
    return places[:size]


@compiled
def copied(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """The bytes of lines, one behind the other; `offsets` (int64[lines + 1]) is filled."""
    size: Any = np.int64(0)
    offsets[0] = 0
    for line in range(len(starts)):
        for i in range(starts[line], ends[line]):
            out[size] = data[i]
            size += 1
        offsets[line + 1] = size


@compiled
def whole_lines(data: Any, offsets: Any, line_offsets: Any, starts: Any, ends: Any) -> Any:
    """int64[lines, 2]: first byte and end of each line with the white space around it, its line feed left out."""
    bounds = np.empty((len(starts), 2), np.int64)
    for d in range(len(offsets) - 1):
        for line in range(line_offsets[d], line_offsets[d + 1]):
            i = starts[line]
            while i > offsets[d] and data[i - 1] != 10:
                i -= 1
            j = ends[line]
            while j < offsets[d + 1] and data[j] != 10:
                j += 1
            bounds[line, 0], bounds[line, 1] = i, j
    return bounds


@compiled
def claim_lines(data: Any, line_offsets: Any, bounds: Any, verdict: Any, owner: Any) -> None:
    """Give lines with a `verdict` (the rule that cuts them; 0: it stays) to it, with the line feeds that go along.

    Of the gaps before, between and after lines that go together the one with most line feeds stays: lines before
    it take the gap before them along, lines after it the gap after them. A text begins and ends as it did.
    """
    for d in range(len(line_offsets) - 1):
        head, tail = line_offsets[d], line_offsets[d + 1]
        line = head
        while line < tail:
            if verdict[line] == 0:
                line += 1
                continue
            first = line
            while line < tail and verdict[line] != 0:
                line += 1
            if first == head and line == tail:
                for k in range(first, line):
                    end = bounds[k + 1, 0] if k + 1 < tail else bounds[k, 1]
                    owner[bounds[k, 0] : end] = verdict[k]
                continue
            stays = first
            if line == tail:
                stays = tail
            elif first > head:
                most = -1
                for k in range(first, line + 1):
                    feeds = 0
                    for i in range(bounds[k - 1, 1], bounds[k, 0]):
                        feeds += data[i] == 10
                    if feeds > most:
                        most, stays = feeds, k
            for k in range(first, line):
                if k < stays:
                    owner[bounds[k - 1, 1] : bounds[k, 1]] = verdict[k]
                else:
                    owner[bounds[k, 0] : bounds[k + 1, 0]] = verdict[k]


@compiled
def runs(offsets: Any, owner: Any) -> Any:
    """int64[spans, 4]: document, first byte and end counted from its start, owner; sorted."""
    count = 0
    for d in range(len(offsets) - 1):
        last = 0
        for i in range(offsets[d], offsets[d + 1]):
            count += owner[i] != 0 and owner[i] != last
            last = owner[i]
    spans = np.empty((count, 4), np.int64)
    count = 0
    for d in range(len(offsets) - 1):
        last = 0
        for i in range(offsets[d], offsets[d + 1]):
            if owner[i] != 0:
                if owner[i] != last:
                    spans[count, 0], spans[count, 1], spans[count, 3] = d, i - offsets[d], owner[i]
                    count += 1
                spans[count - 1, 2] = i + 1 - offsets[d]
            last = owner[i]
    return spans


class LineText:
    """The lines of a view as line rules look at them; the view's text begins at byte 0.

    `rules`: those that will be asked for. What all their patterns together find is looked for first, in one pass, since most
    lines hold nothing of any.
    """

    def __init__(self, view: TextView, rules: Sequence[LineRule] = ()) -> None:
        self.view = view
        self._wanted = list(
            dict.fromkeys(rule.pattern for rule in rules if rule.pattern and not rule.negated)
        )

    @cached_property
    def _counts(self) -> Array:
        view = self.view
        return np.asarray(line_counts(view.data, class_table(), view.line_start, view.line_end))

    def __len__(self) -> int:
        return len(self.view.line_start)

    def value(self, name: str) -> Array:
        """float64[lines]: a `LineValue`."""
        view = self.view
        if name == "longest_word":
            # Every word stands in a line, and every line has one.
            firsts = np.cumsum(view.line_words, dtype=np.int64) - view.line_words
            return np.maximum.reduceat(view.word_chars, firsts).astype(np.float64)
        if name in ("words", "chars"):
            return np.asarray(getattr(view, f"line_{name}"), np.float64)
        if name in ("uppercase_ratio", "digit_ratio"):
            return share(view.line_upper if name == "uppercase_ratio" else view.line_digits, view.line_chars)
        return share(self._counts[:, LETTERS if name == "letter_ratio" else PUNCTS], view.line_chars)

    def texts(self, rows: npt.NDArray[np.int64]) -> pa.LargeStringArray:
        """These lines."""
        starts, ends = self.view.line_start[rows], self.view.line_end[rows]
        offsets = np.empty(len(rows) + 1, np.int64)
        out = np.empty(int((ends - starts).sum()), np.uint8)
        copied(self.view.data, starts, ends, offsets, out)
        return pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(out))

    @cached_property
    def _all(self) -> pa.LargeStringArray:
        return self.texts(np.arange(len(self)))

    @cached_property
    def _candidates(self) -> npt.NDArray[np.int64]:
        """The lines in which any of the wanted patterns finds something."""
        either = "|".join(f"(?:{pattern})" for pattern in self._wanted)
        return np.flatnonzero(np.asarray(pc.match_substring_regex(self._all, either)))

    @cached_property
    def _candidate_texts(self) -> pa.LargeStringArray:
        return self.texts(self._candidates)

    def _finds(self, pattern: str) -> npt.NDArray[np.bool_]:
        """bool[lines]: in which a pattern finds something."""
        if len(self._wanted) < 2 or pattern not in self._wanted:
            return np.asarray(pc.match_substring_regex(self._all, pattern))
        found = np.zeros(len(self), np.bool_)
        found[self._candidates] = np.asarray(pc.match_substring_regex(self._candidate_texts, pattern))
        return found

    def meeting(self, rule: LineRule) -> npt.NDArray[np.bool_]:
        """bool[lines]: which lines meet the condition of a rule."""
        if len(self) == 0:
            return np.zeros(0, np.bool_)
        if rule.value is not None:
            return np.asarray(COMPARED[str(rule.comparison)](self.value(rule.value), rule.threshold))
        assert rule.pattern is not None  # a rule has a value or a pattern
        found = self._finds(rule.pattern)
        return np.asarray(self.short_enough(rule) & (~found if rule.negated else found))

    def short_enough(self, rule: LineRule) -> npt.NDArray[np.bool_]:
        """bool[lines]: lines with no more words than a rule looks at."""
        if rule.most_words is None:
            return np.ones(len(self), np.bool_)
        return np.asarray(self.view.line_words <= rule.most_words)

    def claim(self, rule: LineRule, owner: Array, code: int) -> int:
        """Write `code` over what the pattern of a rule finds in lines (`owner`, int16 per byte); returns the number of bytes claimed."""
        rows = np.flatnonzero(self.meeting(rule))
        if not len(rows):
            return 0
        marked = pc.replace_substring_regex(self.texts(rows), rule.pattern, b"\xff\\0\xff")
        _, offsets, data = marked.buffers()
        bounds = np.frombuffer(offsets, np.int64, len(marked) + 1 + marked.offset)[marked.offset :]
        return int(
            claim_found(np.frombuffer(data, np.uint8), bounds, self.view.line_start[rows], owner, code)
        )


def verdicts(lines: LineText, rules: Sequence[LineRule], codes: Sequence[int]) -> npt.NDArray[np.int16]:
    """int16[lines]: the code of the first of `rules` that cuts the line, 0 where none does."""
    found = np.zeros(len(lines), np.int16)
    for rule, code in zip(rules, codes, strict=True):
        if rule.cut == "line":
            found[(found == 0) & lines.meeting(rule)] = code
    return found


STAGE: Final = "filter"


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
            characters.append(buffers.in_characters(data, offsets, mine[:, 0], mine[:, 1], mine[:, 2]))
            new, bounds = buffers.splice(data, offsets, mine)
            texts.append(
                pa.LargeStringArray.from_buffers(tail - head, pa.py_buffer(bounds), pa.py_buffer(new))
            )
            hashes += buffers.hashes(new, bounds, np.unique(mine[:, 0]))
        first += len(chunk)
    rows = np.unique(spans[:, 0])
    changed = _with(docs, "text", pa.chunked_array(texts, pa.large_string()))
    changed = _with(changed, "text_hash", buffers.with_hashes(docs["text_hash"], rows, hashes))
    kinds = pa.array(names, pa.string()).take(pa.array(spans[:, 3] - 1))
    return changed, decisions(
        doc_id=docs["doc_id"].take(pa.array(rows)).combine_chunks(),
        outcome=pa.repeat(pa.scalar(KEPT), len(rows)),
        stage=pa.repeat(pa.scalar(STAGE), len(rows)),
        edits=buffers.edits(STAGE, spans[:, 0], kinds, np.concatenate(characters)),
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
