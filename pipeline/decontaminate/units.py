"""Items to what is looked for: units (a question, an answer, a passage, a text) and their runs of words.

A part of `ngram` words or more is a unit of all its n-grams. A question or text with fewer is one run, matched whole; if
the item has answers, one of them must follow within `answer_within` words (decon requires both, too). It is used if it
has `min_words` words, including its answer. Parts of the same words in one set are one unit,
records of the same question, passage and text one item.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.decontaminate.items import LETTERS, Item
from corpusmill.pipeline.decontaminate.ngram_kernels import keys_and_checks
from corpusmill.pipeline.engine.shuffle import distinct
from corpusmill.pipeline.text.buffers import I64, U64
from corpusmill.pipeline.text.word_hashes import code_point, most_words, place_words
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.stages import PARTS, DecontaminateParams

LEAST = 5  # words of a short question: its prefix of so many is what the scan looks for
ALONE_WORDS, ALONE_LETTERS = 8, 44  # of a short question that counts without its answer
NEAR_LEAST = 10  # words of what is searched for with words changed
TAIL = 32  # words of a passage before a short question


class Near(NamedTuple):
    """What is searched for with words changed: words of `Units.hashes`, and the unit that they belong to."""

    unit: int
    first: int
    words: int
    core: tuple[int, int] | None = None  # from which of the words to which half must be found


@dataclass
class Units:
    """Everything about the units; arrays over U units, R runs (before equal ones are united), A answers."""

    items: list[Item] = field(default_factory=list)  # distinct, the first record of each
    records: list[list[Item]] = field(default_factory=list)  # of each item, as read
    sets: list[str] = field(default_factory=list)  # of each unit
    parts: list[int] = field(default_factory=list)  # of each unit, a place in `PARTS`
    members: list[list[int]] = field(default_factory=list)  # of each unit, its items
    words: list[int] = field(default_factory=list)  # of each unit
    run_unit: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    run_key: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    run_check: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    run_length: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    run_first: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  # where it begins in `hashes`
    run_place: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  # the unit's word where it begins
    prefix_keys: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    answers: list[tuple[int, int, int, int]] = field(default_factory=list)  # (unit, key, check, words)
    near: list[Near] = field(default_factory=list)  # what is searched for with words changed
    hashes: U64 = field(
        default_factory=lambda: np.zeros(0, np.uint64)
    )  # of all words, by which `near` counts
    lettered: I64 = field(default_factory=lambda: np.zeros(1, np.int64))  # [words + 1], as in `_Words`
    wordless: Counter[str] = field(default_factory=Counter)  # set -> n-grams without a letter, left out


def prefix_of(params: DecontaminateParams) -> int:
    """Words of the prefix by which short items are found."""
    return min(LEAST, params.min_words, params.ngram - 1)


@dataclass
class _Words:
    """Word hashes of many texts, one after the other."""

    place: dict[str, int]
    bounds: I64
    hashes: U64
    lettered: I64  # [words + 1]: words with a letter before each

    def of(self, text: str) -> tuple[int, int]:
        """First and last word of a text."""
        place = self.place[text]
        return int(self.bounds[place]), int(self.bounds[place + 1])

    def marked(self, text: str) -> tuple[U64, I64]:
        """(hashes of a text's words, 1 for each that has a letter)."""
        first, last = self.of(text)
        return self.hashes[first:last], np.diff(self.lettered[first : last + 1])

    def count(self, text: str) -> int:
        first, last = self.of(text)
        return last - first

    def word_key(self, text: str) -> bytes:
        """Equal for texts with equal words."""
        first, last = self.of(text)
        return self.hashes[first:last].tobytes()


def make_units(found: Sequence[Item], params: DecontaminateParams) -> Units:
    """The units of all items, in the order of the items."""
    words = _words([*LETTERS, *(text for item in found for text in _texts(item))])
    made = Units()
    builder = _Builder(made, words, params)
    for item, records in _united(found, words):
        made.records.append(records)
        builder.add(item)
    builder.runs()
    return made


def _texts(item: Item) -> tuple[str, ...]:
    return (item.question, item.passage, item.text, *item.answers, *item.others)


def _united(found: Iterable[Item], words: _Words) -> list[tuple[Item, list[Item]]]:
    """Records of one question made one item, with all their answers; and the records of each."""
    groups: dict[tuple[Any, ...], list[Item]] = defaultdict(list)
    for item in found:
        same = tuple(words.word_key(text) for text in (item.question, item.passage, item.text))
        # Without any of them an item is its answers.
        groups[item.set, *same, () if any(same) else item.answers + item.others].append(item)
    united = []
    for group in groups.values():
        right = tuple(dict.fromkeys(text for item in group for text in item.answers))
        others = tuple(dict.fromkeys(text for item in group for text in item.others if text not in right))
        united.append((group[0]._replace(answers=right, others=others), group))
    return united


class _Builder:
    """Adds items one by one; runs are gathered and hashed at the end."""

    def __init__(self, made: Units, words: _Words, params: DecontaminateParams) -> None:
        self.made, self.words, self.params = made, words, params
        self.known: dict[tuple[str, int, bytes], int] = {}
        self.starts: list[npt.NDArray[np.int64]] = []
        self.lengths: list[int] = []
        self.firsts: list[int] = []
        self.owners: list[int] = []
        self.short_starts: list[int] = []
        self.short_answers: dict[int, dict[bytes, str]] = {}
        self.joined: list[tuple[U64, I64]] = []  # words of texts in a row, which follow those of the texts
        self.end = len(words.hashes)

    def add(self, item: Item) -> None:
        number = len(self.made.items)
        self.made.items.append(item)
        accepted = [text for text in item.answers or item.others if self.words.count(text)]
        self._add_part(item, number, 0, item.question, accepted)
        for text in (*item.answers, *item.others):
            self._add_part(item, number, 1, text, None)
        self._add_part(item, number, 2, item.passage, None)
        self._add_part(item, number, 3, item.text, [])
        if self.words.count(item.question) < self.params.ngram:
            self._add_joined(item, number)

    def _add_part(self, item: Item, number: int, part: int, text: str, answers: list[str] | None) -> None:
        """Register a part of an item (its number among question, answer, passage, text) as a unit; with `answers` None, a
        short part is skipped."""
        first, last = self.words.of(text)
        count = last - first
        short = count < self.params.ngram
        if short:
            if answers is None or count < prefix_of(self.params):
                return
            shortest = min(answers, key=self.words.count, default=None)
            if not self._enough(text, shortest):
                return
            if self.words.lettered[last] == self.words.lettered[first]:
                return
            if count >= ALONE_WORDS and letters_of(text) >= ALONE_LETTERS:
                answers = []
        same = (item.set, part, self.words.word_key(text))
        if same in self.known:
            unit = self.known[same]
            if self.made.members[unit][-1] != number:
                self.made.members[unit].append(number)
        else:
            unit = self.known[same] = self._unit(item.set, part, number, count, first)
            if count >= NEAR_LEAST:
                self.made.near.append(Near(unit, first, count))
            if short:
                self.starts.append(np.array([first], np.int64))
                self.lengths.append(count)
                self.short_starts.append(first)
            else:
                self.starts.append(self._ngrams(item.set, first, last))
                self.lengths.append(self.params.ngram)
        if short:
            mine = self.short_answers.setdefault(unit, {})
            for answer in answers or ():
                mine.setdefault(self.words.word_key(answer), answer)

    def _add_joined(self, item: Item, number: int) -> None:
        """A short question with what stands beside it, in the orders in which these are usually printed."""
        words = self.words.marked
        asked = words(item.question)
        if len(asked[0]) < 2:
            return
        hashes, flags = words(item.passage)
        if len(hashes):
            self._join(item, number, [(hashes[-TAIL:], flags[-TAIL:]), asked], 1)
            self._join(item, number, [asked, (hashes[:TAIL], flags[:TAIL])], 0)
        for text in item.answers:
            if len(asked[0]) < prefix_of(self.params) and self._enough(item.question, text):
                self._join(item, number, [asked, words(text)], least=prefix_of(self.params))
            elif self.words.count(text) < self.params.ngram:
                self._join(item, number, [asked, words(text)])
        offered = [words(text) for text in item.choices]
        if offered:
            self._join(item, number, [asked, *offered])
            letters = [words(letter) for letter in LETTERS[: len(offered)]]
            pairs = zip(letters, offered, strict=False)
            self._join(item, number, [asked, *(part for pair in pairs for part in pair)])

    def _enough(self, text: str, answer: str | None) -> bool:
        """Whether a short part says enough, with its answer if it has one."""
        words = self.words.count(text) + (self.words.count(answer) if answer is not None else 0)
        letters = letters_of(text) + (letters_of(answer) if answer is not None else 0)
        least = self.params.min_letters if answer is None else self.params.min_letters * 3 // 2
        return words >= self.params.min_words or letters >= least

    def _join(
        self,
        item: Item,
        number: int,
        parts: Sequence[tuple[U64, I64]],
        core: int | None = None,
        least: int | None = None,
    ) -> None:
        """Register texts in a row as a near unit, if they have as many words as an n-gram; `core`: of which of them half must be found.
        Shorter ones are matched whole from `least` words on."""
        hashes = np.concatenate([part[0] for part in parts])
        same = (item.set, 0, hashes.tobytes())
        short = len(hashes) < self.params.ngram
        if same in self.known or (short and (least is None or len(hashes) < least)):
            return
        unit = self.known[same] = self._unit(item.set, 0, number, len(hashes), self.end)
        edges = np.cumsum([0, *(len(part[0]) for part in parts)]).tolist()
        inside = None if core is None else (edges[core], edges[core + 1])
        if short:
            self.short_starts.append(self.end)
        else:
            self.made.near.append(Near(unit, self.end, len(hashes), inside))
        self.starts.append(np.array([self.end] if short else [], np.int64))
        self.lengths.append(len(hashes) if short else self.params.ngram)
        self.joined.append((hashes, np.concatenate([part[1] for part in parts])))
        self.end += len(hashes)

    def _unit(self, name: str, part: int, number: int, words: int, first: int) -> int:
        """A new unit; its number."""
        self.made.sets.append(name)
        self.made.parts.append(part)
        self.made.members.append([number])
        self.made.words.append(words)
        self.firsts.append(first)
        return len(self.firsts) - 1

    def _ngrams(self, name: str, first: int, last: int) -> npt.NDArray[np.int64]:
        """Where the n-grams with a letter begin."""
        ngram, lettered = self.params.ngram, self.words.lettered
        starts = np.arange(first, last - ngram + 1)
        kept = starts[lettered[starts + ngram] > lettered[starts]]
        self.made.wordless[name] += len(starts) - len(kept)
        return kept

    def runs(self) -> None:
        """Hash what was gathered."""
        made = self.made
        made.hashes = hashes = np.concatenate([self.words.hashes, *(part[0] for part in self.joined)])
        flags = np.concatenate([np.diff(self.words.lettered), *(part[1] for part in self.joined)])
        made.lettered = np.r_[0, np.cumsum(flags)]
        sizes = [len(starts) for starts in self.starts]
        made.run_unit = np.repeat(np.arange(len(sizes)), sizes)
        made.run_length = np.repeat(np.array(self.lengths, np.int64), sizes)
        starts = np.concatenate([np.zeros(0, np.int64), *self.starts])
        made.run_first = starts
        made.run_place = starts - np.repeat(np.array(self.firsts, np.int64), sizes)
        made.run_key, made.run_check = keys_and_checks(hashes, starts, made.run_length)
        short = np.array(self.short_starts, np.int64)
        prefix = prefix_of(self.params)
        made.prefix_keys = distinct(keys_and_checks(hashes, short, np.full(len(short), prefix))[0])
        answers = [
            (unit, *self._whole(text)) for unit, mine in sorted(self.short_answers.items()) for text in mine.values()
        ]  # fmt: skip
        begins = np.array([first for _, first, _ in answers], np.int64)
        lengths = np.array([count for _, _, count in answers], np.int64)
        keys, checks = keys_and_checks(hashes, begins, lengths)
        made.answers = [
            (unit, int(key), int(check), count)
            for (unit, _, count), key, check in zip(answers, keys, checks, strict=True)
        ]

    def _whole(self, text: str) -> tuple[int, int]:
        """(first word, words) of an answer, of a long one as far as an n-gram goes."""
        first, last = self.words.of(text)
        return first, min(last - first, self.params.ngram)


def letters_of(text: str) -> int:
    """How many letters a text has: what a run of words says, whatever the language, rather than how many they are."""
    return sum(map(str.isalpha, text))


def coverage(unit: I64, place: I64, length: npt.NDArray[Any], units: int) -> I64:
    """int64[units]: words of each unit that lie in one of these runs: run r covers `length[r]` words of `unit[r]`
    from `place[r]` on. Runs of one unit have one length."""
    order = np.lexsort((place, unit))
    unit, place, length = unit[order], place[order], length[order].astype(np.int64)
    own = length.copy()
    follows = unit[1:] == unit[:-1]
    own[:-1] = np.where(follows, np.minimum(length[:-1], place[1:] - place[:-1]), length[:-1])
    covered: I64 = np.bincount(unit, own, minlength=units).astype(np.int64)
    return covered


def _words(texts: Iterable[str]) -> _Words:
    """The words of all distinct texts."""
    place: dict[str, int] = {}
    for text in texts:
        place.setdefault(text, len(place))
    bounds, hashes, lettered = [0], [np.zeros(0, np.uint64)], [np.zeros(0, np.bool_)]
    for text in place:
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        own, flags = _words_of(data, most_words(len(data)), rule(), _numbers())
        hashes.append(own)
        lettered.append(flags)
        bounds.append(bounds[-1] + len(own))
    before = np.zeros(bounds[-1] + 1, np.int64)
    np.cumsum(np.concatenate(lettered), out=before[1:])
    return _Words(place, np.array(bounds, np.int64), np.concatenate(hashes), before)


@compiled
def _words_of(data: Any, most: int, rule: Any, numbers: Any) -> Any:
    """(hashes, whether each has a letter) of the words of a text."""
    hashes, starts = np.empty(most, np.uint64), np.empty(most, np.int64)
    ends, paragraphs = np.empty(most, np.int64), np.empty(most, np.int32)
    count = place_words(data, 0, len(data), rule, hashes, starts, ends, paragraphs)
    lettered = np.zeros(count, np.bool_)
    for word in range(count):
        i = starts[word]
        while i < ends[word] and not lettered[word]:
            point, i = code_point(data, i, ends[word])
            lettered[word] = point < len(numbers) and not numbers[point]
    return hashes[:count].copy(), lettered


@lru_cache(maxsize=1)
def _numbers() -> npt.NDArray[np.bool_]:
    """bool[0x20000]: code points that are no letter though they may stand in a word: numbers and marks."""
    return np.array([unicodedata.category(chr(point))[0] != "L" for point in range(0x20000)])


assert PARTS == ("question", "answer", "passage", "text")
