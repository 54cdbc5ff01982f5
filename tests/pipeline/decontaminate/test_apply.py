"""What is cut out of a text: exactly the edits, whole paragraphs or words, and nothing a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import text_hash
from corpusmill.pipeline.decontaminate.stage import Decontamination, cut_spans, rest
from corpusmill.schemas.stages import DecontaminateParams
from corpusmill.schemas.tables import MATCHES
from tests.pipeline.corpus import Here, documents
from tests.pipeline.decontaminate.helpers import ANSWER, FILLER, QUESTION, SHORT, decontaminate, write_set
from tests.pipeline.inspect.lineage.edited import check_edits

TEXT = st.text(st.sampled_from("ab é日🦙\n \t.") | st.characters(), max_size=80)


def match(spans: list[tuple[int, int]], part: str = "question", doc: bytes = b"") -> dict[str, Any]:
    return {
        "doc_id": doc, "source": "web", "unit": 0, "set": "s", "item": "1", "items": 1, "part": part, "matched": 1, "grams": 1,
        "words": 13, "of": 13, "value": 1.0, "found": True, "acts": True,
        "spans": [{"offset": a, "length": b - a} for a, b in spans],
    }  # fmt: skip


@given(
    TEXT, st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)), min_size=1, max_size=5), st.booleans()
)
def test_cuts_hold_the_spans_and_the_rest_is_the_text(
    text: str, wanted: list[tuple[int, int]], window: bool
) -> None:
    spans = [(a % len(text), min(len(text), a % len(text) + n)) for a, n in wanted if text]
    if not spans:
        return
    cuts = cut_spans(text, [match([span]) for span in spans], "window" if window else "paragraph")
    edges = [edge for start, stop, _ in cuts for edge in (start, stop)]
    assert edges == sorted(set(edges)) and edges[0] >= 0 and edges[-1] <= len(text)
    for start, stop in spans:
        assert any(a <= start and stop <= b for a, b, _ in cuts)
    assert len("".join(text[a:b] for a, b in rest(cuts, len(text)))) == len(text) - sum(
        b - a for a, b, _ in cuts
    )


def test_the_stronger_of_two_that_meet_is_named() -> None:
    text = "one two three four five\n\nsix\n\nseven eight nine"
    cuts = cut_spans(text, [match([(8, 13)], "answer"), match([(0, 3), (31, 36)])], "paragraph")
    assert cuts == [(0, 25, "answer"), (30, len(text), "question")]
    assert "".join(text[a:b] for a, b in rest(cuts, len(text))) == "six\n\n"


@pytest.mark.parametrize(("gap", "cuts"), [(200, [(0, 218)]), (201, [(0, 9), (210, 219)])])
def test_up_to_200_characters_between_two_windows_are_cut_too(gap: int, cuts: list[tuple[int, int]]) -> None:
    found = cut_spans("a" * 300, [match([(0, 9), (9 + gap, 18 + gap)])], "window")
    assert [(start, stop) for start, stop, _ in found] == cuts


WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "FIVE", "\n\n", "six.", "é"]), max_size=40)


@settings(max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=4), st.sampled_from(["window", "paragraph"]))
def test_a_second_pass_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], span: str
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    riddles = write_set(
        folder / "evals", [{"question": "one two three four five six"}, {"question": "two one é"}]
    )
    options: dict[str, Any] = {"action": "cut", "span": span, "ngram": 4, "min_words": 3, "min_left": 2}
    given_texts = [" ".join(words) for words in texts]
    ran = decontaminate(folder / "one", given_texts, riddles, **options)
    ids = documents(given_texts)["doc_id"].to_pylist()
    for decision in ran.decisions:
        text = given_texts[ids.index(decision["doc_id"])]
        for edit in reversed(decision["edits"]):
            text = text[: edit["offset"]] + text[edit["offset"] + edit["length"] :]
        if decision["outcome"] == "kept":
            assert text == ran.texts[ran.kept["doc_id"].to_pylist().index(decision["doc_id"])]
            check_edits(given_texts[ids.index(decision["doc_id"])], text, decision["edits"])
    again = decontaminate(folder / "two", ran.kept, riddles, **options)
    assert again.decisions == [] and again.texts == ran.texts


def test_cut_paragraphs(tmp_path: Path, riddles: Path) -> None:
    before, after = "Grüße 👋 " + FILLER * 2, FILLER * 2
    text = f"{before}\n\nHe said: {QUESTION}. Then he left.\n \n{after}"
    ran = decontaminate(tmp_path / "run", [text, FILLER * 9], riddles, action="cut")
    assert ran.texts == [f"{before}\n\n{after}", FILLER * 9]
    assert ran.kept["text_hash"].to_pylist()[0] == text_hash(ran.texts[0])
    (decision,) = ran.decisions
    assert (decision["outcome"], decision["rule"]) == ("kept", None)
    (edit,) = decision["edits"]
    assert edit["kind"] == "decontaminate.question"
    assert text[: edit["offset"]] + text[edit["offset"] + edit["length"] :] == ran.texts[0]
    again = decontaminate(tmp_path / "again", ran.kept, riddles, action="cut")
    assert again.decisions == [] and again.texts == ran.texts


def test_what_is_left_of_a_cut_text_may_hold_what_too_many_documents_hold(tmp_path: Path) -> None:
    common = QUESTION.replace("llamas", "mules").replace("baskets", "jars").replace("Tuesday", "Friday")
    riddles = write_set(tmp_path / "evals", [{"question": QUESTION}, {"question": common}])
    text = f"{QUESTION}\n\n{common}\n\n{FILLER}"
    others = [f"{FILLER}{common} {i}" for i in range(4)]
    ran = decontaminate(tmp_path / "run", [text, *others], riddles, action="cut", max_documents=4)
    assert ran.texts == [f"{common}\n\n{FILLER}", *others]


def test_cut_windows(tmp_path: Path, riddles: Path) -> None:
    text = f"{FILLER * 2}He said: {QUESTION}. Then he left. {FILLER}"
    ran = decontaminate(tmp_path / "run", [text], riddles, action="cut", span="window")
    assert ran.texts == [text.replace(QUESTION, "")]


def test_a_text_that_is_cut_to_nothing_goes(tmp_path: Path, riddles: Path) -> None:
    ran = decontaminate(tmp_path / "run", [f"He said: {QUESTION}."], riddles, action="cut")
    (decision,) = ran.decisions
    assert (decision["outcome"], decision["rule"], decision["value"]) == (
        "removed",
        "decontaminate.too_short",
        0,
    )


def test_a_cut_that_makes_a_new_match_removes_the_document(tmp_path: Path, riddles: Path) -> None:
    head, tail = QUESTION.split()[:11], QUESTION.split()[11:]
    inner = FILLER.strip() + " " + SHORT + " " + ANSWER
    text = f"{FILLER * 3}{' '.join(head)}\n\n{inner}\n\n{' '.join(tail[:12])} {FILLER}"
    ran = decontaminate(tmp_path / "run", [text], riddles, action="cut")
    assert ran.texts == [] and ran.decisions[0]["rule"] == "decontaminate.question"


def test_matches_of_other_documents_are_refused() -> None:
    matches = pa.Table.from_pylist([match([(0, 1)], doc=b"x" * 16)], schema=MATCHES)
    with pytest.raises(WorkError, match="made for other documents"):
        Decontamination(DecontaminateParams(), matches, "00000")(documents(["a"]))


@pytest.mark.parametrize("after", range(6))
def test_a_killed_run_goes_on(tmp_path: Path, after: int) -> None:
    riddles = write_set(tmp_path / "evals", [{"question": QUESTION}])
    texts = ["a", QUESTION, f"b {QUESTION}", "c"]
    whole = decontaminate(tmp_path / "whole", texts, riddles, 3)
    with pytest.raises(KeyboardInterrupt):
        decontaminate(tmp_path / "run", texts, riddles, 3, Here(stop_after=after))
    resumed = decontaminate(tmp_path / "run", texts, riddles, 3)
    assert resumed.files == whole.files and resumed[:4] == whole[:4]
