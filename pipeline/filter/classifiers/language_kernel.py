"""The kernel that answers which language: words to vectors, vectors to logits, logits to the answer that the scripts allow.

It computes what `inference.predict` and a softmax over the candidates would, with two savings. The vector of a word (the sum of
its row and its character n-grams' rows) is kept in a table from batch to batch, since most words of a text are seen again;
what a word adds is the same whether it was kept or not, so answers do not depend on what was read before. And logarithms and
exponentials are taken of candidates only, once.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.inference import _add, _subwords, add_rows, find
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.text.eight_bytes import first_bytes, read_word

SCRIPT_SHARE: Final = 0.3  # of the letters: a script with less does not say what a text is written in
_KEPT: Final = 1 << 16  # words kept at a time; when there are as many, all are forgotten
_BYTES: Final = 1 << 20  # of those of them that are longer than `_HEAD`, likewise
_SLOTS: Final = 1 << 17  # of the table that finds them, by hash, with open addressing
_HEAD: Final = 16  # bytes of a word in its entry
_ROW_BITS, _ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
_NOTED: Final = 512  # rows noted before they are added up
_TOGETHER: Final = 256  # words whose vectors are added up together


class Kept(NamedTuple):
    """Words that were read, with their vectors. Row `_KEPT` is for one that is not kept.

    An entry of the hash table says which word it is without a look elsewhere, unless the word is longer than `_HEAD` bytes: its
    first bytes, its length, its row + 1 (0: a free entry), and where its bytes begin in `data`.
    """

    entries: Array  # uint64[_SLOTS, 4]
    counts: Array  # int32[rows]: rows of the model that a vector is the sum of
    vectors: Array  # float32[rows, dim]
    data: Array  # uint8
    used: Array  # int64[2]: rows, and bytes of `data`


def nothing_kept(dim: int) -> Kept:
    """For vectors of so many numbers."""
    return Kept(
        np.zeros((_SLOTS, 4), np.uint64), np.empty(_KEPT + 1, np.int32), np.empty((_KEPT + 1, dim), np.float32),
        np.empty(_BYTES, np.uint8), np.zeros(2, np.int64),
    )  # fmt: skip


@compiled
def _widened(model: Any) -> Any:
    """float32[parts * 256 * 4]: the centroids of a quantised model, each of four values or fewer filled up to four, which are
    one addition of a processor; nothing for another model."""
    part, parts, dim = model.numbers.part, model.numbers.parts, model.numbers.dim
    if len(model.codes) == 0 or part > 4 or part * parts != dim:
        return np.zeros(0, np.float32)
    wide = np.zeros(parts * 1024, np.float32)
    for n in range(parts * 256):
        for k in range(part):
            wide[n * 4 + k] = model.centroids[n * part + k]
    return wide


@compiled
def _add_wide(codes: Any, norms: Any, wide: Any, ids: Any, count: Any, near: Any, sums: Any) -> None:
    """Add the rows ids[:count] to `sums`, four values a code.

    First something of each row is read, into `near`: loads without work between them wait for memory together, not in turn.
    """
    parts = np.uint64(codes.shape[1])
    four = np.uint64(4)
    own_codes, own_norms = near
    for n in range(np.uint64(count)):
        row = np.uint64(ids[n])
        own_norms[n], own_codes[n] = norms[row], codes[row, np.uint64(0)]
    for n in range(np.uint64(count)):
        norm, row = own_norms[n], np.uint64(ids[n])
        for code in range(parts):
            m = np.uint64(code)
            at = (m * np.uint64(256) + np.uint64(codes[row, m])) * four
            to = m * four
            for k in range(4):
                sums[to + np.uint64(k)] += norm * wide[at + np.uint64(k)]


@compiled
def _vector(model: Any, words: Any, w: Any, wide: Any, near: Any, sums: Any, ids: Any, vector: Any) -> Any:
    """Put the sum of the rows of word `w` into `vector`; how many rows that were. `near`, `sums` and `ids` are working memory."""
    first, last = words.starts[w], words.ends[w]
    vector[:] = 0
    number = find(model, words.data, first, last - first, words.hashes[w])
    fill, before = 0, 0
    if 0 <= number < model.numbers.words:
        ids[0] = number
        fill, before = 1, model.weights[number] - 1
    if model.numbers.max_n > 0 and (fill == 0 or model.numbers.summed == 0):
        fill, added = _subwords(model, words.data, first, last, ids, fill, vector)
        before += added
    if len(wide) == 0:
        _add(model, ids, fill, vector)
    else:
        sums[:] = 0
        _add_wide(model.codes, model.norms, wide, ids, fill, near, sums)
        part = model.numbers.part
        for m in range(model.numbers.parts):
            for k in range(part):
                vector[m * part + k] += sums[m * 4 + k]
    return before + fill


@compiled(inline="always")
def _head(data: Any, first: Any, size: Any) -> Any:
    """The word's first `_HEAD` bytes, two times eight; 0 behind its end."""
    a, b = np.uint64(0), np.uint64(0)
    if first + _HEAD <= len(data):
        a = read_word(data, first)
        if size < 8:
            a = first_bytes(a, size)
        else:
            b = read_word(data, first + 8)
            if size < _HEAD:
                b = first_bytes(b, size - 8)
    else:
        for k in range(min(size, 8)):
            a |= np.uint64(data[first + k]) << np.uint64(8 * k)
        for k in range(8, min(size, _HEAD)):
            b |= np.uint64(data[first + k]) << np.uint64(8 * (k - 8))
    return a, b


