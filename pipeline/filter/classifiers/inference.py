"""fastText's prediction over flat arrays of words: the same rows added up, the same losses, no Python object a text.

Follows fastText 0.9's dictionary.cc (words, character and word n-grams), quantmatrix.cc and loss.cc, rounding
included; Joulin et al. 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.classifiers.model_file import HIERARCHICAL, SOFTMAX

_TINY = 1e-5  # fastText adds it to a probability before it takes the logarithm


@compiled(inline="always")
def _dot(model: Any, row: Any, hidden: Any) -> Any:
    total = np.float32(0)
    for k in range(len(hidden)):
        total += model.output[row, k] * hidden[k]
    return total


@compiled(inline="always")
def _logarithm(p: Any) -> Any:
    return np.float32(np.log(np.float64(p) + _TINY))


@compiled
def walk(model: Any, hidden: Any, stack: Any, reached: Any, out: Any, all_labels: Any) -> None:
    """Logarithms of the labels' probabilities by hierarchical softmax, from the root down, left first.

    Without `all_labels` a branch that cannot beat the best leaf so far is not entered. -inf: not reached.
    """
    labels = model.numbers.labels
    out[:] = -np.inf
    least = _logarithm(np.float32(0))
    best = np.float32(-np.inf)
    stack[0], reached[0] = 2 * labels - 2, np.float32(0)
    depth = 1
    while depth > 0:
        depth -= 1
        node, score = stack[depth], reached[depth]
        if score < least or (not all_labels and score < best):
            continue
        if node < labels:
            out[node] = score
            best = max(best, score)
            continue
        odds = np.float32(np.exp(np.float32(-_dot(model, node - labels, hidden))))
        f = np.float32(1.0 / np.float64(np.float32(np.float32(1) + odds)))
        stack[depth], reached[depth] = model.right[node], np.float32(score + _logarithm(f))
        rest = np.float32(1.0 - np.float64(f))
        stack[depth + 1], reached[depth + 1] = model.left[node], np.float32(score + _logarithm(rest))
        depth += 2


@compiled
def outputs(model: Any, hidden: Any, sigmoid: Any, out: Any) -> None:
    """Logarithms of the labels' probabilities by softmax, or by one logistic each (fastText's table of it)."""
    high = np.float32(-np.inf)
    for i in range(len(out)):
        out[i] = _dot(model, i, hidden)
        high = max(high, out[i])
    if model.numbers.loss == SOFTMAX:
        total = np.float32(0)
        for i in range(len(out)):
            out[i] = np.exp(np.float32(out[i] - high))
            total += out[i]
        for i in range(len(out)):
            out[i] = _logarithm(np.float32(out[i] / total))
    else:
        for i in range(len(out)):
            x = out[i]
            p = np.float32(0) if x < 0 else np.float32(1)
            if -8 <= x <= 8:
                p = sigmoid[np.int64(np.float32(x + np.float32(8)) * np.float32(32))]
            out[i] = _logarithm(p)


# What a word is that is no word of the dictionary.
UNKNOWN, LABEL, LINE_END = -1, -2, -3

_NOTED = 1024  # rows noted before they are added up
_BASIS = np.uint32(2166136261)
_PRIME = np.uint32(16777619)
_STEP = np.uint64(116049371)
_EOS_HASH = np.uint32(3617362777)  # of "</s>"
_LABEL_PREFIX = np.frombuffer(b"__label__", np.uint8)
_ODD, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@compiled(inline="always")
def find(model: Any, data: Any, first: Any, size: Any, h: Any) -> Any:
    """The number in the dictionary, of words first, then of labels, of the bytes from `first` on; UNKNOWN."""
    slots, spans, blob = model.slots, model.spans, model.blob
    mask = np.uint32(len(slots) - 1)
    found = np.int64(UNKNOWN)
    slot = h & mask
    while slots[slot] >= 0:
        entry = slots[slot]
        span = (
            spans[entry & 0x7FFFFFFF] if np.uint32(entry >> 32) == h & np.uint32(0x7FFFFFFF) else np.int64(0)
        )
        if span & 0xFFFFF == size:
            start, k = span >> 20, 0
            while k < size and blob[start + k] == data[first + k]:
                k += 1
            if k == size:
                found = entry & 0x7FFFFFFF
                break
        slot = (slot + np.uint32(1)) & mask
    return found


@compiled
def known(model: Any, read: Any, ids: Any) -> None:
    """Into `ids`, for each of the `Words` read: its number in the dictionary, UNKNOWN, LABEL or LINE_END."""
    data, starts, ends, hashes = read.data, read.starts, read.ends, read.hashes
    words, eos = model.numbers.words, model.numbers.eos
    for w in range(len(starts)):
        first, size, h = starts[w], ends[w] - starts[w], hashes[w]
        found = find(model, data, first, size, h)
        if found >= words:
            found = np.int64(LABEL)
        elif (found >= 0 and found == eos) or (
            found == UNKNOWN and h == _EOS_HASH and size == 4 and data[first] == 60 and data[first + 1] == 47
        ):
            found = np.int64(LINE_END)
        elif found == UNKNOWN and size >= 9 and data[first] == 95:
            k = 1
            while k < 9 and data[first + k] == _LABEL_PREFIX[k]:
                k += 1
            found = np.int64(LABEL if k == 9 else UNKNOWN)
        ids[w] = found


@compiled(inline="always")
def remainder(h: Any, bucket: Any, inverse: Any) -> Any:
    """h % bucket of uint64 `h` and 2^14 to 2^31 buckets, by `inverse` = 1 / bucket: the quotient is wrong by one at most."""
    rest = np.int64(h - np.uint64(np.int64(np.float64(h) * inverse)) * np.uint64(bucket))
    if rest < 0:
        rest += bucket
    elif rest >= bucket:
        rest -= bucket
    return rest


@compiled(inline="always")
def _row(model: Any, bucket: Any) -> Any:
    """The row of an n-gram's bucket, -1 if it was pruned."""
    if len(model.bits) == 0:
        return model.numbers.words + bucket if model.numbers.pruned < 0 else -1
    own = model.bits[bucket >> 6]
    bit = np.uint64(bucket & 63)
    # How many bits are set below this one.
    x = own & ((np.uint64(1) << bit) - np.uint64(1))
    x = x - ((x >> np.uint64(1)) & _ODD)
    x = (x & _PAIRS) + ((x >> np.uint64(2)) & _PAIRS)
    x = (x + (x >> np.uint64(4))) & _NIBBLES
    row = model.numbers.words + model.rank[bucket >> 6] + np.int64((x * _BYTES) >> np.uint64(56))
    return row if (own >> bit) & np.uint64(1) else -1


