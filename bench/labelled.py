"""Sets of documents with known near-copies, their exact similarity, and how a tool's clusters are scored.

Exact Jaccard is computed here by no tool's code: words are runs of `\\w` of the lower-cased text, shingles are
five of them in a row, all pairs that share a shingle are compared.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from bench import natural

WORD = re.compile(r"\w+")
NGRAM = 5
BASES, DISTRACTORS, LOW, HIGH = 600, 1_500, 0.6, 0.95
Pairs = set[tuple[str, str]]


class Labelled(NamedTuple):
    """Documents by id; the pairs that are duplicates; pairs that look alike and are not (controls)."""

    texts: dict[str, str]
    duplicates: Pairs
    controls: Pairs


def mccormick(size: int) -> Labelled:
    """`articles_<size>` of McCormick's MinHash tutorial: news sentences, planted near-copies, labelled pairs."""
    folder = natural.DATA / "neardup/mccormick_minhash"
    lines = (folder / f"articles_{size}.train").read_text(encoding="utf-8").splitlines()
    texts = dict(line.split(" ", 1) for line in lines)
    truth = (folder / f"articles_{size}.truth").read_text(encoding="utf-8").split()
    return Labelled(texts, {pair(a, b) for a, b in zip(truth[::2], truth[1::2], strict=True)}, set())


def planted(seed: int = 7) -> tuple[Labelled, dict[tuple[str, str], float]]:
    """The harder set, and the exact Jaccard of all its pairs of 0.5 and more.

    Passages of 60 to 600 words out of books and Wikipedia's markup, of each a copy with words replaced one by
    one until the exact Jaccard is at a mark drawn evenly from 0.6 to 0.95; more passages without a copy;
    and news articles at three reading levels (OneStopEnglish), which say the same and are no copies.
    """
    generator = np.random.default_rng(seed)
    words = [text.split() for name in ("books", "wiki") for text in natural.read_only(name)]
    long = [some for some in words if len(some) > 2_000]
    texts: dict[str, str] = {}
    for number in range(BASES + DISTRACTORS):
        book = long[number % len(long)]
        size = int(np.exp(generator.uniform(np.log(60), np.log(600))))
        # Passages of one book lie in strips of their own, so that no two overlap.
        strips = -(-(BASES + DISTRACTORS) // len(long))
        width = len(book) // strips
        start = (number // len(long)) * width
        texts[f"passage{number:05d}"] = " ".join(book[start : start + min(size, max(width, 60))])
    vocabulary = np.array(list(itertools.chain.from_iterable(long[:8])))
    for number in range(BASES):
        mark = generator.uniform(LOW, HIGH)
        texts[f"copy{number:05d}"] = _edited(
            texts[f"passage{number:05d}"].split(), mark, vocabulary, generator
        )
    controls: Pairs = set()
    articles: dict[str, list[str]] = defaultdict(list)
    with (natural.DATA / "quality/onestop_english/texts.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            name = f"news{number:05d}"
            texts[name] = row["text"]
            articles[row["article"]].append(name)
    for names in articles.values():
        controls |= {pair(a, b) for a, b in itertools.combinations(names, 2)}
    return Labelled(texts, set(), controls), similarities(texts)


def _edited(words: list[str], mark: float, vocabulary: np.ndarray, generator: np.random.Generator) -> str:
    """The words with as many replaced as bring the Jaccard to `mark` or just below it."""
    original = shingles(" ".join(words))
    copy = list(words)
    for place in generator.permutation(len(words)):
        if jaccard(original, shingles(" ".join(copy))) <= mark:
            break
        copy[place] = str(generator.choice(vocabulary))
    return " ".join(copy)


def pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def shingles(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}


def jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b)


def similarities(texts: dict[str, str], least: float = 0.5) -> dict[tuple[str, str], float]:
    """The exact Jaccard of every pair that has at least `least`."""
    sets = {name: shingles(text) for name, text in texts.items()}
    owners: dict[str, list[str]] = defaultdict(list)
    for name, some in sets.items():
        for shingle in some:
            owners[shingle].append(name)
    shared = Counter(
        pair(a, b) for names in owners.values() if len(names) > 1 for a, b in itertools.combinations(names, 2)
    )
    found = {key: count / (len(sets[key[0]]) + len(sets[key[1]]) - count) for key, count in shared.items()}
    return {key: value for key, value in found.items() if value >= least}


class Scores(NamedTuple):
    """Of pairs: those in one cluster against those that are duplicates."""

    found: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.wrong) if self.found + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.found / (self.found + self.missed) if self.found + self.missed else 1.0

    @property
    def f1(self) -> float:
        return 2 * self.found / max(2 * self.found + self.wrong + self.missed, 1)


def pairs_of(clusters: list[list[str]]) -> Pairs:
    """Every pair of documents that share a cluster."""
    return {pair(a, b) for members in clusters for a, b in itertools.combinations(members, 2)}


def score(pairs: Pairs, duplicates: Pairs) -> Scores:
    return Scores(len(pairs & duplicates), len(pairs - duplicates), len(duplicates - pairs))
