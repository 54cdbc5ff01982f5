"""The tools' own values, recorded from their own code, and any text at all against a slow reading."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.apply import signals_of_text
from corpusmill.pipeline.filter.rules.sets import rule_set
from corpusmill.pipeline.filter.signals.catalogue import every_spec, text_specs
from corpusmill.pipeline.filter.signals.contractions import exceptions
from corpusmill.pipeline.filter.signals.segments import (
    BLANK_LINES,
    NEWLINE,
    NEWLINES,
    SPLITLINES,
    TWO_NEWLINES,
    segments,
)
from corpusmill.pipeline.filter.signals.spacy_words import split
from corpusmill.pipeline.filter.signals.white_words import white_words
from corpusmill.pipeline.filter.text.view import TextView, once, text_buffers, view_of
from tests.pipeline.filter.variants import oracle

FAMILIES = (
    "gopher_datatrove",
    "gopher_dolma",
    "gopher_dclm",
    "gopher_nemo",
    "c4_datatrove",
    "fineweb_datatrove",
)
SETS = ("gopher@datatrove", "gopher@dolma", "gopher@dclm", "gopher@nemo", "c4@datatrove", "fineweb@datatrove")
SPECS = {spec.name: spec for spec in every_spec() if spec.name.split(".")[0] in FAMILIES}
CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))

PIECES = [
    "a", "b", "the", "The", "of", "of,", "word", "Word.", "don't", "it’s", "U.S.", "e.g.", "5km", "state-of-the-art",
    "a,b", "x:y", "3.5", "#", "##", "#a#", "...", "…", ". . .", "[...]", "-", "•", "●", "*", "‣", "read more", "Read More",
    "http://a.b/c", "me@x.org", ":)", "“so!”", "(x)", "é", "e\u0301", "日本語", "カタカナ", "한국어", "١٢", "ไทย", "_", "a_b",
    "[1]", "[edit]", "{", "lorem ipsum", "javascript", "terms of use", "one two three four five six. ",
    "\n", "\n", "\n\n", "\n\n\n", " ", " ", " ", "  ", "\t", "\r\n", "\u2028", "\u00a0", "\x1c", "\x85", "\x0b", "\x00", "\x00the",
    "\ufeff", "\u200d", "😀", "\U0010ffff",
]  # fmt: skip
texts = (
    st.lists(st.sampled_from(PIECES), max_size=50).map("".join)
    | st.lists(st.sampled_from(["a", "b", "cc", "\n", "a."]), max_size=60).map(" ".join)
    | st.text(max_size=150)
)


def measured(given_texts: list[str]) -> dict[str, list[float]]:
    columns = signals_of_text(pa.array(given_texts, pa.large_string()), set(SPECS))
    return {name: columns[name].to_pylist() for name in SPECS}


@lru_cache(maxsize=1)
def golden() -> dict[str, list[float]]:
    return measured([case["text"] for case in CASES])


def check(found: dict[str, list[float]], row: int, family: str, expected: dict[str, float]) -> None:
    wrong = {
        name: (found[f"{family}.{name}"][row], value)
        for name, value in expected.items()
        if not math.isclose(found[f"{family}.{name}"][row], value, rel_tol=1e-6, abs_tol=1e-9)
    }
    assert not wrong


@pytest.mark.parametrize("row", range(len(CASES)), ids=[case["name"] for case in CASES])
def test_values_are_those_of_the_tools_own_code(row: int) -> None:
    case = CASES[row]
    assert len(case["values"]) > 50
    wrong = {
        name: (golden()[name][row], value)
        for name, value in case["values"].items()
        if not math.isclose(golden()[name][row], value, rel_tol=1e-6, abs_tol=1e-9)
    }
    assert not wrong


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_words_are_those_of_spacy(case: dict[str, Any]) -> None:
    assert split(case["text"]) == case["words"]


def test_later_copies_or_all_copies() -> None:
    # Ten lines, two of them twice: .20 are later copies (datatrove, NeMo), .40 are copies (Dolma, DCLM).
    row = next(i for i, case in enumerate(CASES) if case["name"] == "ten lines, two of them twice")
    assert golden()["gopher_datatrove.dup_line_frac"][row] == pytest.approx(0.2)
    assert golden()["gopher_nemo.unique_line_frac"][row] == pytest.approx(0.8)
    assert golden()["gopher_dolma.dup_line_frac"][row] == pytest.approx(0.4)
    assert golden()["gopher_dclm.dup_line_frac"][row] == pytest.approx(0.4)
    # So of three copies in ten lines two tools keep the page and two do not.
    text = "\n".join([*(f"a line of its own, number {i}" for i in range(7)), *["once more"] * 3])
    found = measured([text])
    assert found["gopher_datatrove.dup_line_frac"] == pytest.approx([0.2])
    assert found["gopher_dclm.dup_line_frac"] == found["gopher_dolma.dup_line_frac"] == pytest.approx([0.3])


def test_dclm_by_hand() -> None:
    found = measured(["This is a test. This is a test.", "Don't stop: it's 3.5 o'clock_now — 日本 ok", "x"])
    # 8 words of 4, 2, 1, 4 letters twice: "This is" and "a test" ... the longest of the 2-grams that come twice.
    assert found["gopher_dclm.top_2_gram"][0] == pytest.approx(12 / 22)
    assert found["gopher_dclm.top_4_gram"][0] == pytest.approx(1)
    assert found["gopher_dclm.dup_5_gram"][0] == 0
    # Don't, stop, it's, 3.5, o'clock_now, 日, 本, ok
    assert found["gopher_dclm.word_count"][1] == 8
    assert found["gopher_dclm.dup_line_frac"][2] == found["gopher_dclm.top_2_gram"][2] == 0


@given(texts)
def test_dolma_dclm_and_nemo_equal_the_slow_way(text: str) -> None:
    found = measured([text])
    check(found, 0, "gopher_dolma", oracle.dolma(text))
    check(found, 0, "gopher_dclm", oracle.dclm(text))
    check(found, 0, "gopher_nemo", oracle.nemo(text))


@given(texts)
def test_datatrove_repetition_equals_the_slow_way(text: str) -> None:
    words = split(text)
    assert "".join(words) == "".join(text.split())
    check(measured([text]), 0, "gopher_datatrove", oracle.datatrove_repetition(text, words))


@given(st.lists(texts, max_size=6), st.data())
def test_values_are_in_range_and_a_document_is_measured_alone(batch: list[str], data: st.DataObject) -> None:
    together = measured(batch)
    for name, spec in SPECS.items():
        low, high = spec.range
        for value in together[name]:
            assert (
                math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
            ), name
    cut = data.draw(st.integers(0, len(batch)))
    longer = pa.array(["before", *batch], pa.large_string())
    parts = [signals_of_text(part, set(SPECS)) for part in (longer.slice(1, cut), longer.slice(1 + cut))]
    for name, values in together.items():
        assert values == [value for part in parts for value in part[name].to_pylist()]


@given(texts)
def test_segments_are_what_python_cuts(text: str) -> None:
    import re

    raw = np.frombuffer(text.encode(), np.uint8)
    offsets = np.array([0, len(raw)], np.int64)
    expected = {
        SPLITLINES: text.splitlines(),
        NEWLINE: text.split("\n"),
        NEWLINES: re.split("\n+", text),
        BLANK_LINES: re.split("\n{2,}", text.strip()),
        TWO_NEWLINES: text.split("\n\n"),
    }
    for how, parts in expected.items():
        found = segments(raw, offsets, how)
        cut = [bytes(raw[a:b]).decode() for a, b in zip(found.starts, found.ends, strict=True)]
        assert cut == parts
        assert found.chars.tolist() == [len(part) for part in parts]
        bare = segments(raw, offsets, how, strip=True, blank=False)
        cut = [bytes(raw[a:b]).decode() for a, b in zip(bare.starts, bare.ends, strict=True)]
        assert cut == [part.strip() for part in parts if part.strip()]


def test_long_texts_take_linear_time() -> None:
    # A word of 100,000 letters three times over, brackets and full stops without end: nothing goes quadratic.
    hard = [
        "a" * 100_000 + " " + "a" * 100_000 + " b",
        "(" * 200_000,
        "." * 200_000,
        "a@" * 50_000,
        "'" * 100_000,
    ]
    found = measured(hard)
    assert found["gopher_datatrove.word_count"][0] == 3
    assert all(math.isfinite(value) for values in found.values() for value in values)


def test_datatrove_takes_citations_out_in_the_digits_of_all_scripts() -> None:
    texts = [
        "So it is said.[١٢]",
        "So it is said.[1][]",
        "So it is said.[½]",
        "So it is said.[Edit]",
        "So it is said.[1",
    ]
    assert measured(texts)["c4_datatrove.kept_lines"] == [1, 1, 0, 0, 0]


def test_what_signals_share_is_computed_once_for_a_view() -> None:
    views = [view_of(*text_buffers(pa.array([text], pa.large_string()))) for text in ("a b", "c")]
    asked: list[int] = []

    @once
    def words(view: TextView) -> int:
        asked.append(len(asked))
        return int(view.words[0])

    assert [words(view) for view in (*views, *views)] == [2, 1, 2, 1]
    assert asked == [0, 1]
    assert white_words(views[0]) is white_words(views[0])


def test_they_cost_nothing_unless_a_rule_asks() -> None:
    assert SPECS and not set(SPECS) & {spec.name for spec in text_specs()}
    asked = {"gopher_dolma.word_count"}
    assert set(SPECS) & {spec.name for spec in text_specs(asked)} == asked


@pytest.mark.parametrize("name", SETS)
def test_rule_sets_look_at_their_own_signals(name: str) -> None:
    rules = rule_set(name).rules
    assert {rule.signal for rule in rules} <= set(SPECS)
    family = name.replace("@", "_")
    assert {rule.signal.split(".")[0] for rule in rules} == {family}
    if name.startswith("gopher"):
        assert {rule.signal for rule in rules} == {
            signal for signal in SPECS if signal.startswith(f"{family}.")
        }


def test_the_known_words_join_to_themselves() -> None:
    forms = exceptions()
    assert len(forms) > 1200
    for form in forms:
        assert split("".join(form)) == list(form)


def test_datatrove_joins_the_words_of_duplicate_ngrams() -> None:
    # "a bc d e f" and "ab c d e f" are one and the same to it.
    found = measured(["a bc d e f ab c d e f", "a bc d e f xb c d e f"])
    assert found["gopher_datatrove.dup_5_gram"] == pytest.approx([6 / 21, 0])
