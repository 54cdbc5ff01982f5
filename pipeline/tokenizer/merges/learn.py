"""Vocabularies of BPE, and of WordPiece by BPE's merges, from counted words: those of the trainers of `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.hugging_face import alphabet
from corpusmill.pipeline.tokenizer.merges.blocks import Blocks, blocks_of
from corpusmill.pipeline.tokenizer.merges.kernel import count_pairs, learn_merges
from corpusmill.pipeline.tokenizer.merges.pairs import AT, BLOCKS, COUNT, PAIR_ROW
from corpusmill.pipeline.tokenizer.words import Words

I64 = npt.NDArray[np.int64]
_ANY = 1 << 62  # bytes of a token


class Learned(NamedTuple):
    """Tokens in the order of their ids, and the merges in theirs."""

    vocabulary: list[str]
    merges: list[tuple[str, str]]


def learn(
    words: Words, special: Sequence[str], size: int, min_frequency: int, max_token_bytes: int | None, prefix: str = ""
) -> Learned:  # fmt: skip
    """As `BpeTrainer` learns from the words: the `special` tokens, the bytes that are none of them in the order of their stand-in
    characters, then merges until there are `size` tokens.

    `prefix` (`continuing_subword_prefix`): what the names of tokens within a word begin with; such bytes are numbered after
    `special`, before the others. The order of the words does not matter. One thing differs: the library counts in 32 bits, and loses
    pairs that occur 2^31 times.
    """
    letters = sorted(alphabet())
    starts = [prefix, ""] if prefix else [""]
    vocabulary = list(dict.fromkeys([*special, *(start + letter for start in starts for letter in letters)]))
    number = {name: i for i, name in enumerate(vocabulary)}
    ids = {start: np.empty(256, np.int32) for start in starts}
    for letter, byte in alphabet().items():
        for start in starts:
            ids[start][byte] = number[start + letter]
    first = len(vocabulary)
    most = first + max(0, min(size - first, len(words.data))) + 1  # each new token merges something
    limit = _ANY if max_token_bytes is None else max_token_bytes + 1  # the library's is one more
    given: list[tuple[int, int, int]] = []
    while True:
        blocks = blocks_of(words, ids[""], ids[prefix])
        merges = learn_merges(
            blocks, *_pairs(blocks, first), np.ones(most, np.int64), np.zeros(4 * most, np.int64),
            np.array(given, np.int64).reshape(-1, 3), first, size, max(min_frequency, 1), limit,
        )  # fmt: skip
        names = vocabulary.copy()
        for left, right, made in merges.reshape(-1, 3).tolist():
            name = names[left] + names[right].removeprefix(prefix)
            if made == len(names) and name in number:  # a special token is as a merge would name its own
                given.append((left, right, number[name]))
                break
            if made == len(names):
                names.append(name)
        else:
            pairs = [(names[left], names[right]) for left, right, _ in merges.reshape(-1, 3).tolist()]
            return Learned(names, pairs)


def _pairs(blocks: Blocks, tokens: int) -> tuple[I64, npt.NDArray[np.int32], I64]:
    """(pairs, their blocks, the queue) that learning begins with, of the first `tokens`."""
    numbers, pairs = np.full((tokens, tokens), -1, np.int32), np.empty(PAIR_ROW * (tokens**2 + 1), np.int64)
    count = count_pairs(blocks, numbers, pairs, np.empty(0, np.int32), False)
    rows = pairs.reshape(-1, PAIR_ROW)[:count]
    rows[:, AT] = np.cumsum(rows[:, BLOCKS]) - rows[:, BLOCKS]
    places = np.empty(rows[:, BLOCKS].sum(), np.int32)
    count_pairs(blocks, numbers, pairs, places, True)
    rows[:, AT] -= rows[:, BLOCKS]
    # What is sorted is a heap.
    order = np.lexsort((rows[:, 0], -rows[:, COUNT]))
    return pairs, places, np.stack([rows[order, COUNT], rows[order, 0], order], axis=1).ravel()
