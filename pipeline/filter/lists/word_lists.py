"""Words of the user's lists, found in texts in one pass over a batch (Aho and Corasick 1975), and how often each list's words
occur: one signal per list, `<list>.listed_words`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.lists.list_files import read_entries, state
from corpusmill.pipeline.filter.rules.sets import LISTED
from corpusmill.pipeline.filter.text.view import Array, TextView
from corpusmill.pipeline.text.unicode_tables import joins_table, lower, lower_table
from corpusmill.pipeline.text.utf8 import decode, encode
from corpusmill.schemas.filter import WordList
from corpusmill.schemas.tables import SignalSpec


class Automaton(NamedTuple):
    """Entries in lower case, as a machine over the bytes of their UTF-8.

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
    """The machine that finds `entries`, which are distinct, not empty and in lower case."""
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
    Letters of scripts written without spaces do not count as parts of words, and entries in them need no such neighbours.
    """
    return np.asarray(_occurrences(machine, lower_table(), joins_table(), data, offsets, whole_words))


@compiled
def _occurrences(machine: Any, lower: Any, joins: Any, data: Any, offsets: Any, whole_words: bool) -> Any:
    step, kind, chars, shorter = machine.step, machine.kind, machine.chars, machine.shorter
    found = np.zeros(len(offsets) - 1, np.int64)
    size = machine.longest + 2
    coded = np.empty(4, np.uint8)
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
                state = step[state, kind[lower[point]]]
            else:
                for k in range(encode(lower[point], coded, 0)):
                    state = step[state, kind[coded[k]]]
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


class WordLists:
    """The lists of a recipe, loaded. Raises `UserError` for a file that cannot be read, and a list left empty."""

    def __init__(self, lists: Mapping[str, WordList]) -> None:
        self.machines = {}
        for name, given in lists.items():
            where = f"filter.word_lists.{name}"
            states = state(where, given.files), state(f"{where}.allow", given.allow)
            self.machines[name] = _machine(where, tuple(given.files), tuple(given.allow), states)
        self.specs = [
            SignalSpec(
                name=f"{name}.{LISTED}",
                dtype="int",
                unit=f"occurrences of words of the list {name}",
                origin="tensorflow_datasets, c4_utils.py (C4's badwords filter)",
            )
            for name in lists
        ]

    def measure(self, view: TextView) -> dict[str, npt.NDArray[np.int64]]:
        """int64[D] by signal."""
        return {
            f"{name}.{LISTED}": occurrences(machine, view.data, view.offsets)
            for name, machine in self.machines.items()
        }


@lru_cache(maxsize=8)
def _machine(where: str, files: tuple[str, ...], allow: tuple[str, ...], states: object) -> Automaton:
    """The machine of a list, built once per process for files in these `states`."""
    allowed = set(read_entries(f"{where}.allow", allow, _normal))
    entries = [entry for entry in read_entries(where, files, _normal) if entry not in allowed]
    if not entries:
        raise UserError(f"{where}: every entry is also in the files of `allow`; nothing would be found")
    return automaton(entries)


def _normal(entry: str) -> str:
    """Lower case, and one space between words."""
    return lower(" ".join(entry.split()))
