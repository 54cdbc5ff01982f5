"""The text view of a batch: characters, words, lines, paragraphs, found once and read by every signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.filter.text import scan as kernels
from corpusmill.pipeline.filter.text.line_kinds import line_kinds
from corpusmill.pipeline.filter.text.repetition import later_copies, ngram_shares
from corpusmill.pipeline.filter.text.words import function_words, vocabulary
from corpusmill.pipeline.text.unicode_tables import class_table, lower_table

Array = npt.NDArray[Any]

# Text per view. Its arrays are about four times this for prose and 33 times for lines of one letter, whatever the
# partition's size.
VIEW_BYTES = 4 << 20


@dataclass(frozen=True)
class TextView:
    """Flat arrays over a batch of D documents; `x_offsets` int64[D + 1] are the bounds of each document's x.

    Hashes are uint64 of the words' code points, `word_bare` of what is left of them as bare words (0: nothing);
    `*_chars`, `line_upper` and `line_digits` count code points; `line_start` and `line_end` are byte positions in
    `data`, without the white space around the line. Definitions are in `kernels`.
    """

    data: Array
    offsets: Array
    counts: Array  # int64[D, kernels.COUNTS]
    word_offsets: Array
    word_hash: Array
    word_chars: Array
    word_bare: Array
    line_offsets: Array
    line_hash: Array
    line_chars: Array
    line_words: Array
    line_sentences: Array
    line_upper: Array
    line_digits: Array
    line_flags: Array
    line_start: Array
    line_end: Array
    para_offsets: Array
    para_hash: Array
    para_chars: Array
    para_flags: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def count(self, column: int) -> Array:
        """int64[D]: one of the counts of `kernels`."""
        return self.counts[:, column]

    @cached_property
    def words(self) -> Array:
        """int64[D]: words of each document."""
        return np.diff(self.word_offsets)

    @cached_property
    def lines(self) -> Array:
        """int64[D]: lines that are not blank."""
        return np.diff(self.line_offsets)

    @cached_property
    def paras(self) -> Array:
        """int64[D]: paragraphs."""
        return np.diff(self.para_offsets)

    @cached_property
    def all_word_chars(self) -> Array:
        """int64[D]: characters of all words, white space left out."""
        return self.count(kernels.CHARS) - self.count(kernels.SPACES)

    @cached_property
    def line_copies(self) -> Array:
        """int64[D, 2]: later copies of lines, and their characters."""
        copies: Array = later_copies(self.line_hash, self.line_chars, self.line_offsets)
        return copies

    @cached_property
    def para_copies(self) -> Array:
        """int64[D, 2]: later copies of paragraphs, and their characters."""
        copies: Array = later_copies(self.para_hash, self.para_chars, self.para_offsets)
        return copies

    @cached_property
    def ngrams(self) -> Array:
        """float64[D, 9]: shares of `repetition.ngram_shares`."""
        shares: Array = ngram_shares(self.word_hash, self.word_chars, self.word_offsets)
        return shares

    @cached_property
    def vocabulary(self) -> Array:
        """float64[D, 3]: distinct bare words, their entropy in nats, how many of all are function words."""
        found: Array = vocabulary(self.word_bare, self.word_offsets, function_words())
        return found

    @cached_property
    def line_kinds(self) -> Array:
        """uint8[lines]: the kinds of `line_kinds.line_kinds`."""
        kinds: Array = line_kinds(self.data, self.line_start, self.line_end, self.line_words, class_table())
        return kinds

    @cached_property
    def text(self) -> pa.LargeStringArray:
        """The documents as an Arrow array, without a copy: what `pyarrow.compute` works on."""
        offsets = pa.py_buffer(np.ascontiguousarray(self.offsets))
        return pa.LargeStringArray.from_buffers(len(self), offsets, pa.py_buffer(self.data))

    def paras_where(self, chosen: Array) -> Array:
        """int64[D]: how many paragraphs of each document are chosen (bool or numbers, one per paragraph)."""
        return per_document(chosen, self.para_offsets)

    def lines_where(self, chosen: Array) -> Array:
        """int64[D]: how many lines of each document are chosen (bool or numbers, one per line)."""
        return per_document(chosen, self.line_offsets)


def per_document(values: Array, offsets: Array) -> Array:
    """int64[D]: sums of `values` between consecutive offsets."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total[offsets[1:]] - total[offsets[:-1]]


def share(part: Array, whole: Array) -> Array:
    """float64: part / whole, 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part), np.float64), where=whole > 0)


def text_buffers(text: pa.LargeStringArray) -> tuple[Array, Array]:
    """(uint8 data, int64 offsets[D + 1]) of an Arrow array of valid UTF-8, without copying the text."""
    _, offsets, data = text.buffers()
    if offsets is None or len(text) == 0:
        return np.zeros(0, np.uint8), np.zeros(len(text) + 1, np.int64)
    starts = np.frombuffer(offsets, np.int64, count=text.offset + len(text) + 1)[text.offset :]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8), starts


def view_of(data: Array, offsets: Array) -> TextView:
    """The view of documents `data[offsets[d]:offsets[d + 1]]`."""
    documents = len(offsets) - 1
    size = int(offsets[-1] - offsets[0])
    words = (size + documents) // 2 + 1
    # A line that counts holds a character and a line feed; pages never written to cost no memory.
    counts = np.zeros((documents, kernels.COUNTS), np.int64)
    view = TextView(
        data, offsets, counts,
        np.empty(documents + 1, np.int64), np.empty(words, np.uint64), np.empty(words, np.int32),
        np.empty(words, np.uint64),
        np.empty(documents + 1, np.int64), np.empty(words, np.uint64), np.empty(words, np.int32),
        np.empty(words, np.int32), np.empty(words, np.int32), np.empty(words, np.int32),
        np.empty(words, np.int32), np.empty(words, np.uint16), np.empty(words, np.int64),
        np.empty(words, np.int64),
        np.empty(documents + 1, np.int64), np.empty(words, np.uint64), np.empty(words, np.int32),
        np.empty(words, np.uint16),
    )  # fmt: skip
    kernels.scan(
        data, offsets, class_table(), lower_table(), counts,
        view.word_offsets, view.word_hash, view.word_chars, view.word_bare,
        view.line_offsets, view.line_hash, view.line_chars, view.line_words, view.line_sentences,
        view.line_upper, view.line_digits, view.line_flags, view.line_start, view.line_end,
        view.para_offsets, view.para_hash, view.para_chars, view.para_flags,
    )  # fmt: skip
    used = {"word": view.word_offsets[-1], "line": view.line_offsets[-1], "para": view.para_offsets[-1]}
    cut = {
        name: value[: used[name[:4]]]
        for name, value in vars(view).items()
        if name[:4] in used and not name.endswith("_offsets")
    }
    return TextView(**{**vars(view), **cut})


def spans(text: pa.LargeStringArray, limit: int = VIEW_BYTES) -> Iterator[tuple[int, int]]:
    """(first, last) of runs of consecutive documents with up to `limit` bytes of text, or one document."""
    _, offsets = text_buffers(text)
    first = 0
    while first < len(text):
        last = int(np.searchsorted(offsets, offsets[first] + limit, side="right")) - 1
        last = min(max(last, first + 1), len(text))
        yield first, last
        first = last


Result = TypeVar("Result")


def once(compute: Callable[[TextView], Result]) -> Callable[[TextView], Result]:
    """The function, with its result kept on the view (as a `cached_property` would) and freed with it."""
    key = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def kept(view: TextView) -> Result:
        held = vars(view)
        if key not in held:
            held[key] = compute(view)
        found: Result = held[key]
        return found

    return kept
