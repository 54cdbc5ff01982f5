"""What the kernels find is what a plain search finds, in any text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate import index as indexes
from corpusmill.pipeline.decontaminate.evalsets import find_files
from corpusmill.pipeline.decontaminate.matches import find_hits, judge
from corpusmill.pipeline.decontaminate.near_kernels import sift
from corpusmill.pipeline.decontaminate.ngram_kernels import matches
from corpusmill.pipeline.text.buffers import view
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.schemas.stages import NEAR_FLOOR, DecontaminateParams
from tests.pipeline.decontaminate.helpers import write_set
from tests.pipeline.decontaminate.reference import covered, share, words

VOCABULARY = ["one", "Two", "drei", "É", "日", "7", "x"]
WORDS = st.lists(st.sampled_from(VOCABULARY), max_size=24)
GLUE = st.sampled_from([" ", ", ", "\n", " \n\n ", "-", " … "])
PARAMS = {"ngram": 5, "min_words": 3, "max_items": 1000}


def made(folder: Path, questions: list[str], **params: object) -> tuple[indexes.Index, DecontaminateParams]:
    against = str(write_set(folder / "evals", [{"question": q} for q in questions]))
    own = DecontaminateParams.model_validate({"against": [against], **PARAMS, **params})
    home = Folder(folder / "index")
    home.delete()
    indexes._load.cache_clear()
    indexes.build(home, "key", find_files(own.against), own)
    return indexes.load(home, "key", own), own


@settings(max_examples=60)
@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.lists(st.lists(st.tuples(WORDS, GLUE), max_size=4), min_size=1, max_size=5),
)
def test_as_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, questions: list[list[str]], texts: list[list[tuple[list[str], str]]]
) -> None:  # fmt: skip
    asked = [" ".join(q) for q in questions if len(q) >= 3 and any(w != "7" for w in q)]
    asked.append("alpha beta gamma delta epsilon zeta")  # so that there is something to look for
    index, params = made(tmp_path_factory.mktemp("search"), asked)
    given_texts = [glue.join(w) + glue for text in texts for w, glue in [*text, ([], " ")]]
    array = pa.array(["".join(given_texts), *given_texts], pa.large_string()).slice(1)
    hits, _ = find_hits(array, index)
    judged = judge(hits, index, params, np.zeros(len(index.table.keys), bool))
    found = {
        (row, index.units["items"][unit][0].as_py()): (matched / grams, value)
        for row, unit, matched, grams, value in zip(
            *(judged[name].tolist() for name in ("row", "unit", "matched", "grams", "value")), strict=True
        )
    }
    distinct = [
        q for i, q in enumerate(asked) if [w.hash for w in words(q)] not in [[w.hash for w in words(o)] for o in asked[:i]]
    ]  # fmt: skip
    for row, text in enumerate(array.to_pylist()):
        for item, question in enumerate(distinct):
            if "7 7 7" in question:  # runs without a letter are left out
                continue
            wanted = share(question, text, 5), covered(question, text, 5)
            assert found.get((row, item), (0.0, 0.0)) == pytest.approx(wanted), (question, text)


@given(st.text(max_size=200))
def test_any_text_is_searched(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    index, _ = made(tmp_path_factory.getbasetemp() / "any", ["one two three four five six seven"])
    text = text.encode("utf-8", "replace").decode()
    array = pa.array([text, f"{text}. One-two three, FOUR five! six seven? {text}"], pa.large_string())
    hits, _ = find_hits(array, index)
    mine = hits["row"] == 1
    assert set(hits["gram"][mine].tolist()) >= {0, 1, 2}
    whole = f"{text}. One-two three, FOUR five! six seven? {text}"
    for start, stop in zip(hits["start"][mine].tolist(), hits["stop"][mine].tolist(), strict=True):
        assert len(words(whole[start:stop])) == 5


@pytest.mark.parametrize("before", [0, 1, 12, 4070, 4075, 4080, 4085, 4090, 4095, 4096, 4100, 8180, 8192])
def test_items_across_the_edges_of_chunks(tmp_path: Path, before: int) -> None:
    long, short = "one two three four five six seven", "kilo lima mike november"
    index, _ = made(tmp_path, [long, short])
    for item in (long, short):
        for after in (0, 3, 50):
            text = pa.array([f"{'x ' * before}{item}{' y' * after}", "x " * before], pa.large_string())
            offsets, data = view(text)
            holding, _ = sift(offsets, data, rule(), index.table, index.seeds, NEAR_FLOOR)
            assert holding.tolist() == [True, False]
            assert len(matches(offsets, data, np.array([0]), rule(), index.table)) == (
                3 if item == long else 1
            )


def test_key_and_check_must_agree(tmp_path: Path) -> None:
    """A run whose key is in the index, but not its check, is not found."""
    index, _ = made(tmp_path, ["one two three four five six seven"])
    text = pa.array(["one two three four five six seven"], pa.large_string())
    assert len(find_hits(text, index)[0]["row"]) == 3
    other = replace(index, table=index.table._replace(checks=index.table.checks + np.uint64(1)))
    assert len(find_hits(text, other)[0]["row"]) == 0


def test_paragraphs_bound_their_own_share(tmp_path: Path) -> None:
    index, _ = made(tmp_path, ["one two three four five six seven"])
    text = pa.array(["one two three four\n\nfive six seven one two three four five"], pa.large_string())
    hits, _ = find_hits(text, index)
    assert list(zip(hits["paragraph"].tolist(), hits["of"].tolist(), strict=True)) == [(-1, 0)] * 3 + [(1, 4)]
