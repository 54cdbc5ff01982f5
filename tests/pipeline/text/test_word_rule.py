"""The word rule and its table."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from corpusmill.pipeline.text import unicode_tables, word_rule
from corpusmill.pipeline.text.word_rule import (
    ALONE,
    CLASS_SHIFT,
    COMPOSED,
    HANGUL,
    JOIN,
    LETTER,
    MARK,
    SEPARATOR,
    SKIP,
)


def entry(character: str) -> tuple[int, str]:
    value = int(word_rule.rule().entries[ord(character)])
    return value >> CLASS_SHIFT, chr(value & ((1 << CLASS_SHIFT) - 1))


@pytest.mark.parametrize(
    ("character", "kind", "folded"),
    [
        ("a", LETTER, "a"), ("A", LETTER, "a"), ("7", LETTER, "7"), ("Σ", LETTER, "σ"),
        ("ς", LETTER, "σ"), ("ẞ", LETTER, "ß"), ("ı", LETTER, "ı"), ("٣", LETTER, "٣"),
        ("ж", LETTER, "ж"), ("Ж", LETTER, "ж"), ("²", LETTER, "²"), ("𝐀", LETTER, "𝐀"), ("𐐀", LETTER, "𐐨"),
        ("\u1100", LETTER, "\u1100"), ("\u1161", JOIN, "\u1161"), ("\u11a8", JOIN, "\u11a8"),
        ("\u0345", MARK, "ι"), ("\u0340", MARK, "\u0300"), ("\u2126", LETTER, "ω"), ("\u212a", LETTER, "k"),
        ("\uf900", ALONE, "豈"), ("≠", SEPARATOR, "="), ("한", HANGUL, "한"), ("漢", ALONE, "漢"), ("ひ", ALONE, "ひ"), ("カ", ALONE, "カ"),
        ("ก", ALONE, "ก"),
        ("𠀀", ALONE, "𠀀"), ("๓", LETTER, "๓"), ("\u0301", MARK, "\u0301"), ("\u0e34", MARK, "\u0e34"),
        ("\u00ad", SKIP, "\u00ad"), ("\u200d", SKIP, "\u200d"), ("\u200b", SEPARATOR, "\u200b"),
        ("_", SEPARATOR, "_"), ("'", SEPARATOR, "'"), (" ", SEPARATOR, " "), ("\u3000", SEPARATOR, "\u3000"),
        ("。", SEPARATOR, "。"), ("€", SEPARATOR, "€"), ("\x00", SEPARATOR, "\x00"),
        ("\ue000", SEPARATOR, "\ue000"),
    ],
)  # fmt: skip
def test_classes(character: str, kind: int, folded: str) -> None:
    assert entry(character) == (kind, folded)


@pytest.mark.parametrize(
    ("character", "parts"),
    [("É", "e\u0301"), ("ệ", "e\u0323\u0302"), ("İ", "i\u0307"), ("ᾼ", "αι"), ("が", "か\u3099"), ("\u0344", "\u0308\u0301")],
)  # fmt: skip
def test_composed_characters(character: str, parts: str) -> None:
    kind, row = entry(character)
    assert kind == COMPOSED
    pieces = word_rule.rule().pieces[ord(row)]
    found = [(int(p) >> CLASS_SHIFT, chr(int(p) & ((1 << CLASS_SHIFT) - 1))) for p in pieces]
    assert "".join(part for kind, part in found if kind != SKIP) == parts
    assert all(kind == MARK for kind, _ in found[1:] if kind != SKIP)


def test_table_is_what_the_rule_makes() -> None:
    if unicodedata.unidata_version != unicode_tables.VERSION:
        pytest.skip(
            f"this Python has Unicode {unicodedata.unidata_version}, the table is {unicode_tables.VERSION}"
        )
    built = word_rule.build()
    for made, packed in zip(built, word_rule.rule(), strict=True):
        np.testing.assert_array_equal(made, packed)
    assert unicode_tables.pack(built.entries, built.pieces) == word_rule.FILE.read_bytes()


def test_table_agrees_with_this_python_where_both_know_the_character() -> None:
    points = [
        p for p in range(0, unicode_tables.CODE_POINTS, 7) if word_rule.rule().entries[p] >> CLASS_SHIFT
    ]
    known = [p for p in points if unicodedata.category(chr(p)) != "Cn"]
    assert len(known) > 15_000
    plain = [p for p in known if unicodedata.normalize("NFD", chr(p)) == chr(p)]
    assert all(entry(chr(p))[0] == word_rule.classify(chr(p)) for p in plain)


def test_ascii_is_letters_and_separators_alone() -> None:
    """The scanners take every other ASCII character for a separator."""
    rule = word_rule.rule()
    kinds = rule.entries[:128] >> CLASS_SHIFT
    assert set(kinds.tolist()) == {LETTER, SEPARATOR}
    assert [chr(c) for c in rule.ascii if c] == list("0123456789" + "abcdefghijklmnopqrstuvwxyz" * 2)
