"""Which lines of a batch meet which line rule (comparisons on values of lines, patterns by RE2 on all of them at once), and
the documents without the spans that are cut, with the ledger's edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.stage import decisions
from corpusmill.pipeline.filter.lines import line_kernels
from corpusmill.pipeline.filter.rules.rule_files import LineRule
from corpusmill.pipeline.filter.text.view import TextView, share, text_buffers
from corpusmill.pipeline.filter.text.view import spans as pieces
from corpusmill.pipeline.text import buffers
from corpusmill.pipeline.text.unicode_tables import class_table
from corpusmill.schemas.ledger import KEPT

Array = npt.NDArray[Any]


class LineText:
    """The lines of a view as line rules look at them; the view's text begins at byte 0."""

    def __init__(self, view: TextView) -> None:
        self.view = view
        self._counts: Array | None = None

    def __len__(self) -> int:
        return len(self.view.line_start)

    def value(self, name: str) -> Array:
        """float64[lines]: a `LineValue`."""
        view = self.view
        if name == "words":
            return view.line_words.astype(np.float64)
        if name == "chars":
            return view.line_chars.astype(np.float64)
        if name == "longest_word":
            # Every word stands in a line, and every line has one.
            firsts = np.cumsum(view.line_words, dtype=np.int64) - view.line_words
            return np.maximum.reduceat(view.word_chars, firsts).astype(np.float64)
        if name == "uppercase_ratio":
            return share(view.line_upper, view.line_chars)
        if name == "digit_ratio":
            return share(view.line_digits, view.line_chars)
        if self._counts is None:
            self._counts = line_kernels.line_counts(view.data, class_table(), view.line_start, view.line_end)
        column = line_kernels.LETTERS if name == "letter_ratio" else line_kernels.PUNCTS
        return share(self._counts[:, column], view.line_chars)

    def array(self) -> pa.LargeStringArray:
        """The lines as the even elements of an Arrow array, what is between them as the odd ones; no copy."""
        offsets = line_kernels.elements(self.view.line_start, self.view.line_end)
        count = max(len(offsets) - 1, 0)
        return pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(self.view.data))

    def meeting(self, rule: LineRule) -> npt.NDArray[np.bool_]:
        """bool[lines]: which lines meet the condition of a rule."""
        if len(self) == 0:
            return np.zeros(0, np.bool_)
        if rule.value is not None:
            values, limit = self.value(rule.value), rule.threshold
            assert limit is not None
            met = {
                "at_least": values >= limit,
                "at_most": values <= limit,
                "more_than": values > limit,
                "less_than": values < limit,
            }[str(rule.comparison)]
            return np.asarray(met)
        found = np.asarray(pc.match_substring_regex(self.array(), rule.pattern))[::2]
        return self.short_enough(rule) & (~found if rule.negated else found)

    def short_enough(self, rule: LineRule) -> npt.NDArray[np.bool_]:
        """bool[lines]: lines with no more words than a rule looks at."""
        if rule.most_words is None:
            return np.ones(len(self), np.bool_)
        return np.asarray(self.view.line_words <= rule.most_words)

    def claim(self, rule: LineRule, owner: Array, code: int) -> int:
        """Write `code` over what the pattern of a rule finds in lines (`owner`, int16 a byte); bytes claimed."""
        if not self.meeting(rule).any():
            return 0
        marked = pc.replace_substring_regex(self.array(), rule.pattern, b"\xff\\0\xff")
        _, offsets, data = marked.buffers()
        bounds = np.frombuffer(offsets, np.int64, len(marked) + 1 + marked.offset)[marked.offset :]
        first = int(self.view.line_start[0])
        return int(
            line_kernels.claim_found(
                np.frombuffer(data, np.uint8), bounds, self.short_enough(rule), first, owner, code
            )
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
