"""A fastText .bin or .ftz file as arrays: what the kernels of `inference.py` look words up in and add up.

Format: fastText 0.9's `FastText::saveModel` (version 12; 11 in supervised models is the same without character
n-grams): arguments, dictionary, input matrix, output matrix, each dense or product quantised.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array

MAGIC: Final = 793712314
SUPERVISED: Final = 3
HIERARCHICAL, NEGATIVE, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4
EXPANDED: Final = 1 << 26  # bytes: up to here a quantised matrix is kept as the rows that it stands for

LONGEST: Final = 100  # characters or words of an n-gram
ENTRY: Final = 10  # bytes of a word in the dictionary, at least: the end of its name, count, kind
_MANY: Final = 10**15  # more than any count: what a node of the tree is taken for that has none yet


class NotUnderstood(ValueError):
    """A file that is no supervised fastText model, or one that these kernels do not know."""


class Numbers(NamedTuple):
    """What a model is made with (fastText's options), and what the kernels need beside its arrays."""

    dim: int
    words: int
    labels: int
    min_n: int
    max_n: int
    word_ngrams: int
    bucket: int
    loss: int
    pruned: int  # buckets of a pruned model that are left; -1: not pruned
    part: int  # values of a centroid
    parts: int
    eos: int  # number of `</s>`, -1 without
    shift: int  # h // bucket is about (h * factor) >> shift
    factor: int
    summed: int = 0  # 1: the rows of words hold their n-grams too


class Arrays(NamedTuple):
    """A model as the kernels see it; all arrays are read only.

    Rows: words first, then buckets of n-grams; of a pruned model only the buckets that are left, in their order,
    found by `bits` (one bit per bucket) and `rank` (rows before each 64 buckets).
    """

    blob: Array  # uint8: the file, which holds the words' bytes
    spans: Array  # int64[words + labels]: where each begins in `blob`, times 2^20, plus its bytes
    slots: (
        Array  # int64[power of two]: open addressing; a word's hash times 2^32, plus its number; -1 is free
    )
    weights: Array  # int32[words]: vectors that the row of a word is the sum of
    rows: Array  # float32[rows, dim]; no rows if the matrix stays quantised
    codes: Array  # uint8[rows, parts]; no rows if it does not
    centroids: Array  # float32[dim * 256]
    norms: Array  # float32[rows]
    bits: Array  # uint64[buckets / 64 + 1], or none: all buckets are there
    rank: Array  # int32[the same]
    output: Array  # float32[labels, dim]
    left: Array  # int32[2 * labels - 1]: children of each node of hierarchical softmax, -1 of a leaf; or none
    right: Array
    numbers: Numbers


class Matrix(NamedTuple):
    """Dense `rows`, or `codes` of centroids, `part` values each, times `norms`."""

    rows: Array
    codes: Array
    centroids: Array
    norms: Array
    part: int

    def dense(self) -> Array:
        """float32[rows, dim], expanded from the codes where there are any."""
        if not len(self.codes):
            return np.ascontiguousarray(self.rows)
        columns = []
        parts = self.codes.shape[1]
        dim = len(self.centroids) // 256
        for m in range(parts):
            width = self.part if m < parts - 1 else dim - self.part * (parts - 1)
            first = m * 256 * self.part
            columns.append(self.centroids[first : first + 256 * width].reshape(256, width)[self.codes[:, m]])
        expanded: Array = np.concatenate(columns, axis=1) * self.norms[:, None]
        return np.ascontiguousarray(expanded, np.float32)


class Reader:
    """Reads the file's values one after the other. Raises `NotUnderstood` where it ends too early."""

    def __init__(self, blob: Array) -> None:
        self.blob = blob
        self.at = 0

    def values(self, form: str) -> tuple[Any, ...]:
        """The values of a `struct` form, little endian, not padded."""
        return struct.unpack("<" + form, self.bytes(struct.calcsize("<" + form)).tobytes())

    def bytes(self, size: int) -> Array:
        """uint8[size], not copied."""
        if size < 0 or self.at + size > len(self.blob):
            raise NotUnderstood("the file ends too early, or its sizes are damaged")
        self.at += size
        return self.blob[self.at - size : self.at]

    def floats(self, count: int) -> Array:
        """float32[count], not copied: perhaps not aligned, which today's processors do not mind."""
        return self.bytes(4 * count).view("<f4")

    def matrix(self, quantised: bool, dim: int) -> Matrix:
        """The next matrix of `dim` columns."""
        if not quantised:
            rows, columns = self.values("qq")
            if columns != dim or rows < 0:
                raise NotUnderstood("a matrix of another width")
            none = np.zeros(0, np.float32)
            return Matrix(
                self.floats(rows * dim).reshape(rows, dim), np.zeros((0, 1), np.uint8), none, none, 1
            )
        with_norms, rows, columns, size = self.values("?qqi")
        codes = self.bytes(size)
        centroids, parts, part = self._quantiser()
        if columns != dim or len(centroids) != dim * 256 or size != rows * parts or parts != -(-dim // part):
            raise NotUnderstood("a quantised matrix of another shape")
        norms = np.ones(rows, np.float32)
        if with_norms:
            which = self.bytes(rows)
            norms = self._quantiser()[0][which]
        return Matrix(np.zeros((0, dim), np.float32), codes.reshape(rows, parts), centroids, norms, part)

    def _quantiser(self) -> tuple[Array, int, int]:
        dim, parts, part, _ = self.values("4i")
        if dim <= 0 or part <= 0:
            raise NotUnderstood("a quantised matrix of another shape")
        return np.array(self.floats(dim * 256)), parts, part


def read_model(path: Path) -> tuple[Arrays, list[str]]:
    """(the arrays, the labels as they stand in the file).

    The file is mapped into memory: a large matrix stays on disk until its rows are asked for, and processes share
    it. Raises `NotUnderstood`.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise NotUnderstood("the file is empty")
        blob = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    read = Reader(blob)
    magic, version = read.values("ii")
    if magic != MAGIC or version not in (11, 12):
        raise NotUnderstood("no fastText model, or of another version")
    dim, _, _, _, _, word_ngrams, loss, kind, bucket, min_n, max_n, _, _ = read.values("12id")
    if kind != SUPERVISED or loss not in (HIERARCHICAL, NEGATIVE, SOFTMAX, ONE_VS_ALL) or dim <= 0:
        raise NotUnderstood("a fastText model without labels, or of an unknown kind")
    max_n = 0 if version == 11 else max_n
    size, words, labels, _, pruned = read.values("iiiqq")
    if max(word_ngrams, min_n, max_n) > LONGEST:
        raise NotUnderstood("n-grams longer than any that are in use")
    grams = word_ngrams > 1 or max_n > 0
    if (
        not 0 < labels <= size
        or words + labels != size
        or size > len(blob) // ENTRY
        or (grams and bucket <= 0 and pruned != 0)
    ):
        raise NotUnderstood("the dictionary is damaged")
    spans, counts, types = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint8)
    read.at = int(_entries(blob, read.at, spans, counts, types))
    if (
        read.at < 0
        or types[:words].any()
        or not types[words:].all()
        or not 0 <= counts.min() <= counts.sum() < _MANY
    ):
        raise NotUnderstood("the dictionary is damaged")
    pairs = read.bytes(8 * max(pruned, 0)).view("<i4").reshape(-1, 2)
    quantised = bool(read.values("?")[0])
    matrix = read.matrix(quantised, dim)
    output = read.matrix(bool(read.values("?")[0]) and quantised, dim).dense()
    total = len(matrix.codes) if quantised else len(matrix.rows)
    buckets = pruned if pruned >= 0 else bucket if grams else 0
    if output.shape != (labels, dim) or total < words + buckets or (pruned >= 0 and not quantised):
        raise NotUnderstood("the matrices do not fit the dictionary")
    bits, rank = np.zeros(0, np.uint64), np.zeros(0, np.int32)
    if pruned > 0:
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        if pairs.min() < 0 or pairs[-1, 0] >= bucket or pairs[:, 1].max() >= total - words:
            raise NotUnderstood("the list of pruned n-grams is damaged")
        bits, rank = _ranked(pairs[:, 0].astype(np.int64), bucket)
        kept = np.concatenate([np.arange(words), words + pairs[:, 1]])
        matrix = matrix._replace(codes=matrix.codes[kept], norms=matrix.norms[kept])
    if quantised and len(matrix.codes) * dim * 4 <= EXPANDED:
        none = np.zeros(0, np.float32)
        matrix = Matrix(matrix.dense(), np.zeros((0, 1), np.uint8), none, none, 1)
    slots = np.full(1 << max((2 * size).bit_length(), 3), -1, np.int64)
    eos = int(_fill(blob, spans, slots))
    left, right = (
        tree(counts[words:]) if loss == HIERARCHICAL else (np.zeros(0, np.int32), np.zeros(0, np.int32))
    )
    shift = 32 + max(bucket, 1).bit_length() - 1
    numbers = Numbers(
        dim, words, labels, min_n, max_n, word_ngrams, bucket, loss, pruned, matrix.part, matrix.codes.shape[1],
        eos, shift, (1 << shift) // max(bucket, 1),
    )  # fmt: skip
    arrays = Arrays(
        blob, spans, slots, np.ones(words, np.int32), matrix.rows, matrix.codes, matrix.centroids, matrix.norms,
        bits, rank, output, left, right, numbers,
    )  # fmt: skip
    return locked(arrays), [_name(blob, span) for span in spans[words:].tolist()]


def _name(blob: Array, span: int) -> str:
    return blob[span >> 20 : (span >> 20) + (span & 0xFFFFF)].tobytes().decode("utf-8", "replace")


def locked(arrays: Arrays) -> Arrays:
    """The same, read only: so a kernel is compiled for one kind of array, whether mapped or made."""
    for array in arrays[:-1]:
        array.flags.writeable = False
    return arrays


def tree(counts: Array) -> tuple[Array, Array]:
    """(left, right) int32[2 * labels - 1]: fastText's Huffman tree over labels by falling count, -1 at a leaf.

    The root is the last node; node n of [labels, 2 * labels - 1) has row n - labels of the output matrix.
    """
    labels = len(counts)
    weight = np.full(2 * labels, _MANY, np.int64)
    weight[:labels] = counts
    left, right = np.full(2 * labels - 1, -1, np.int32), np.full(2 * labels - 1, -1, np.int32)
    leaf, node = labels - 1, labels
    for parent in range(labels, 2 * labels - 1):
        chosen = []
        for _ in range(2):
            if leaf >= 0 and weight[leaf] < weight[node]:
                chosen.append(leaf)
                leaf -= 1
            else:
                chosen.append(node)
                node += 1
        left[parent], right[parent] = chosen
        weight[parent] = weight[chosen[0]] + weight[chosen[1]]
    return left, right


def _ranked(buckets: Array, bucket: int) -> tuple[Array, Array]:
    """(bits, rank) of the buckets that are left, given in rising order."""
    bits = np.zeros(bucket // 64 + 1, np.uint64)
    np.bitwise_or.at(bits, buckets >> 6, np.uint64(1) << (buckets & 63).astype(np.uint64))
    return bits, np.searchsorted(buckets, np.arange(len(bits)) * 64).astype(np.int32)


@compiled
def _entries(blob: Any, at: Any, spans: Any, counts: Any, types: Any) -> Any:
    """Read the dictionary's entries; the place after them, or -1 if the file ends before or a word has no end."""
    for i in range(len(spans)):
        start = at
        while at < len(blob) and blob[at] != 0:
            at += 1
        if at + ENTRY > len(blob) or at - start >= 1 << 20:
            return -1
        spans[i] = start << 20 | at - start
        count = np.uint64(0)
        for k in range(8):
            count |= np.uint64(blob[at + 1 + k]) << np.uint64(8 * k)
        counts[i] = np.int64(count)
        types[i] = blob[at + 9]
        at += ENTRY
    return at


@compiled
def _fill(blob: Any, spans: Any, slots: Any) -> Any:
    """Put the words into the table by hash (32-bit FNV-1a over signed bytes); the number of `</s>`, -1 if absent."""
    eos = -1
    mask = np.uint32(len(slots) - 1)
    for i in range(len(spans)):
        start, size = spans[i] >> 20, spans[i] & 0xFFFFF
        h = np.uint32(2166136261)
        for k in range(start, start + size):
            h = np.uint32((h ^ np.uint32(np.int8(blob[k]))) * np.uint32(16777619))
        slot = h & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint32(1)) & mask
        slots[slot] = np.int64((np.uint64(h) & np.uint64(0x7FFFFFFF)) << np.uint64(32)) | i
        if size == 4 and blob[start] == 60 and blob[start + 1] == 47 and blob[start + 2] == 115:
            eos = i
    return eos
