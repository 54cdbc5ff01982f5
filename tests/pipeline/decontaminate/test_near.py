"""Items of which words were changed, left out or put between: found by runs of five words, verified by alignment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.decontaminate.near_kernels import Seeds, align
from corpusmill.pipeline.decontaminate.near_matches import enough
from corpusmill.schemas.stages import DecontaminateParams
from tests.pipeline.decontaminate.helpers import ANSWER, FILLER, QUESTION, SHORT, decontaminate, write_set
from tests.pipeline.decontaminate.test_search import made

OTHER = ["umber", "zinc", "opal", "rhyme"]


def tenth(text: str, first: int = 9) -> str:
    return " ".join(OTHER[i % 4] if i % 10 == first else word for i, word in enumerate(text.split()))


def left_out(text: str) -> str:
    return " ".join(word for i, word in enumerate(text.split()) if i % 10 != 9)


def put_between(text: str) -> str:
    return " ".join(f"{word} {OTHER[i % 4]}" if i % 10 == 9 else word for i, word in enumerate(text.split()))


EDITS: dict[str, Any] = {
    "every tenth": tenth, "every tenth from the fourth": lambda text: tenth(text, 3), "left out": left_out,
    "put between": put_between, "capitals too": lambda text: tenth(text).upper().replace(" ", "\n"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_word_in_ten_may_differ(tmp_path: Path, riddles: Path, edit: str) -> None:
    text = FILLER * 3 + EDITS[edit](QUESTION) + " " + FILLER * 3
    ran = decontaminate(tmp_path / "run", [FILLER, text], riddles, threshold=0.99)
    assert ran.texts == [FILLER]
    (decision,) = ran.decisions
    assert (decision["rule"], decision["threshold"]) == ("decontaminate.near_question", 0.85)
    assert decision["value"] >= 0.85
    (match,) = ran.matches
    assert match["near"] and match["of"] == 27 and match["words"] / 27 == match["value"] == decision["value"]
    assert (
        f"{match['words']} of 27 words in order" in decision["detail"] and "llama" not in decision["detail"]
    )
    (span,) = match["spans"]
    passage = text[span["offset"] : span["offset"] + span["length"]]
    assert passage.split()[0].lower() == "two" and passage.split()[-1].lower() == "again"
    assert [row["drop"] for row in ran.touched] == [True]
    assert (ran.table["near"], ran.set("riddles")["worst"][0]["near"]) == (0.85, True)
    off = decontaminate(tmp_path / "off", [text], riddles, threshold=0.99, near=0)
    assert off.texts == [text] and off.table["index"]["seeds"] == 0


def test_the_share_that_is_asked_for(tmp_path: Path, riddles: Path) -> None:
    """Hits are noted from 0.7 on, so another share needs no other scan."""
    words = QUESTION.split()
    text = " ".join(
        "umber" if i in (7, 14, 15, 21, 22, 23) else word for i, word in enumerate(words)
    )  # 21 of 27
    for near, gone in ((0.7, True), (0.77, True), (0.78, False), (1, False)):
        assert (decontaminate(tmp_path / "run", [text], riddles, near=near).texts == []) is gone
    with pytest.raises(ValueError, match=r"near 0\.5 must be 0 \(off\), or 0\.7 or more"):
        DecontaminateParams(near=0.5)


def test_the_measures_of_other_tools_are_theirs_alone() -> None:
    shares = {name: DecontaminateParams.model_validate({"measure": name}).near_share for name in ("words", "ngrams", "paragraph")}  # fmt: skip
    assert shares == {"words": 0.85, "ngrams": 0.0, "paragraph": 0.0}
    assert DecontaminateParams(measure="ngrams", near=0.9).near_share == 0.9


@pytest.mark.parametrize(
    ("words", "of", "ok"),
    [(9, 10, True), (8, 10, False), (11, 12, True), (10, 13, False), (11, 13, True), (16, 20, True), (15, 20, False)],
)  # fmt: skip
def test_short_items_may_miss_less(words: int, of: int, ok: bool) -> None:
    assert enough(np.array([words]), np.array([of]), 0.8).tolist() == [ok]


def test_words_out_of_order_or_far_apart_are_no_copy(tmp_path: Path, riddles: Path) -> None:
    words = QUESTION.split()
    texts = [
        " ".join(word for i in range(0, 25, 5) for word in reversed(words[i : i + 5])),
        " ".join([*words[18:], *words[9:18], *words[:9]]),
        f" {FILLER} ".join(" ".join(words[i : i + 6]) for i in range(0, 27, 6)),
    ]
    ran = decontaminate(tmp_path / "run", texts, riddles, threshold=0.99)
    assert ran.texts == texts and not any(match["near"] for match in ran.matches)


def test_a_short_question_after_the_end_of_its_passage(tmp_path: Path) -> None:
    """BBQ: the passage alone is a page of the web like another; with the question after it, it is the item."""
    passage = (
        "I saw a grandson and their grandfather last week outside the market trying to book a cab on a phone."
    )
    row = {
        "context": passage,
        "question": "Who was forgetful?",
        "ans0": "The grandson",
        "ans1": "Nobody",
        "label": 1,
    }
    riddles = write_set(tmp_path / "evals", [row])
    texts = [
        f"{FILLER}{passage} {FILLER}",
        f"{FILLER}{passage} Who was forgetful? {FILLER}",
        f"{FILLER}Context: {passage}\n\nQuestion: Who was forgetful?\n{FILLER}",
        f"{FILLER}{tenth(passage)} Who was forgetful? {FILLER}",
    ]
    ran = decontaminate(tmp_path / "run", texts, riddles)
    assert ran.texts == texts[:1]
    assert {decision["rule"] for decision in ran.decisions} == {"decontaminate.near_question"}


@pytest.mark.parametrize(
    "shown",
    [
        "{q}\nA. {c[0]}\nB. {c[1]}\nC. {c[2]}\nD. {c[3]}", "{q} (A) {c[0]} (B) {c[1]} (C) {c[2]} (D) {c[3]}",
        "{q}\n{c[0]}\n{c[1]}\n{c[2]}\n{c[3]}", "QUESTION: {q}\n\na) {c[0]}\nb) {c[1]}\nc) {c[2]}\nd) {c[3]}\n",
    ],
)  # fmt: skip
def test_choices_make_up_for_a_short_question(tmp_path: Path, shown: str) -> None:
    question, choices = (
        "Which one is true?",
        ["the tin bell", "all of the glass owls", "old rope", "seven ripe quinces"],
    )
    riddles = write_set(tmp_path / "evals", [{"question": question, "choices": choices, "answer": 2}])
    text = FILLER + shown.format(q=question, c=choices) + "\n" + FILLER
    others = FILLER + shown.format(q=question, c=["one", "two", "three", "four"]) + "\n" + FILLER
    assert decontaminate(tmp_path / "run", [text, others], riddles).texts == [others]


def test_a_changed_short_question_needs_its_answer(tmp_path: Path) -> None:
    question = "Who of us now owns the old mill at the bay?"  # eleven short words
    riddles = write_set(tmp_path / "evals", [{"question": question, "answer": ANSWER}])
    changed = question.replace("now", "then")
    texts = [f"{FILLER}{changed} {ANSWER}.", f"{FILLER}{changed} Nobody knows."]
    assert decontaminate(tmp_path / "run", texts, riddles).texts == texts[1:]
    assert decontaminate(tmp_path / "short", [SHORT.replace("quince", "onion") + ANSWER], riddles).texts != []


def test_runs_without_a_letter_are_no_seeds(tmp_path: Path) -> None:
    numbers = " ".join(str(i) for i in range(20))
    riddles = write_set(tmp_path / "evals", [{"question": numbers}, {"question": QUESTION}])
    text = numbers.replace("9", "77")
    ran = decontaminate(tmp_path / "run", [text], riddles)
    assert ran.texts == [text] and ran.set("riddles")["unused"] == 1


def test_near_copies_in_too_many_documents_count_nowhere(tmp_path: Path, riddles: Path) -> None:
    texts = [f"{tenth(QUESTION)} {FILLER} {i}" for i in range(3)]
    assert decontaminate(tmp_path / "run", texts, riddles, max_documents=3).texts == []
    assert decontaminate(tmp_path / "run", texts, riddles, max_documents=2).texts == texts


def test_a_passage_with_changed_words_is_cut_as_a_whole(tmp_path: Path, riddles: Path) -> None:
    text = f"{FILLER * 3}{tenth(QUESTION)} {FILLER * 3}"
    ran = decontaminate(tmp_path / "run", [text], riddles, action="cut", span="window")
    assert ran.texts == [f"{FILLER * 3} {FILLER * 3}"]


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=40)
def test_it_is_found_in_any_text(tmp_path_factory: pytest.TempPathFactory, before: str, after: str) -> None:
    import pyarrow as pa

    from corpusmill.pipeline.decontaminate.near_kernels import sift
    from corpusmill.pipeline.text.buffers import view
    from corpusmill.pipeline.text.word_rule import rule

    index, _ = made(tmp_path_factory.getbasetemp() / "near", [QUESTION], ngram=13)
    before, after = (text.encode("utf-8", "replace").decode() for text in (before, after))
    text = f"{before}\n{tenth(QUESTION)}. {after}"
    offsets, data = view(pa.array([before, text], pa.large_string()))
    _, near = sift(offsets, data, rule(), index.table, index.seeds, 0.7)
    assert [row[:3] for row in near.tolist()] == [[1, 0, 25]]
    assert text.encode()[near[0, 3] : near[0, 4]].decode() == tenth(QUESTION)


def subsequence(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, the plain way."""
    rows = [[0] * (len(b) + 1)]
    for x in a:
        row = [0]
        for j, y in enumerate(b):
            row.append(rows[-1][j] + 1 if x == y else max(row[-1], rows[-1][j + 1]))
        rows.append(row)
    return rows[-1][-1]


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=8), st.lists(st.integers(0, 4), min_size=1, max_size=8)
)
def test_alignment_is_the_longest_common_subsequence(unit: list[int], text: list[int]) -> None:
    words = np.array(text, np.uint64) << np.uint64(48)
    none = np.zeros(0, np.uint64)
    seeds = Seeds(
        none, np.uint64(63), none, np.zeros(1, np.int32), np.uint64(63), np.zeros(1, np.int64), np.zeros(0, np.uint32),
        np.zeros(0, np.uint32), np.array(unit, np.uint16), np.array([0, len(unit)]), np.zeros(1, np.uint32),
        np.ones(len(unit), np.bool_),
    )  # fmt: skip
    matched, inner, first, last = align(seeds, 0, words, 0, len(text), 0)
    assert matched == inner == subsequence(unit, text)
    if matched:
        assert subsequence(unit, text[first : last + 1]) == matched
        assert text[first] in unit and text[last] in unit


def test_random_changes(tmp_path: Path) -> None:
    """Of words changed with a chance of one in ten, as many items are found as have at most a fifth of theirs changed."""
    draw = random.Random(7)
    vocabulary = [
        f"{a}{b}" for a in ("bra", "kel", "mun", "tor", "vis", "zed") for b in ("an", "eth", "il", "ok", "us")
    ]
    questions = [" ".join(draw.choice(vocabulary) for _ in range(40)) for _ in range(60)]
    riddles = write_set(tmp_path / "evals", [{"question": question} for question in questions])
    changed = [[draw.random() < 0.1 for _ in range(40)] for _ in questions]
    texts = [
        FILLER
        + " ".join("umber" if gone else word for word, gone in zip(question.split(), flags, strict=True))
        for question, flags in zip(questions, changed, strict=True)
    ]
    ran = decontaminate(tmp_path / "run", texts, riddles)
    least = sum(sum(flags) <= 6 for flags in changed)
    assert least > 50 and len(texts) - len(ran.texts) >= least - 2
