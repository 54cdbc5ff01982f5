"""Aho and Corasick 1975: all entries of a list found in one pass over a batch of texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.lists.keys import joins_table, small_table
from corpusmill.pipeline.filter.text.scan import decode

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Automaton:
    """Entries in small letters, as a machine over the bytes of their UTF-8.

    `step[state, kind[byte]]` is the next state, kinds being the bytes that entries hold and one for all others;
    `chars[state]` the length in characters of the longest entry that ends in a state, 0 if none does, and `shorter[state]`
    the state of the next shorter one, 0 if there is none.
    """

    step: Array  # int32[states, kinds]
    kind: Array  # uint8[256]
    chars: Array  # int32[states]
    shorter: Array  # int32[states]
    longest: int  # characters of the longest entry


def automaton(entries: Sequence[str]) -> Automaton:
    """The machine that finds `entries`, which are distinct, not empty and in small letters."""
    coded = [entry.encode("utf-8") for entry in entries]
    used = sorted(set(b"".join(coded)))
    kind = np.zeros(256, np.uint8)  # 0: a byte of no entry
    kind[used] = np.arange(1, len(used) + 1)
    children: list[dict[int, int]] = [{}]
    ends = [0]
    for entry, data in zip(entries, coded, strict=True):
        state = 0
        for byte in data:
            after = children[state].get(byte)
            if after is None:
                after = len(children)
                children[state][byte] = after
                children.append({})
                ends.append(0)
            state = after
        ends[state] = len(entry)
    step = np.zeros((len(children), len(used) + 1), np.int32)
    fail, link = [0] * len(children), [0] * len(children)  # longest suffix; longest suffix that is an entry
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        if state:
            step[state] = step[fail[state]]
            link[state] = state if ends[state] else link[fail[state]]
        for byte, after in children[state].items():
            fail[after] = int(step[fail[state], kind[byte]]) if state else 0
            step[state, kind[byte]] = after
            waiting.append(after)
    chars = np.array([ends[entry] for entry in link], np.int32)
    shorter = np.array([link[fail[entry]] for entry in link], np.int32)
    return Automaton(step, kind, chars, shorter, max((len(entry) for entry in entries), default=0))


def occurrences(machine: Automaton, data: Array, offsets: Array, whole_words: bool = True) -> Array:
    """int64[D]: characters of each document at which an entry ends, whatever the case of its letters.

    `whole_words`: an entry counts only between characters that are no part of a word, the `(\\W|^)w(\\W|$)` of C4.
    Letters of scripts written without spaces are not taken for parts of words, nor need they such neighbours.
    """
    return np.asarray(
        _occurrences(
            machine.step, machine.kind, machine.chars, machine.shorter, machine.longest, small_table(),
            joins_table(), data, offsets, whole_words,
        )
    )  # fmt: skip


@compiled
def _occurrences(
    step: Any, kind: Any, chars: Any, shorter: Any, longest: int, small: Any, joins: Any, data: Any, offsets: Any,
    whole_words: bool,
) -> Any:  # fmt: skip
    found = np.zeros(len(offsets) - 1, np.int64)
    size = longest + 2
    recent = np.zeros(size, np.uint8)  # `joins` of the last characters, by their number
    for d in range(len(offsets) - 1):
        state, number, last = 0, 0, offsets[d + 1]
        i = offsets[d]
        while i < last:
            point, width = decode(data, i)
            i += width
            here = joins[point]
            recent[number % size] = here
            number += 1
            if point < 128:
                state = step[state, kind[small[point]]]
            else:
                p = small[point]
                if p < 0x80:
                    state = step[state, kind[p]]
                elif p < 0x800:
                    state = step[state, kind[0xC0 | p >> 6]]
                    state = step[state, kind[0x80 | (p & 0x3F)]]
                elif p < 0x10000:
                    state = step[state, kind[0xE0 | p >> 12]]
                    state = step[state, kind[0x80 | (p >> 6 & 0x3F)]]
                    state = step[state, kind[0x80 | (p & 0x3F)]]
                else:
                    state = step[state, kind[0xF0 | p >> 18]]
                    state = step[state, kind[0x80 | (p >> 12 & 0x3F)]]
                    state = step[state, kind[0x80 | (p >> 6 & 0x3F)]]
                    state = step[state, kind[0x80 | (p & 0x3F)]]
            if chars[state] == 0:
                continue
            if not whole_words:
                found[d] += 1
                continue
            if here != 1 and i < last:
                after, _ = decode(data, i)
                if joins[after] == 2:
                    continue
            ending = state
            while ending != 0:
                begins = number - chars[ending]  # the number of its first character
                if begins == 0 or recent[begins % size] == 1 or recent[(begins - 1) % size] != 2:
                    found[d] += 1
                    break
                ending = shorter[ending]
    return found
