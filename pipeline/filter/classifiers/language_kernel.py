"""The kernel that answers which language: words to vectors, vectors to logits, logits to the answer that the scripts allow.

It computes what `inference.predict` and a softmax over the candidates would, with two savings. The vector of a word (the sum of
its row and its character n-grams' rows) is kept in a small table while a batch is read, since most words of a text are seen
again; what a word adds is the same whether it was kept or not, so answers do not depend on how texts are batched. And
logarithms and exponentials are taken of candidates only, once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.inference import _add, _subwords, find

SCRIPT_SHARE: Final = 0.3  # of the letters: a script with less does not say what a text is written in
_KEPT: Final = 1 << 15  # words kept at a time; when there are as many, all are forgotten
_SLOTS: Final = 1 << 16  # of the table that finds them, by hash, with open addressing
_NOTED: Final = 512  # rows noted before they are added up


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
def _place(slots: Any, keys: Any, starts: Any, data: Any, first: Any, key: Any, h: Any) -> Any:
    """The slot of a word: that in which a word of the same bytes is, or a free one (-1)."""
    slot = np.int64((h ^ (h >> np.uint32(15))) & np.uint32(_SLOTS - 1))
    while slots[slot] >= 0:
        at = slots[slot]
        if keys[at] == key:
            start, size, k = starts[at], key & 0x7FFFFFFF, 0
            while k < size and data[start + k] == data[first + k]:
                k += 1
            if k == size:
                break
        slot = (slot + 1) & (_SLOTS - 1)
    return slot


@compiled
def answers(model: Any, known: Any, words: Any, ranges: Any, counts: Any, label: Any, score: Any) -> None:
    """For words [ranges[r, 0], ranges[r, 1]) of each range, whose letters by script are counts[r]: the most probable of the
    labels that the scripts allow into `label`, its tempered probability among them into `score`.

    `known` is a `Profile`; its priors are added to the logits. The label is `known.label` where no letter is of a script of
    any label, where that label's own logit is highest, or where the probability is less than `known.unknown`; and -1 where the
    model has no row for a word. All loops are over columns of a fixed width, so that the compiler makes wide additions of them.
    """
    dim, labels = model.numbers.dim, model.numbers.labels
    slots, kept = np.full(_SLOTS, -1, np.int32), 0
    keys, starts, rows = np.empty(_KEPT, np.int64), np.empty(_KEPT, np.int64), np.empty(_KEPT, np.int32)
    vectors = np.empty((_KEPT, dim), np.float32)
    ids = np.empty(max(_NOTED, 2 * model.numbers.max_n), np.int64)
    wide, sums = _widened(model), np.empty(model.numbers.parts * 4, np.float32)
    near = np.empty(len(ids), np.uint8), np.empty(len(ids), np.float32)
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
        for w in range(ranges[r, 0], ranges[r, 1]):
            first, h = firsts[w], hashes[w]
            key = (np.int64(h) << 31) ^ (lasts[w] - first)
            slot = _place(slots, keys, starts, data, first, key, h)
            at = slots[slot]
            if at < 0:
                if kept == _KEPT:
                    slots[:], kept = -1, 0
                    slot = _place(slots, keys, starts, data, first, key, h)
                at = kept
                slots[slot], keys[at], starts[at] = at, key, first
                rows[at] = _vector(model, words, w, wide, near, sums, ids, vectors[at])
                kept += 1
            count += rows[at]
            for block in range(dim // 16):
                for k in range(16):
                    hidden[block * 16 + k] += vectors[at, block * 16 + k]
            for k in range(dim - dim % 16, dim):
                hidden[k] += vectors[at, k]
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
