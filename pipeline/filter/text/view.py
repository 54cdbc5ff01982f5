"""The text view of a batch: characters, words, lines, paragraphs, found once and read by every signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.filter.text import scan as kernels
from corpusmill.pipeline.filter.text.repetition import later_copies, ngram_shares
from corpusmill.pipeline.filter.text.words import function_words, vocabulary
from corpusmill.pipeline.text import buffers
from corpusmill.pipeline.text.unicode_tables import class_table, lower_table

Array = npt.NDArray[Any]

# Text per view. Its arrays are about four times this for prose and 33 times for lines of one letter, whatever the
# partition's size.
VIEW_BYTES = 2 << 20


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
        return np.asarray(later_copies(self.line_hash, self.line_chars, self.line_offsets))

    @cached_property
    def para_copies(self) -> Array:
        """int64[D, 2]: later copies of paragraphs, and their characters."""
        return np.asarray(later_copies(self.para_hash, self.para_chars, self.para_offsets))

    @cached_property
    def ngrams(self) -> Array:
        """float64[D, 9]: shares of `repetition.ngram_shares`."""
        return np.asarray(ngram_shares(self.word_hash, self.word_chars, self.word_offsets))

    @cached_property
    def vocabulary(self) -> Array:
        """float64[D, 3]: distinct bare words, their entropy in nats, how many of all are function words."""
        return np.asarray(vocabulary(self.word_bare, self.word_offsets, function_words()))

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
    offsets, data = buffers.view(text)
    return data, offsets


def view_of(data: Array, offsets: Array) -> TextView:
    """The view of documents `data[offsets[d]:offsets[d + 1]]`."""
    documents = len(offsets) - 1
    size = int(offsets[-1] - offsets[0])
    most = (size + documents) // 2 + 1
    # A line that counts holds a character and a line feed; pages never written to cost no memory.
    counts = np.zeros((documents, kernels.COUNTS), np.int64)

    def arrays(*types: type[np.generic]) -> tuple[Array, ...]:
        return np.empty(documents + 1, np.int64), *(np.empty(most, dtype) for dtype in types)

    i32, i64, u16, u64 = np.int32, np.int64, np.uint16, np.uint64
    found = (
        arrays(u64, i32, u64),
        arrays(u64, i32, i32, i32, i32, i32, u16, i64, i64),
        arrays(u64, i32, u16),
    )
    kernels.scan(data, offsets, class_table(), lower_table(), counts, *found)
    used = [(bounds, *(array[: bounds[-1]] for array in rest)) for bounds, *rest in found]
    return TextView(data, offsets, counts, *chain.from_iterable(used))


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
        held: dict[str, Result] = vars(view)
        if key not in held:
            held[key] = compute(view)
        return held[key]

    return kept
