"""Pieces are the library's, on every code point in the places where its class matters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from tokenizers import Regex, normalizers, pre_tokenizers

from corpusmill.pipeline.bpe.classes import CODE_POINTS, EXPRESSIONS, characters, classes
from corpusmill.pipeline.bpe.kernels.scan import cut_texts
from corpusmill.pipeline.bpe.load import Bpe
from tests.pipeline.bpe.vocabularies import FORMS, nasty, trained


def pieces(bpe: Bpe, text: str) -> list[int]:
    """Where pieces end, in bytes."""
    assert bpe.engine is not None
    data = np.frombuffer(text.encode(), np.uint8)
    ends = np.empty(len(data), np.int64)
    steps = np.array(bpe.engine.reading.steps, np.int64).reshape(-1, 2)
    bounds = np.array([0, len(data)], np.int64)
    return ends[: cut_texts(data, bounds, steps, classes(bpe.engine.reading.classes), ends)].tolist()


def of_library(bpe: Bpe, text: str) -> list[int]:
    """The same from its pre-tokenizer, whose pieces are in the byte-level alphabet: a character a byte."""
    parts = bpe.tokenizer.pre_tokenizer.pre_tokenize_str(text)
    return np.cumsum([len(part) for part, _ in parts], dtype=np.int64).tolist()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60)
@given(text=nasty())
def test_pieces_are_the_librarys(form: str, text: str) -> None:
    assert pieces(trained(form), text) == of_library(trained(form), text)


PLACES = (
    "{0}",
    "a{0}",
    "A{0}a",
    "'{0}",
    "'r{0} 'l{0}",
    " {0}",
    "1{0}2",
    "!{0}",
    "\n{0} ",
    "{0}'S",
    "{0}{0}b",
    "\u0301{0}A",
)


# Of these a character's class can be seen: they part letters and marks, digits, ideographs, punctuation, and the rest.
FEW_PLACES = ("{0}{0}b", "!{0}", "1{0}2")


def check(form: str, text: str, places: Sequence[str] = PLACES) -> None:
    """Every character of `text` in every one of the places."""
    bpe = trained(form)
    for start in range(0, len(text), 256):  # the library's offsets cost their square
        for place in places:
            line = "\x00".join(place.format(char) for char in text[start : start + 256])
            if pieces(bpe, line) != of_library(bpe, line):
                wrong = [
                    c
                    for c in text[start : start + 256]
                    if pieces(bpe, place.format(c)) != of_library(bpe, place.format(c))
                ]
                raise AssertionError(
                    f"{form}, {place!r}: {[hex(ord(char)) for char in wrong[:20]]}, or in their midst"
                )


@pytest.mark.parametrize("form", ["gpt2", "llama3", "gpt4o", "deepseek", "gpt2 single"])
def test_every_character_of_the_first_scripts(form: str) -> None:
    check(form, characters()[:0x800] + characters()[0x2000:0x2100] + characters()[0x3000:0x3100])


@pytest.mark.parametrize("form", ["gpt2", "llama3", "gpt4o", "deepseek"])  # one of each way to cut
def test_characters_of_all_categories(form: str) -> None:
    check(form, thinned(characters()))


def test_every_character() -> None:
    """DeepSeek's form alone names ranges of ideographs."""
    check("deepseek", thinned(characters(), ("Cn", "Co")), FEW_PLACES)


def test_characters_that_are_not_assigned_are_of_no_class() -> None:
    """Those that `classes` does not ask about."""
    points = set(range(CODE_POINTS)) - set(range(0xD800, 0xE000)) - set(map(ord, characters()))
    beyond = "".join(map(chr, sorted(points)))
    assert len(beyond) > 0xC0000
    for expression in EXPRESSIONS.values():
        assert normalizers.Replace(Regex(f"[^{expression}]+"), "").normalize_str(beyond) == ""
    digits = pre_tokenizers.Digits(individual_digits=True)
    pieces = (beyond[start : start + 1024] for start in range(0, len(beyond), 1024))
    assert all(len(digits.pre_tokenize_str(f"a{piece}a")) == 1 for piece in pieces)
    check("deepseek", beyond[::0x1001] + beyond[-1], FEW_PLACES)


def thinned(text: str, categories: Sequence[str] = ()) -> str:
    """Of more than 128 neighbours of one category (of one of these, if there are any) every 16th, and both ends."""
    runs = [(category, "".join(run)) for category, run in groupby(text, unicodedata.category)]
    return "".join(
        run[:8] + run[8:-8:16] + run[-8:]
        if len(run) > 128 and category in (categories or [category])
        else run
        for category, run in runs
    )
