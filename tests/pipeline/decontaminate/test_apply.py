"""What is cut out of a text: exactly the edits, whole paragraphs or words, and nothing a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decontaminate.apply import Decontamination, cut_spans, rest
from pipeline.decontaminate.judge import MATCHES
from schemas.decontaminate import DecontaminateParams
from schemas.errors import WorkError
from tests.pipeline.corpus import Here, documents
from tests.pipeline.decontaminate.helpers import QUESTION, decontaminate, write_set
from tests.pipeline.lineage.edited import check_edits

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
