"""How often each word occurs in texts, a word being what the pre-tokenizer cuts off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.task_progress import advance
from corpusmill.pipeline.bpe.classes import classes
from corpusmill.pipeline.bpe.kernels.scan import cut_texts
from corpusmill.pipeline.bpe.recognise import Reading, read
from corpusmill.pipeline.bpe.texts import View, composed, views

MERGED = 1 << 21  # rows of counts that wait to be added up


class Words(NamedTuple):
    """Word i, in the order of their bytes, is `data[bounds[i]:bounds[i + 1]]` (uint8, int64[W + 1]), `counts[i]` times (int64)."""

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def reading_of(content: dict[str, Any]) -> Reading:
    """How a `tokenizer.json` (parsed) cuts texts, whatever its model. Raises `UnknownToUs`."""
    return read({**content, "model": {"type": "BPE"}})


def cut_words(view: View, reading: Reading) -> pa.LargeBinaryArray:
    """The words of a view's texts, one after the other."""
    ends = np.empty(int(view.bounds[-1] - view.bounds[0]) + 1, np.int64)
    ends[0] = view.bounds[0]
    steps = np.array(reading.steps, np.int64).reshape(-1, 2)
    count = cut_texts(view.data, view.bounds, steps, classes(reading.classes), ends[1:])
    buffers = [None, pa.py_buffer(ends[: count + 1].copy()), pa.py_buffer(view.data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)


def count_words(texts: Iterable[pa.ChunkedArray], content: dict[str, Any], tokenizer: Any) -> Words:
    """The words of all texts, which are read once, one array at a time: the same for any order of them.

    `tokenizer`, of which `content` is the JSON, composes the texts where it asks for NFC. Memory: the different words.
    """
    reading = reading_of(content)
    waiting = [_counts(pa.array([], pa.binary()), pa.array([], pa.int64()))]
    rows = 0
    for array in texts:
        for view in views(array):
            plain = composed(tokenizer, view) if reading.nfc else view
            found = pc.value_counts(cut_words(plain, reading))
            waiting.append(_counts(found.field("values").cast(pa.binary()), found.field("counts")))
            rows += len(found)
            if rows > MERGED:
                waiting = [_added(waiting)]
                rows = len(waiting[0]) // 2  # a table that grows is not added up for each view
            advance(view.bounds[-1] - view.bounds[0])
    table = _added(waiting)
    table = table.take(pc.sort_indices(table["word"])).combine_chunks()
    whole = pa.concat_arrays([pa.array([], pa.binary()), *table["word"].chunks])
    data = b"".join(whole.to_pylist())
    bounds = np.zeros(len(whole) + 1, np.int64)
    np.cumsum(pc.binary_length(whole).to_numpy(), out=bounds[1:])
    return Words(np.frombuffer(data, np.uint8), bounds, table["count"].to_numpy().astype(np.int64))


def _counts(words: pa.Array, counts: pa.Array) -> pa.Table:
    return pa.table({"word": words, "count": counts})


def _added(tables: list[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    return _counts(summed["word"], summed["count_sum"])
