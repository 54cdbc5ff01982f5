"""datatrove's simplified text: against Python's own `lower`, `normalize` and `re`."""

from __future__ import annotations

import random
import re
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.text import datatrove_simplify, unicode_tables
from corpusmill.pipeline.text.datatrove_shingles import simplified

TRANSLATION = str.maketrans(dict.fromkeys(datatrove_simplify.PUNCTUATION, " "))
NUMBER = re.compile(r"\d+([.,،٫⎖⎗⎘]\d+)?")
PIECES = "aBΣσ ΑΒ.,٫٣1234'’-İIıßẞ\u0301\u0316\u302e\U0001d165\U0001d16d𝅘𝅥𝅮\u1b44각\u0345ᾳ\u00ad\n\t\x00\x1c\x85\u2028\u1fef\u037e\u3000漢１😀ʰ:"

needs_same_unicode = pytest.mark.skipif(
    unicodedata.unidata_version != unicode_tables.VERSION,
    reason=f"this Python has Unicode {unicodedata.unidata_version}, the table is {unicode_tables.VERSION}",
)


def expected(text: str) -> str:
    text = re.sub(r"\s+", " ", NUMBER.sub("0", text.lower()).translate(TRANSLATION).strip())
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return " ".join(text.split())


def actual(texts: list[str]) -> list[str]:
    found: list[str] = simplified(pa.array(texts, pa.large_string())).to_pylist()
    return found


@needs_same_unicode
def test_table_is_what_this_python_makes() -> None:
    built = datatrove_simplify.build()
    for made, packed in zip(built, datatrove_simplify.simple(), strict=True):
        np.testing.assert_array_equal(made, packed)
    assert unicode_tables.pack(built.entries, built.pieces) == datatrove_simplify.FILE.read_bytes()


@needs_same_unicode
def test_every_character_among_others() -> None:
    characters = [chr(point) for point in range(0x110000)]
    characters = [c for c in characters if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    texts = [f"{c} a{c}Σ 1{c}2{c}3 Σ{c}b \U0001d16d{c}\u302e\U0001d165" for c in characters]
    found = actual(texts)
    assert [t for t, ours in zip(texts, found, strict=True) if ours != expected(t)] == []


def test_where_the_rules_meet() -> None:
    generator = random.Random(7)
    texts = ["".join(generator.choices(PIECES, k=generator.randint(0, 60))) for _ in range(20_000)]
    assert actual(texts) == [expected(text) for text in texts]


@needs_same_unicode
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=80), max_size=5))
def test_any_text(texts: list[str]) -> None:
    assert actual(texts) == [expected(text) for text in texts]


@given(st.binary(max_size=40))
def test_broken_utf8_does_not_read_past_the_text(data: bytes) -> None:
    found = []
    for after in (b"", b"\xbf1.5\xbf"):
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data + after)]
        found.append(bytes(simplified(pa.Array.from_buffers(pa.large_string(), 1, buffers))[0].as_buffer()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ΟΔΥΣΣΕΥΣ ΣΑΣ. ΑΣ'Α Σ", "οδυσσευς σας ασ α σ"), ("İstanbul ISI ı", "istanbul isi ı"), ("Straße ẞ", "straße ß"),
        ("3.14 1,000,000 ٣٫٥ 7⎖2⎖9 １２", "0 0 0 0 0⎖0 0"), ("1\u03012", "00"), ("don't x_y", "don t x y"),
        ("Résumé \u0301 déjà", "resume deja"), ("\u1fef", "`"), ("각", "\u1100\u1161\u11a8"), ("a\u200bb", "a\u200bb"),
    ],
)  # fmt: skip
def test_what_it_gives(text: str, words: str) -> None:
    assert actual([text]) == [words]