@compiled
def add_rows(rows: Any, ids: Any, count: Any, hidden: Any) -> None:
    """Add rows ids[:count] to `hidden`, one after the other: four at a time, which is the same sum."""
    dim = len(hidden)
    whole = count - count % 4
    for n in range(0, whole, 4):
        a, b, c, d = ids[n], ids[n + 1], ids[n + 2], ids[n + 3]
        # Blocks of a fixed size: the compiler makes a few wide additions of each.
        for block in range(dim // 16):
            for k in range(16):
                at = block * 16 + k
                hidden[at] = (((hidden[at] + rows[a, at]) + rows[b, at]) + rows[c, at]) + rows[d, at]
        for k in range(dim - dim % 16, dim):
            hidden[k] = (((hidden[k] + rows[a, k]) + rows[b, k]) + rows[c, k]) + rows[d, k]
    for n in range(whole, count):
        for k in range(dim):
            hidden[k] += rows[ids[n], k]


@compiled
def _add(model: Any, ids: Any, count: Any, hidden: Any) -> None:
    """Add rows ids[:count] of the input matrix to `hidden`, one after the other."""
    rows = model.rows
    if len(model.codes) > 0:
        _add_codes(model, ids, count, hidden)
        return
    add_rows(rows, ids, count, hidden)


@compiled
def _add_codes(model: Any, ids: Any, count: Any, hidden: Any) -> None:
    dim, part, parts = model.numbers.dim, model.numbers.part, model.numbers.parts
    if part == 2 and dim == 2 * parts:
        for n in range(count):
            norm = model.norms[ids[n]]
            for m in range(parts):
                at = np.uint64(2) * (np.uint64(256) * np.uint64(m) + np.uint64(model.codes[ids[n], m]))
                hidden[2 * m] += norm * model.centroids[at]
                hidden[2 * m + 1] += norm * model.centroids[at + np.uint64(1)]
        return
    for n in range(count):
        norm = model.norms[ids[n]]
        for m in range(parts):
            width = part if m < parts - 1 else dim - part * (parts - 1)
            base = m * 256 * part + np.int64(model.codes[ids[n], m]) * width
            for k in range(width):
                hidden[m * part + k] += norm * model.centroids[base + k]


@compiled(inline="always")
def _subwords(model: Any, data: Any, first: Any, last: Any, ids: Any, fill: Any, hidden: Any) -> Any:
    """Note the rows of the character n-grams of `<word>` in `ids` from `fill` on: (fill, how many rows were added
    already because `ids` was full)."""
    low, high = model.numbers.min_n, model.numbers.max_n
    bucket = model.numbers.bucket
    shift, factor = np.uint64(model.numbers.shift), np.uint64(model.numbers.factor)
    added = 0
    i = first - 1  # the place of `<`; `last` is that of `>`
    while i <= last:
        if fill + high > len(ids):
            _add(model, ids, fill, hidden)
            added += fill
            fill = 0
        h = _BASIS
        j = i
        n = 1
        while j <= last and n <= high:
            byte = np.uint8(60)
            if j == last:
                byte = np.uint8(62)
            elif j >= first:
                byte = data[j]
            h = np.uint32((h ^ np.uint32(np.int8(byte))) * _PRIME)
            j += 1
            while j < last and data[j] & 0xC0 == 0x80:
                h = np.uint32((h ^ np.uint32(np.int8(data[j]))) * _PRIME)
                j += 1
            if n >= low and not (n == 1 and (i < first or j > last)):
                # The remainder without a division: the estimated quotient is one too low at most.
                q = (np.uint64(h) * factor) >> shift
                rest = np.int64(h) - np.int64(q) * bucket
                row = _row(model, rest - bucket if rest >= bucket else rest)
                if row >= 0:
                    ids[fill] = row
                    fill += 1
            n += 1
        i += 1
        while i < last and data[i] & 0xC0 == 0x80:
            i += 1
    return fill, added


@compiled
def sum_words(model: Any, rows: Any, weights: Any) -> None:
    """Put into the row of each word the sum of its own and its n-grams' rows, and their number into `weights`.

    `rows` is a copy of `model.rows`: n-grams are read from the model.
    """
    hidden, ids = np.empty(rows.shape[1], np.float32), np.empty(_NOTED, np.int64)
    for word in range(len(weights)):
        hidden[:] = 0
        ids[0] = word
        fill, added = 1, 0
        if word != model.numbers.eos:
            first, size = model.spans[word] >> 20, model.spans[word] & 0xFFFFF
            fill, added = _subwords(model, model.blob, first, first + size, ids, fill, hidden)
        _add(model, ids, fill, hidden)
        weights[word] = added + fill
        rows[word] = hidden


@compiled
def _hidden(
    model: Any, words: Any, numbers: Any, first: Any, last: Any, line: Any, ids: Any, hidden: Any
) -> Any:
    """The mean of the rows of words [first, last) and of the end of the line; how many rows that were."""
    data, starts, ends, hashes = words.data, words.starts, words.ends, words.hashes
    hidden[:] = 0
    summed, subwords = model.numbers.summed > 0, model.numbers.max_n > 0
    count, fill, size = 0, 0, 0
    for w in range(first, last + 1):
        number = np.int64(numbers[w]) if w < last else np.int64(LINE_END)
        if number == LABEL:
            continue
        line[size] = np.uint64(np.int64(np.int32(hashes[w] if w < last else _EOS_HASH)))
        size += 1
        if fill == len(ids):
            _add(model, ids, fill, hidden)
            count += fill
            fill = 0
        if number == LINE_END:
            if model.numbers.eos >= 0:
                ids[fill] = model.numbers.eos
                fill += 1
            break
        if number >= 0:
            ids[fill] = number
            fill += 1
            count += model.weights[number] - 1
        if subwords and (number < 0 or not summed):
            fill, added = _subwords(model, data, starts[w], ends[w], ids, fill, hidden)
            count += added
    grams = model.numbers.word_ngrams
    if grams > 1 and model.numbers.pruned != 0:
        bucket = np.int64(model.numbers.bucket)
        inverse, many = 1.0 / bucket, bucket >= 1 << 14
        for i in range(size):
            if fill + grams > len(ids):
                _add(model, ids, fill, hidden)
                count += fill
                fill = 0
            h = line[i]
            for j in range(i + 1, min(size, i + grams)):
                h = h * _STEP + line[j]
                own = remainder(h, bucket, inverse) if many else np.int64(h % np.uint64(bucket))
                # No branch: which n-grams were pruned is hard to guess for a processor.
                ids[fill] = _row(model, own)
                fill += ids[fill] >= 0
    _add(model, ids, fill, hidden)
    count += fill
    if count > 0:
        scale = np.float32(1.0 / count)
        for k in range(len(hidden)):
            hidden[k] *= scale
    return count


@compiled
def predict(
    model: Any, words: Any, numbers: Any, bounds: Any, sigmoid: Any, wanted: Any, label: Any, probability: Any,
    every: Any,
) -> None:  # fmt: skip
    """For words [bounds[r, 0], bounds[r, 1]) of each range r: the most probable label and its probability, or that
    of the label `wanted` if it is not negative; and if `every` (float32[ranges, labels]) has rows, of all of them.

    `numbers` are the words' own (`known`). Where the model has no row at all, `label` is -1 and the probability
    0. Of equal labels the last wins, as in fastText's heap of one.
    """
    labels = model.numbers.labels
    hidden, out = np.empty(model.numbers.dim, np.float32), np.empty(labels, np.float32)
    stack, reached = np.empty(2 * labels + 2, np.int64), np.empty(2 * labels + 2, np.float32)
    longest = 1
    for r in range(len(bounds)):
        longest = max(longest, bounds[r, 1] - bounds[r, 0] + 1)
    line, ids = np.empty(longest, np.uint64), np.empty(max(_NOTED, 2 * model.numbers.max_n), np.int64)
    for r in range(len(bounds)):
        label[r], probability[r] = -1, 0
        first, last = bounds[r, 0], bounds[r, 1]
        if _hidden(model, words, numbers, first, last, line, ids, hidden) == 0:
            continue
        if model.numbers.loss == HIERARCHICAL:
            walk(model, hidden, stack, reached, out, wanted >= 0 or len(every) > 0)
        else:
            outputs(model, hidden, sigmoid, out)
        best = wanted
        if wanted < 0:
            best = 0
            for i in range(1, labels):
                if out[i] >= out[best]:
                    best = i
        label[r] = best
        probability[r] = min(np.exp(np.float64(out[best])), 1.0)
        if len(every) > 0:
            for i in range(labels):
                every[r, i] = min(np.exp(np.float64(out[i])), 1.0)