@compiled(inline="always")
def _place(kept: Any, data: Any, first: Any, size: Any, h: Any, a: Any, b: Any) -> Any:
    """The entry of the word of these bytes, or the free one where it belongs."""
    entries = kept.entries
    length = np.uint64(size)
    slot = np.uint64(h ^ (h >> np.uint32(15))) & np.uint64(_SLOTS - 1)
    while entries[slot, 2] != 0:
        if entries[slot, 0] == a and entries[slot, 1] == b and entries[slot, 2] >> _ROW_BITS == length:
            start, k = entries[slot, 3], np.uint64(_HEAD)
            while k < length and kept.data[start + k] == data[np.uint64(first) + k]:
                k += np.uint64(1)
            if k >= length:
                break
        slot = (slot + np.uint64(1)) & np.uint64(_SLOTS - 1)
    return slot


@compiled
def _row_for(kept: Any, slot: Any, data: Any, first: Any, size: Any, h: Any, a: Any, b: Any) -> Any:
    """The row for the vector of a word that is not there, entered if it can be kept."""
    if size > _BYTES // 16:
        return np.int64(_KEPT)
    if kept.used[0] == _KEPT or kept.used[1] + size > _BYTES:
        kept.entries[:, 2] = 0
        kept.used[:] = 0
        slot = _place(kept, data, first, size, h, a, b)
    at, start = kept.used[0], kept.used[1]
    kept.entries[slot, 2] = np.uint64(size) << _ROW_BITS | np.uint64(at + 1)
    if size <= _HEAD:  # its entry has all of it
        size = 0
    kept.entries[slot, 0], kept.entries[slot, 1], kept.entries[slot, 3] = a, b, start
    for k in range(size):
        kept.data[start + k] = data[first + k]
    kept.used[0], kept.used[1] = at + 1, start + size
    return at


@compiled(inline="always")
def _full(kept: Any, size: Any) -> Any:
    """Whether a new word of so many bytes takes a row that is in use."""
    return size > _BYTES // 16 or kept.used[0] == _KEPT or kept.used[1] + size > _BYTES


@compiled
def _known_rows(kept: Any, words: Any, first: Any, last: Any, rows: Any) -> Any:
    """Put the rows of words [first, last) into `rows`, up to one that is not kept: (how many, rows of the model in their sums)."""
    data, starts, ends, hashes = words.data, words.starts, words.ends, words.hashes
    fill, count = np.int64(0), np.int64(0)
    for w in range(first, last):
        start, size = starts[w], ends[w] - starts[w]
        a, b = _head(data, start, size)
        at = np.int64(kept.entries[_place(kept, data, start, size, hashes[w], a, b), 2] & _ROW) - 1
        if at < 0:
            break
        rows[fill] = at
        fill, count = fill + 1, count + kept.counts[at]
    return fill, count


