from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.filter.lists.word_lists import automaton, occurrences
from corpusmill.pipeline.filter.text.view import text_buffers
from corpusmill.pipeline.text.unicode_tables import joins_table, lower


def found(entries: list[str], texts: list[str], whole_words: bool = True) -> list[int]:
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    counts: list[int] = occurrences(automaton(sorted(entries)), data, offsets, whole_words).tolist()
    return counts


def plainly(entries: list[str], text: str, whole_words: bool = True) -> int:
    """Characters of `text` at which an entry ends, by looking everywhere."""
    text, joins = lower(text), joins_table()

    def apart(edge: str, beside: str) -> bool:
        return not beside or joins[ord(beside)] != 2 or joins[ord(edge)] == 1

    return sum(
        any(
            text[:end].endswith(entry)
            and (
                not whole_words
                or (apart(entry[0], text[: end - len(entry)][-1:]) and apart(entry[-1], text[end : end + 1]))
            )
            for entry in entries
        )
        for end in range(1, len(text) + 1)
    )


CHARS = st.sampled_from([*"abAB_ .$é中性グーЖж'\n0", "e\u0301", "İ", "ẞ", "K"])
ENTRY = st.lists(CHARS, min_size=1, max_size=4).map(lambda chars: lower("".join(chars)))


@settings(max_examples=300, deadline=None)
@given(
    entries=st.lists(ENTRY, min_size=1, max_size=6, unique=True),
    texts=st.lists(st.lists(CHARS, max_size=25).map("".join), max_size=3),
    whole_words=st.booleans(),
)
def test_as_looking_everywhere(entries: list[str], texts: list[str], whole_words: bool) -> None:
    assert found(entries, texts, whole_words) == [plainly(entries, text, whole_words) for text in texts]


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_text(texts: list[str]) -> None:
    entries = sorted({lower(text) for text in texts if text})
    assert found(entries, texts, whole_words=False) == [plainly(entries, text, False) for text in texts]


@settings(max_examples=200, deadline=None)
@given(
    entries=st.lists(st.text("ab$ ", min_size=1, max_size=4), min_size=1, max_size=5, unique=True),
    text=st.text("abAB$ .", max_size=20),
)
def test_as_the_expression_of_c4(entries: list[str], text: str) -> None:
    """`(\\W|^)w(\\W|$)`, as tensorflow_datasets and datatrove search for it."""
    expression = re.compile(r"(?:\W|^)({})(?:\W|$)".format("|".join(map(re.escape, entries))))
    assert (found(entries, [text])[0] > 0) == (expression.search(text.lower()) is not None)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Damn, DAMN! damn", 3), ("damnation goddamn", 0), ("damn_it", 0), ("a mild  oath", 0), ("A Mild Oath.", 1),
        ("中性的", 1), ("ПЛОХО", 1), ("плохой", 0), ("", 0),
    ],
)  # fmt: skip
def test_words_and_phrases(text: str, count: int) -> None:
    assert found(["damn", "mild oath", "性", "плохо"], [text]) == [count]


def test_no_entries() -> None:
    assert found([], ["a b", ""], whole_words=False) == [0, 0]
