"""Batches of texts as views of bytes, and as the tokens of a tokenizer with a normalizer stand for them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.stored_tables import stored
from corpusmill.pipeline.bpe.classes import CODE_POINTS, Classes, class_pointers, flat, of_flat, pack, run
from corpusmill.pipeline.bpe.kernels.buffers import pointer, same


@compiled
def mark_holding(data: Any, bounds: Any, needles: Any, starts: Any, leads: Any, marked: Any) -> int:
    """Set `marked[i]` where text i holds one of the strings `needles[starts[k]:starts[k + 1]]`; their number.

    leads: bool[256], the bytes that they begin with. marked: bool[texts].
    """
    count = 0
    for text in range(len(bounds) - 1):
        stop = bounds[text + 1]
        at = bounds[text]
        while at < stop and not marked[text]:
            if leads[data[at]]:
                for k in range(len(starts) - 1):
                    size = starts[k + 1] - starts[k]
                    if at + size <= stop and same(pointer(data), at, pointer(needles), starts[k], size):
                        marked[text] = True
                        break
            at += 1
        count += marked[text]
    return count


@compiled
def mark_other_than(data: Any, bounds: Any, classes: Any, marked: Any) -> int:
    """Set `marked[i]` where text i holds a character without the bit 1; their number."""
    count, known = 0, class_pointers(classes)
    for text in range(len(bounds) - 1):
        marked[text] = run(pointer(data), bounds[text], bounds[text + 1], known, 1) < bounds[text + 1]
        count += marked[text]
    return count


VIEW_BYTES: Final = 4 << 20
_JAMO: Final = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]  # vowels and finals, composed by arithmetic


class View(NamedTuple):
    """Neighbouring texts: text i is `data[bounds[i]:bounds[i + 1]]`; `texts`: the same as Arrow has them."""

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    texts: pa.Array

    def marked(self) -> npt.NDArray[np.bool_]:
        """A mark per text, none set."""
        return np.zeros(len(self.texts), dtype=bool)

    def alone(self) -> View:
        """The same with no bytes around its texts."""
        first, last = self.bounds[0], self.bounds[-1]
        return View(self.data[first:last], self.bounds - first, self.texts)


def views(texts: pa.ChunkedArray) -> Iterator[View]:
    """About `VIEW_BYTES` at a time, never less than a text; nothing is copied."""
    for chunk in texts.chunks:
        if not len(chunk):
            continue
        whole, start = _view(chunk), 0
        while start < len(chunk):
            stop = int(np.searchsorted(whole.bounds, whole.bounds[start] + VIEW_BYTES, side="right")) - 1
            stop = min(max(stop, start + 1), len(chunk))
            yield View(whole.data, whole.bounds[start : stop + 1], whole.texts.slice(start, stop - start))
            start = stop


def _view(texts: pa.Array) -> View:
    """All texts of an array, which is not empty."""
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = texts.cast(pa.large_string())
    width = np.int32 if pa.types.is_string(texts.type) else np.int64
    _, offsets, buffer = texts.buffers()
    bounds = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return View(np.frombuffer(buffer or b"", np.uint8), bounds, texts)


class Needles:
    """Strings to be found in texts."""

    def __init__(self, strings: Sequence[str]) -> None:
        data = [string.encode() for string in strings]
        self._bytes = np.frombuffer(b"".join(data), np.uint8)
        self._starts = np.cumsum([0, *map(len, data)], dtype=np.int64)
        self._leads = np.zeros(256, dtype=bool)
        self._leads[[string[0] for string in data]] = True

    def mark(self, view: View, marked: npt.NDArray[np.bool_]) -> bool:
        """Set the marks of the texts that hold one of them; whether any is set."""
        if len(self._bytes) == 0:
            return bool(marked.any())
        return bool(mark_holding(view.data, view.bounds, self._bytes, self._starts, self._leads, marked))


@lru_cache(maxsize=1)
def _inert() -> Classes:
    """Bit 1: characters that composition neither changes nor moves nor joins to one before. Unicode promises this for good
    of every assigned character, so it does not matter that the library has tables of another version."""
    return of_flat(_flat_inert())


@stored()
def _flat_inert() -> npt.NDArray[np.uint16]:
    bits = np.zeros(CODE_POINTS, np.uint16)
    seconds = set(_JAMO)
    for code in range(CODE_POINTS):
        char = chr(code)
        parts = unicodedata.decomposition(char)
        if parts and parts[0] != "<":
            seconds.update(int(part, 16) for part in parts.split()[1:])
        if unicodedata.category(char) not in ("Cn", "Cs") and not unicodedata.combining(char):
            bits[code] = unicodedata.is_normalized("NFC", char)
    bits[list(seconds)] = 0
    return flat(pack(bits))


def composed(tokenizer: Any, view: View) -> View:
    """The view's texts in canonical composition, as the library's own normalizer gives it; most texts hold nothing that
    could change, and are not looked at by it."""
    marked = view.marked()
    if not mark_other_than(view.data, view.bounds, _inert(), marked):
        return view
    rows = np.flatnonzero(marked)
    old = view.texts.take(pa.array(rows)).to_pylist()
    new = [tokenizer.normalizer.normalize_str(text) for text in old]
    if new == old:
        return view
    texts = view.texts.cast(pa.large_string())
    return _view(pc.replace_with_mask(texts, pa.array(marked), pa.array(new, pa.large_string())))
