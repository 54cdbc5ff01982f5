"""Letters by script: the kernel against Python's own look at each character."""

from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers import scripts
from corpusmill.pipeline.filter.text.view import text_buffers


def counted(texts: list[str]) -> list[dict[str, int]]:
    """Script -> letters of each text."""
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    found = scripts.letters_by_script(data, offsets[:-1], offsets[1:], np.arange(len(offsets)))
    return [{scripts.SCRIPTS[n]: int(row[n]) for n in np.flatnonzero(row)} for row in found]


def test_scripts_of_real_words() -> None:
    texts = ["Straße 42", "вода water", "日本のカレー", "漢字 한국", "हिन्दी", "ქართული", "ℵ 123 !?", ""]
    assert counted(texts) == [
        {"Latin": 6}, {"Cyrillic": 4, "Latin": 5}, {"Han": 2, "Hiragana": 1, "Katakana": 3}, {"Han": 2, "Hangul": 2},
        {"Devanagari": 3}, {"Georgian": 7}, {}, {},
    ]  # fmt: skip


@given(st.lists(st.text(max_size=60), max_size=4))
def test_every_letter_of_a_listed_script_counts_once(texts: list[str]) -> None:
    table = scripts.table()
    for text, found in zip(texts, counted(texts), strict=True):
        assert sum(found.values()) == sum(table[ord(char)] > 0 for char in text)
        assert found.get("Latin", 0) == sum(
            unicodedata.category(char)[0] == "L" and unicodedata.name(char, "").startswith("LATIN")
            for char in text
        )


def test_pieces_of_a_document_are_added_up() -> None:
    data, _ = text_buffers(pa.array(["ab вг xyz"], pa.large_string()))
    first, last = np.array([0, 3, 8]), np.array([2, 7, 11])
    found = scripts.letters_by_script(data, first, last, np.array([0, 2, 2, 3]))
    assert found[:, 1].tolist() == [2, 0, 3] and found[:, 2].tolist() == [2, 0, 0]
