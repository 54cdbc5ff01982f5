"""Copies of documents: chosen by their ids, named after their parents, on their parents' side; what fails costs no other copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.perturb import parse
from corpusmill.pipeline.augment import make
from corpusmill.pipeline.augment.make import Made, copies, maker_of
from corpusmill.pipeline.engine.document_hash import groups_of, split_of
from corpusmill.schemas.augment import AugmentParams, CopyParams
from corpusmill.schemas.tables import COPIES, DOCUMENTS
from tests.pipeline.corpus import documents, words

TEXTS = [words(30, seed) for seed in range(200)]
NONE = np.zeros(200, np.bool_)


def made(docs: pa.Table, *ways: CopyParams, validation: Any = None, seed: int = 1) -> Made:
    chosen = np.zeros(len(docs), np.bool_) if validation is None else validation
    return copies(docs, [(one, maker_of(one, seed, [])) for one in ways], chosen, seed)


def by_function(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], **settings: Any) -> CopyParams:
    monkeypatch.setattr(make, "find_function", lambda python, params, folders: function)
    return CopyParams(python="here:function", version="1", **{"share": 1.0, **settings})


def test_a_copy_names_its_parent_and_is_its_text_with_noise() -> None:
    docs = documents(TEXTS, clusters={3: "a", 4: "a"})
    docs = docs.set_column(docs.column_names.index("metadata"), "metadata", pa.array(['{"x": 1}'] * 200))
    found = made(docs, CopyParams(perturb="typos:0.1", share=1, times=2))
    assert found.docs.schema == DOCUMENTS and found.account.schema == COPIES
    assert len(found.docs) == 400 == len(set(found.docs["doc_id"].to_pylist()))
    parents = dict(zip(docs["doc_id"].to_pylist(), docs.to_pylist(), strict=True))
    groups = dict(zip(docs["doc_id"].to_pylist(), groups_of(docs).to_pylist(), strict=True))
    noise = parse("typos:0.1")
    for copy, row in zip(found.docs.to_pylist(), found.account.to_pylist(), strict=True):
        about = json.loads(copy["metadata"])
        parent = parents[bytes.fromhex(about["augmented"]["parent"])]
        assert about == {"x": 1, "augmented": {"parent": parent["doc_id"].hex(), "by": "typos:0.1"}}
        assert copy["text"] == noise.apply(parent["text"], copy["doc_id"].hex(), 1) != parent["text"]
        assert (copy["source"], copy["cluster_id"]) == ("web-augmented", groups[parent["doc_id"]])
        assert (row["doc_id"], row["parent"], row["outcome"]) == (copy["doc_id"], parent["doc_id"], "made")
    assert found.counters == {"by/typos:0.1/made": 400}


@given(st.floats(0.01, 1), st.integers(0, 2**40), st.integers(1, 199))
def test_the_same_copies_however_the_documents_are_cut(share: float, seed: int, cut: int) -> None:
    way, docs = CopyParams(perturb="case:0.05", share=share), documents(TEXTS)
    whole = made(docs, way, seed=seed)
    parts = [made(part, way, seed=seed) for part in (docs.slice(0, cut), docs.slice(cut))]
    assert pa.concat_tables([part.docs for part in parts]).equals(whole.docs)
    assert pa.concat_tables([part.account for part in parts]).equals(whole.account)


def test_the_share_is_of_the_documents_and_of_the_sources_named() -> None:
    docs = pa.concat_tables(
        [documents([words(5, n) for n in range(4000)], "a"), documents(["x y z"] * 1000, "b")]
    )
    found = made(docs, CopyParams(perturb="swap:1", share=0.25, sources=["a"]))
    assert 850 < len(found.account) < 1150 and set(found.account["source"].to_pylist()) == {"a-augmented"}
    # Another way to make copies chooses others.
    other = made(docs, CopyParams(perturb="drop:0.5", share=0.25, sources=["a"]))
    both = {*found.account["parent"].to_pylist()} & {*other.account["parent"].to_pylist()}
    assert 150 < len(both) < 350


@given(st.lists(st.booleans(), min_size=200, max_size=200))
def test_no_copy_of_a_validation_document_and_none_crosses(held_out: list[bool]) -> None:
    docs = documents(TEXTS, clusters={n: f"c{n // 3}" for n in range(0, 60)})
    groups = groups_of(docs).combine_chunks().filter(pa.array(held_out)).unique()
    validation = split_of(docs, groups)
    found = made(docs, CopyParams(perturb="typos:0.2", share=1), validation=validation)
    assert not split_of(found.docs, groups).any()
    parents = {bytes(one) for one in found.account["parent"].to_pylist()}
    assert parents == {*docs.filter(pa.array(~validation))["doc_id"].to_pylist()}


def test_a_text_that_does_not_change_makes_no_copy() -> None:
    found = made(documents(["1 2 3", "a b c"]), CopyParams(perturb="swap:0", share=1))
    assert not len(found.docs) and found.counters == {"by/swap:0/unchanged": 2}
    assert found.account["outcome"].to_pylist() == ["unchanged"] * 2


def test_a_function_of_the_users_is_asked_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def shout(texts: list[str], mark: str) -> list[str | None]:
        asked.append(len(texts))
        return [text.upper() + mark if text != "b" else None for text in texts]

    way = by_function(monkeypatch, shout, at_once=2, params={"mark": "!"})
    found = made(documents(["a", "b", "c", "D!"]), way)
    assert asked == [2, 2] and found.docs["text"].to_pylist() == ["A!", "C!", "D!!"]
    assert found.counters == {"by/here:function@1/made": 3, "by/here:function@1/failed": 1}
    assert found.account["detail"].to_pylist() == [None, "the function gave none", None, None]
    (spent,) = found.spent
    assert (spent.by, spent.documents, spent.characters) == ("here:function@1", 4, 5)


def test_one_that_raises_takes_no_other_with_it_and_says_nothing_of_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fragile(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise ValueError(f"cannot rewrite {texts}")
        return [text + "." for text in texts]

    found = made(documents(["one", "bad", "two", "three"]), by_function(monkeypatch, fragile, at_once=3))
    assert found.docs["text"].to_pylist() == ["one.", "two.", "three."]
    (detail,) = found.account["detail"].drop_null().to_pylist()
    assert detail.startswith("ValueError at test_make.py, line ") and "bad" not in detail


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["a"], "returned 1 answers"),
        ("ab", "returned a str"),
        ([1, 2], "must return texts or None; returned a int"),
    ],
)
def test_other_answers_stop_the_run(monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str) -> None:
    way = by_function(monkeypatch, lambda texts: answer)
    with pytest.raises(WorkError, match=reason):
        made(documents(["one", "two"]), way)


@pytest.mark.parametrize(
    ("copy", "reason"),
    [
        ({"share": 0.1}, "perturb or python: give one of them"),
        ({"share": 0.1, "perturb": "typos:0.1", "python": "a:b"}, "perturb or python: give one of them"),
        ({"share": 0.1, "python": "a:b"}, "version: missing"),
        ({"share": 0.1, "python": "a", "version": 1}, "must be module:function"),
        ({"share": 0.1, "python": "a:b", "version": 1, "times": 2}, "times: more than 1 is for perturb"),
        ({"share": 0.1, "perturb": "typos:0.1", "params": {"a": 1}}, "version and params are for python"),
    ],
)  # fmt: skip
def test_mistakes_in_the_recipe(copy: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CopyParams.model_validate(copy)
    way = {"share": 0.1, "perturb": "typos:0.1"}
    with pytest.raises(ValueError, match=r"typos:0\.1 is there twice"):
        AugmentParams.model_validate({"copies": [way, way]})