@compiled
def answers(
    model: Any, known: Any, words: Any, ranges: Any, counts: Any, kept: Any, label: Any, score: Any
) -> None:
    """For words [ranges[r, 0], ranges[r, 1]) of each range, whose letters by script are counts[r]: the most probable of the
    labels that the scripts allow into `label`, its tempered probability among them into `score`.

    `kept` is what earlier calls left, for the same model. `known` is a `Profile`; its priors are added to the logits. The label is
    `known.label` where no letter is of a script of any label, where that label's own logit is highest, or where the probability is
    less than `known.unknown`; and -1 where the model has no row for a word. All loops are over columns of a fixed width, so that
    the compiler makes wide additions of them.
    """
    dim, labels = model.numbers.dim, model.numbers.labels
    vectors = kept.vectors
    ids = np.empty(max(_NOTED, 2 * model.numbers.max_n), np.int64)
    wide, sums = _widened(model), np.empty(model.numbers.parts * 4, np.float32)
    near = np.empty(len(ids), np.uint8), np.empty(len(ids), np.float32)
    rows = np.empty(_TOGETHER, np.int64)
    columns = np.ascontiguousarray(model.output.T)
    hidden, end, out = np.empty(dim, np.float32), np.zeros(dim, np.float32), np.empty(labels, np.float32)
    data, firsts, lasts, hashes = words.data, words.starts, words.ends, words.hashes
    ends = 0
    if model.numbers.eos >= 0:
        ids[0], ends = model.numbers.eos, 1
        _add(model, ids, 1, end)
    for r in range(len(ranges)):
        hidden[:] = end
        count = ends
        w, last = ranges[r, 0], ranges[r, 1]
        while w < last:
            # Rows are found first and added up afterwards, so that memory is waited for once for many words.
            stop = min(last, w + _TOGETHER)
            fill, added = _known_rows(kept, words, w, stop, rows)
            w, count = w + fill, count + added
            if w < stop and (fill == 0 or not _full(kept, lasts[w] - firsts[w])):
                # Where a row in use is written, the others have been added up before.
                first, size, h = firsts[w], lasts[w] - firsts[w], hashes[w]
                a, b = _head(data, first, size)
                at = _row_for(kept, _place(kept, data, first, size, h, a, b), data, first, size, h, a, b)
                kept.counts[at] = _vector(model, words, w, wide, near, sums, ids, vectors[at])
                rows[fill] = at
                w, count, fill = w + 1, count + kept.counts[at], fill + 1
            add_rows(vectors, rows, fill, hidden)
        if count == 0:
            label[r], score[r] = -1, 0
            continue
        out[:] = known.priors
        for k in range(dim):
            scale = np.float32(hidden[k] / np.float32(count))
            for i in range(labels):
                out[i] += scale * columns[k, i]
        label[r], score[r] = choose(out, counts[r], known)


@compiled
def choose(logits: Any, counts: Any, known: Any) -> Any:
    """(label, score) by the logits of all labels and the letters by script, column 0 being none."""
    letters, present = np.int64(0), np.uint64(0)
    for s in range(1, len(counts)):
        letters += counts[s]
    for s in range(1, len(counts)):
        if counts[s] > 0 and counts[s] >= SCRIPT_SHARE * letters:
            present |= np.uint64(1) << np.uint64(s)
    k = 0
    while k < len(known.letters) - 1 and letters >= known.letters[k]:
        k += 1
    best = -1
    for i in range(len(logits)):
        if i != known.label and known.scripts[i] & present and (best < 0 or logits[i] > logits[best]):
            best = i
    if best < 0:
        return known.label, np.float32(0)
    power = np.float32(1) / known.temperatures[k]
    total = np.float32(0)
    for i in range(len(logits)):
        if i == known.label or known.scripts[i] & present:
            total += np.exp((logits[i] - logits[best]) * power)
    own = np.float32(1) / total
    if known.label >= 0 and (logits[known.label] >= logits[best] or own < known.unknown):
        return known.label, own
    return best, own
