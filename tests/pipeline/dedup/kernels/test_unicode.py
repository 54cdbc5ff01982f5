"""The word rule and its table."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from pipeline.dedup.kernels import unicode
from pipeline.dedup.kernels.unicode import ALONE, CLASS_SHIFT, LETTER, MARK, SEPARATOR, SKIP


def entry(character: str) -> tuple[int, str]:
    value = int(unicode.table()[ord(character)])
    return value >> CLASS_SHIFT, chr(value & ((1 << CLASS_SHIFT) - 1))


@pytest.mark.parametrize(
    ("character", "kind", "folded"),
    [
        ("a", LETTER, "a"), ("A", LETTER, "a"), ("7", LETTER, "7"), ("É", LETTER, "é"), ("Σ", LETTER, "σ"),
        ("ς", LETTER, "σ"), ("ẞ", LETTER, "ß"), ("İ", LETTER, "i"), ("ı", LETTER, "ı"), ("٣", LETTER, "٣"),
        ("ж", LETTER, "ж"), ("Ж", LETTER, "ж"), ("²", LETTER, "²"), ("𝐀", LETTER, "𝐀"), ("𐐀", LETTER, "𐐨"),
        ("한", LETTER, "한"), ("漢", ALONE, "漢"), ("ひ", ALONE, "ひ"), ("カ", ALONE, "カ"),
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


def test_table_is_what_the_rule_makes() -> None:
    if unicodedata.unidata_version != unicode.VERSION:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}, the table is {unicode.VERSION}")
    built = unicode.build()
    np.testing.assert_array_equal(built, unicode.table())
    assert unicode.pack(built) == unicode.FILE.read_bytes()


def test_table_agrees_with_this_python_where_both_know_the_character() -> None:
    points = [p for p in range(0, unicode.CODE_POINTS, 7) if unicode.table()[p] >> CLASS_SHIFT]
    known = [p for p in points if unicodedata.category(chr(p)) != "Cn"]
    assert len(known) > 15_000
    assert all(entry(chr(p))[0] == unicode.classify(chr(p)) for p in known if p < 0x2000)
