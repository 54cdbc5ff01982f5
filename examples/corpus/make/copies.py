"""Exact and near copies of documents whose text is stable: books, speeches, questions and answers.

No original is copied twice, so that every pair stands alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import orjson
import zstandard

from .common import Record, jaccard5, prose, read_jsonl_gz, sentences

EXACT = {"books": 30, "speeches": 10, "qa": 20}
NEAR = {"books": 80, "speeches": 14, "qa": 26}
LOWEST, HIGHEST = 0.55, 0.98
STYLES = ("words", "sentences", "boilerplate", "mixed")
# What sites wrap around a text. All lines end as sentences do, so no line rule takes them out first.
BOILERPLATE = (
    "This page was reprinted from an earlier edition with small corrections by the editors.",
    "Readers who find a mistake in this text are kindly asked to report it to the archive.",
    "The following passage is part of our collection of documents for students and teachers.",
    "Subscribe to our weekly letter and receive one chapter every Saturday morning.",
    "You have reached the end of this document, and the next one follows on the next page.",
    "Share this passage with a friend who might enjoy reading it in the original.",
    "Our volunteers have typed and proofread every line of this collection since the autumn of 1998.",
    "A printable version of this page may be ordered from the reading room free of charge.",
)


def originals(sources: Path) -> dict[str, list[Record]]:
    """Per source, the documents fit to be copied: prose of middling length that passes the quality rules."""
    books = [
        {"id": p.relative_to(sources / "books").as_posix(), "text": p.read_bytes().decode()}
        for p in sorted((sources / "books").rglob("*.txt"))
    ]
    faq = zstandard.ZstdDecompressor().decompressobj().decompress((sources / "qa/faq.jsonl.zst").read_bytes())
    found = {
        "books": books,
        "speeches": read_jsonl_gz(sources / "speeches/sotu.jsonl.gz"),
        "qa": [orjson.loads(line) for line in faq.splitlines()],
    }
    longest = {"books": 16_000, "speeches": 28_000, "qa": 12_000}
    return {
        source: [r for r in records if len(t := r["text"]) < longest[source] and prose(t, 70) and whole(t)]
        for source, records in found.items()
    }


def whole(text: str) -> bool:
    """Whether C4's rules, which count sentences in lines that end as sentences do, have enough to count."""
    ended = [line for line in text.splitlines() if line.rstrip().endswith((".", "!", "?", '"', "”"))]
    return sum(len(sentences(line)) for line in ended if len(line.split()) >= 3) >= 6


def copies(sources: Path, rng: random.Random) -> list[Record]:
    fit = originals(sources)
    exact: list[tuple[str, Record]] = []
    near: list[tuple[str, Record]] = []
    for source, records in fit.items():
        chosen = rng.sample(records, EXACT[source] + NEAR[source])
        exact += [(source, r) for r in chosen[: EXACT[source]]]
        near += [(source, r) for r in chosen[EXACT[source] :]]
    rng.shuffle(near)
    made: list[Record] = []
    for number, (source, r) in enumerate(exact, 1):
        exactly = {"kind": "exact_copy", "expected": "dedup", "of": f"{source}/{r['id']}"}
        made.append({"id": f"exact_copy-{number:03d}", "text": r["text"], "planted": exactly})
    for number, (source, r) in enumerate(near, 1):
        target = LOWEST + (HIGHEST - LOWEST) * (number - 1) / (len(near) - 1)
        style = STYLES[number % len(STYLES)]
        text = near_copy(r["text"], target, style, rng)
        label: Record = {
            "kind": "near_copy",
            "expected": "dedup",
            "of": f"{source}/{r['id']}",
            "style": style,
            "jaccard5": jaccard5(r["text"], text),
        }
        made.append({"id": f"near_copy-{number:03d}", "text": text, "planted": label})
    return made


def near_copy(text: str, target: float, style: str, rng: random.Random) -> str:
    """An edit of `text` whose Jaccard similarity to it is close to `target`."""
    edited = text
    if style == "boilerplate":
        lines = rng.sample(BOILERPLATE, 4)
        edited = _closest(
            text, target, lambda n: "\n\n".join((*lines[: n // 2], text, *lines[n // 2 : n])), 4
        )
    elif style != "words":
        # `mixed` goes half of the way by sentences and the rest by words.
        goal = target if style == "sentences" else (1 + target) / 2
        pieces = re.split(r"(?<=[.!?])(?=\s)", text)
        order = rng.sample(range(len(pieces)), len(pieces))
        edited = _closest(text, goal, lambda n: _without(pieces, set(order[:n])), len(pieces) // 2)
    least = 1 if edited == text else 0  # short texts: one edit may already be below the target
    return _closest(text, target, _word_edits(edited, rng), len(text.split()) // 3, least)


def _closest(original: str, target: float, edit: Callable[[int], str], most: int, least: int = 0) -> str:
    """The edit whose similarity is nearest to the target from above, by bisection on the number of edits."""
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        if jaccard5(original, edit(middle)) >= target:
            low = middle
        else:
            high = middle - 1
    return edit(low)


def _without(pieces: list[str], gone: set[int]) -> str:
    return "".join(p for i, p in enumerate(pieces) if i not in gone).strip()


def _word_edits(text: str, rng: random.Random) -> Callable[[int], str]:
    """Edit number n changes the first n of a fixed random order of words: a slip of the keyboard, or another
    word of the same text."""
    tokens = re.split(r"(\s+)", text)
    plain = [i for i, t in enumerate(tokens) if t.isalpha() and len(t) > 3]
    order = rng.sample(plain, len(plain))
    changed: dict[int, str] = {}
    for i in order:
        word = tokens[i]
        at = rng.randrange(1, len(word) - 1)
        slip = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        changed[i] = slip if rng.random() < 0.5 and slip != word else tokens[rng.choice(plain)]

    def edit(count: int) -> str:
        out = list(tokens)
        for i in order[:count]:
            out[i] = changed[i]
        return "".join(out)

    return edit
