"""Planted near-copies: texts of the corpus edited to a known similarity, to see whether they are found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.quality import plain
from corpusmill.pipeline.dedup.quality.recall import scattered
from corpusmill.pipeline.engine.shuffle import Records, among
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.buffers import view
from corpusmill.pipeline.text.shingling import Shingling

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

# The original text's key, locations of it and of its copy, the similarity meant and had, whether they share a
# band, and whether the copy met some text with similarity >= `similarity`.
PLANTED = np.dtype(
    [("key", "<u8"), ("original", "<i8"), ("planted", "<i8"), ("target", "<f8"), ("jaccard", "<f8"),
     ("hit", "?"), ("found", "?")]
)  # fmt: skip
LEVELS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
WORDS = 20  # shorter texts get no copy: one edit is too much of them
FEW = 4  # the same for the preset `short`, where a word has many shingles
LONGEST = 1 << 16  # bytes; longer texts get none: making one would take long, and show no more
NEAR = 0.01  # of the level is near enough
TRIES = 12  # copies made of a text, at most, to come near the level
_CHOOSE, _LEVEL, _SEED = 101, 102, 103
_FIRST = np.zeros(1, np.int64)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Planted(NamedTuple):
    """Edited copies, in the order of the rows asked for; texts unfit for one have none."""

    texts: pa.Array  # large_string
    original: I64  # row of each in the text array
    target: npt.NDArray[np.float64]
    jaccard: npt.NDArray[np.float64]  # exact, of the shingle sets
    hit: npt.NDArray[np.bool_]  # shares a band with its original


class Edit(NamedTuple):
    """At one word: what is put in its place, or, with `keep`, after it."""

    word: int
    keep: bool
    put: str


def choose(keys_hi: U64, share: float) -> npt.NDArray[np.bool_]:
    """Which texts get a copy, by their keys alone: about `share` of them, whatever the cut into partitions."""
    mixed = scattered(keys_hi, _CHOOSE)
    if share >= 1:
        return np.ones(len(mixed), bool)
    return mixed < np.uint64(int(max(0.0, share) * 2.0**64))


def plant(text: pa.Array, rows: I64, keys_hi: U64, shingling: Shingling, banding: Banding) -> Planted:
    """Copies of the texts at `rows` of a large_string array, the similarity of each near the level that the
    hash of its key (`keys_hi`, of each row) gives it: 0.5 to 0.95, and one or so edit.

    Words are replaced, inserted and deleted: all over the text, or from one place on, as where a page changes
    its frame. What comes in are words from elsewhere in the text, and made-up ones. The key seeds it all.
    Texts of fewer than 20 words (4 for the preset `short`) or more than 64 KiB get no copy.
    """
    offsets, data = view(text)
    levels = np.array(LEVELS)[(scattered(keys_hi, _LEVEL) % np.uint64(len(LEVELS))).astype(np.int64)]
    seeds = scattered(keys_hi, _SEED)
    copies, original, targets, exact = [], [], [], []
    for row, target, seed in zip(rows.tolist(), levels.tolist(), seeds.tolist(), strict=True):
        if offsets[row + 1] - offsets[row] > LONGEST:
            continue
        own = data[offsets[row] : offsets[row + 1]].tobytes().decode(errors="replace")
        if (copy := edited(own, target, seed, shingling)) is not None:
            copies.append(copy[0])
            exact.append(copy[1])
            original.append(row)
            targets.append(target)
    texts = pa.array(copies, pa.large_string())
    chosen = np.array(original, np.int64)
    keys = [
        minhash.band_keys(shingling.sign(some, which).signatures, *banding)
        for some, which in ((text, chosen), (texts, np.arange(len(texts), dtype=np.int64)))
    ]
    hit = (keys[0] == keys[1]).any(axis=1)
    return Planted(texts, chosen, np.array(targets, np.float64), np.array(exact, np.float64), hit)


def edited(text: str, target: float, seed: int, shingling: Shingling) -> tuple[str, float] | None:
    """A copy whose exact Jaccard similarity is about `target`, and that similarity; None of too few words.

    Copies with more or fewer edits, from one fixed row of edits, are made and compared until one is near enough.
    """
    places = plain.spans(text)
    if len(places) < (FEW if shingling.params.preset == "short" else WORDS):
        return None
    own = _set(text, shingling)
    edits: list[Edit] = []
    more = _edits(text, places, random.Random(seed))
    low, high = 0, len(places) + 1  # low edits leave more than the target, high ones less
    best = "", -1.0
    count = round(len(places) * _lost(target) / shingling.params.ngram)
    for _ in range(TRIES):
        count = min(max(count, low + 1), high - 1)
        if count <= low:
            break
        edits += islice(more, max(0, count - len(edits)))
        copy = apply(text, places, edits[:count])
        found = float(minhash.jaccard(*own, *_set(copy, shingling), _FIRST, _FIRST)[0])
        if found < 1 and abs(found - target) < abs(best[1] - target):
            best = copy, found
        if abs(best[1] - target) <= NEAR:
            break
        if found > target:
            low = count
        else:
            high = count
        # Each edit takes about as much; half-way where that guess would not get on.
        guess = round(count * _lost(target) / _lost(found)) if found < 1 else 2 * count
        count = guess if low < guess < high else (low + high) // 2
    return best if best[1] >= 0 else None


def _lost(jaccard: float) -> float:
    """The share of a set's members to replace for this similarity."""
    return (1 - jaccard) / (1 + jaccard)


def _edits(text: str, places: list[tuple[int, int]], chance: random.Random) -> Iterator[Edit]:
    """A row of edits, one for each word: in any order, or from one word on. Most copies need few of them."""
    count = len(places)
    if chance.random() < 0.5:
        keys = [chance.random() for _ in range(count)]
        order = sorted(range(count), key=keys.__getitem__)
    else:
        first = int(chance.random() * count)
        order = [(first + i) % count for i in range(count)]
    for word in order:
        kind = chance.random()
        if chance.random() < 0.5:
            start, end = places[int(chance.random() * count)]
            put = text[start:end]
        else:
            put = "".join(_LETTERS[int(chance.random() * 26)] for _ in range(7))
        yield Edit(word, 0.5 <= kind < 0.75, "" if kind >= 0.75 else put)


def apply(text: str, places: list[tuple[int, int]], edits: list[Edit]) -> str:
    """The text with its words edited; what stands between them stays."""
    parts, done = [], 0
    for word, keep, put in sorted(edits):
        start, end = places[word]
        parts += [text[done:end], " ", put] if keep else [text[done:start], put]
        done = end
    return "".join([*parts, text[done:]])


def _set(text: str, shingling: Shingling) -> tuple[I64, U64]:
    return shingling.sets(pa.array([text], pa.large_string()), _FIRST)


def mark_found(planted: Records, pairs: Records, similarity: float) -> Records:
    """`PLANTED` records with `found` set: the copy is in one of the verified `pairs` (records with a, b and
    jaccard, as `verify` publishes them) with at least this similarity."""
    near = pairs[pairs["jaccard"] >= similarity]
    marked: Records = planted.copy()
    marked["found"] = among(planted["planted"], np.sort(np.r_[near["a"], near["b"]]))
    return marked
