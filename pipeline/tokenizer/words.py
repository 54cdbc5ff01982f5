"""How often each word occurs in texts, a word being what the pre-tokenizer cuts off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.task_progress import advance
from corpusmill.pipeline.bpe.classes import Classes, classes
from corpusmill.pipeline.bpe.kernels.scan import cut_texts
from corpusmill.pipeline.bpe.recognise import Reading, read
from corpusmill.pipeline.bpe.texts import View, composed, views
from corpusmill.pipeline.tokenizer.word_table import WordTable


class Words(NamedTuple):
    """Word i is `data[bounds[i]:bounds[i + 1]]` (uint8, int64[W + 1]), `counts[i]` times (int64)."""

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, words: pa.LargeBinaryArray, counts: npt.NDArray[np.int64]) -> Words:
        """Words as Arrow has them."""
        _, offsets, data = words.buffers()
        bounds = np.frombuffer(offsets or bytes(8), np.int64)[words.offset : words.offset + len(words) + 1]
        return cls(np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0], counts)

    def as_arrow(self) -> pa.LargeBinaryArray:
        """The words without their counts."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self.counts), buffers)

    def in_order(self) -> Words:
        """The same in the order of their bytes."""
        words = self.as_arrow()
        order = pc.array_sort_indices(words)
        return Words.of(words.take(order), self.counts[order.to_numpy()])


def reading_of(content: dict[str, Any]) -> Reading:
    """How a `tokenizer.json` (parsed) cuts texts, whatever its model. Raises `UnknownToUs`."""
    return read({**content, "model": {"type": "BPE"}})


class _Cutter:
    """Cuts views of texts into words, one view after the other."""

    def __init__(self, reading: Reading) -> None:
        self._steps = np.array(reading.steps, np.int64).reshape(-1, 2)
        self._classes: Classes = classes(reading.classes)
        self._ends = np.empty(0, np.int64)

    def ends(self, view: View) -> npt.NDArray[np.int64]:
        """Where the words of a view's texts end; overwritten by the next call."""
        size = int(view.bounds[-1] - view.bounds[0])
        if size > len(self._ends):
            self._ends = np.empty(size, np.int64)
        count = cut_texts(view.data, view.bounds, self._steps, self._classes, self._ends)
        return self._ends[:count]


def cut_words(view: View, reading: Reading) -> pa.LargeBinaryArray:
    """The words of a view's texts, one after the other."""
    ends = np.concatenate([view.bounds[:1], _Cutter(reading).ends(view)])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(view.data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


class _Counter:
    """Counts the words of views."""

    def __init__(self, reading: Reading, tokenizer: Any) -> None:
        self.table = WordTable()
        self._cutter, self._tokenizer, self._nfc = _Cutter(reading), tokenizer, reading.nfc

    def add(self, view: View) -> None:
        plain = composed(self._tokenizer, view) if self._nfc else view
        self.table.add(plain.data, int(plain.bounds[0]), self._cutter.ends(plain))


def count_words(
    texts: Iterable[pa.ChunkedArray], content: dict[str, Any], tokenizer: Any, threads: int = 1
) -> Words:
    """The words of all texts in the order of their bytes: `counted`, sorted."""
    return counted(texts, content, tokenizer, threads).in_order()


def counted(
    texts: Iterable[pa.ChunkedArray], content: dict[str, Any], tokenizer: Any, threads: int = 1
) -> Words:
    """The words of all texts, which are read once, one array at a time, in no particular order.

    `tokenizer`, of which `content` is the JSON, composes the texts where it asks for NFC. Memory: the different words, for each
    thread. Raises `UnknownToUs` where the kernels do not know the pre-tokenizer.
    """
    reading = reading_of(content)
    counters = [_Counter(reading, tokenizer) for _ in range(threads)]
    every = (view for array in texts for view in views(array))
    if threads == 1:
        for view in every:
            counters[0].add(view)
            advance(view.bounds[-1] - view.bounds[0])
    else:
        _count_with(counters, every)
    table = counters[0].table
    for counter in counters[1:]:
        _add(table, Words(*counter.table.words()))
    return Words(*table.words())


def added(parts: Iterable[Words]) -> Words:
    """The words of all parts, of which each is read once; a word's counts are added up."""
    table = WordTable()
    for part in parts:
        _add(table, part)
    return Words(*table.words())


def _add(table: WordTable, words: Words) -> None:
    table.add(words.data, 0, words.bounds[1:], words.counts)


def _count_with(counters: list[_Counter], every: Iterator[View]) -> None:
    """Views are counted by the threads that are free."""
    free: SimpleQueue[_Counter] = SimpleQueue()
    for counter in counters:
        free.put(counter)

    def count(view: View) -> int:
        counter = free.get()
        try:
            counter.add(view)
        finally:
            free.put(counter)
        return int(view.bounds[-1] - view.bounds[0])

    waiting: list[Future[int]] = []
    with ThreadPoolExecutor(len(counters), "words") as threads:
        for view in every:
            waiting.append(threads.submit(count, view))
            if len(waiting) > 2 * len(counters):
                advance(waiting.pop(0).result())
        for future in waiting:
            advance(future.result())


def shortened_words(words: Words, longest: int) -> Words:
    """Words cut after every `longest` bytes."""
    sizes = np.diff(words.bounds)
    parts = np.maximum(-(-sizes // longest), 1)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    ends = np.repeat(words.bounds[:-1], parts) + longest * (np.arange(len(first)) - first + 1)
    table = WordTable()
    table.add(
        words.data, 0, np.minimum(ends, np.repeat(words.bounds[1:], parts)), np.repeat(words.counts, parts)
    )
    return Words(*table.words())
