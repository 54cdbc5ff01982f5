"""Exact match, SQuAD's script, numbers in texts, and pass@k."""

from __future__ import annotations

import re
import string
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.train.evaluate.metrics.answers import (
    ANSWER_METRICS,
    answer_words,
    exact_match,
    last_number,
    number,
    pass_at_k,
    same_number,
    squad_exact,
    squad_f1,
    strict_answer,
)


def official_normalisation(text: str) -> str:
    """`normalize_answer` of the script of SQuAD 1.1, as published."""

    def remove_articles(text: str) -> str:
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text: str) -> str:
        return " ".join(text.split())

    def remove_punc(text: str) -> str:
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(text.lower())))


WORDS = st.lists(
    st.sampled_from(
        ["the", "a", "An", "cat,", "cats.", "dog-house", "U.S.", "1,000", "Éé", "ß", "theatre", ","]
    ),
    max_size=7,
).map(" ".join)


@given(st.text() | WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_squad_is_the_official_script(text: str, references: list[str]) -> None:
    assert answer_words(text) == official_normalisation(text).split()
    wanted = [official_normalisation(one) for one in references]
    mine = official_normalisation(text)
    assert squad_exact(text, references) == float(mine in wanted)
    best = 0.0
    for one in wanted:
        same = sum((Counter(mine.split()) & Counter(one.split())).values())
        if same:
            precision, recall = same / len(mine.split()), same / len(one.split())
            best = max(best, 2 * precision * recall / (precision + recall))
        elif not mine and not one:
            best = 1.0  # as the script of SQuAD 2.0 has it for questions without an answer
    assert squad_f1(text, references) == pytest.approx(best)


def test_exact_match_ignores_white_space_around() -> None:
    assert exact_match(" Paris\n", ["paris", "Paris"]) == 1 and exact_match("paris.", ["paris"]) == 0


def test_numbers_are_found_as_in_gsm8k() -> None:
    """The last one, or the one after ####; the cases are texts of models."""
    for text, strict, flexible in (
        ("So he has 5 + 7 = 12 apples.\n#### 12", "12", "12"),
        ("#### 1,200 and #### 7", "1,200", "7"),
        ("It costs $3.50.", None, "$3.50."),
        ("minus: -42", None, "-42"),
        ("####12 is not it", None, "12"),
        ("no number", None, None),
        ("#### $5", None, "$5"),
        ("a 7", None, "7"),
    ):
        assert (strict_answer(text), last_number(text)) == (strict, flexible), text


def test_the_value_of_a_number() -> None:
    for text, value in (
        ("1,000.50", "1000.5"), ("$3.50.", "3.5"), ("-42", "-42"), ("007", "7"), (" 1 000", "1000"), ("3.", "3"), (".5", "0.5"),
    ):  # fmt: skip
        assert number(text) == Decimal(value)
    for text in ("", "...", "1.2.3", "-", "twelve", None, "nan", "inf"):
        assert number(text) is None
    assert same_number("1,000.0", "1000") == 1 and same_number("-1", "1") == 0 and same_number(None, "1") == 0
    solution = "She has 48 / 2 = 24. 48 + 24 = 72\n#### 72"
    assert ANSWER_METRICS["number_flexible"]("The answer is 72.", [solution]) == 1
    assert ANSWER_METRICS["number_strict"]("The answer is 72.", [solution]) == 0
    assert ANSWER_METRICS["number_strict"]("#### 72.00", [solution]) == 1


@given(st.integers(1, 400), st.data())
def test_pass_at_k_is_the_quotient_of_binomials(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-12)


def test_pass_at_k_of_impossible_numbers_is_refused() -> None:
    for n, c, k in ((5, 6, 1), (5, 2, 6), (5, 2, 0), (5, -1, 1)):
        with pytest.raises(ValueError, match=rf"pass@{k} of {n} samples of which {c} passed"):
            pass_at_k(n, c, k)
