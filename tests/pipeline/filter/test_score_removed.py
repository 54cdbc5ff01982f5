"""`filter.score_removed: false`: the same documents stay, and what other rules remove has no scores of classifiers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.filter import apply as filter_apply
from corpusmill.pipeline.filter.apply import of_scores
from corpusmill.pipeline.filter.text.view import spans
from tests.conftest import ROOT
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage

INSULT = (
    "You are a stupid fucking idiot and everyone hates you. Shut up and die, you worthless piece of shit."
)
SHORT, SPAM = "Applause.", "buy cheap " * 200
GERMAN = (
    "Der Fluss entspringt in den Hügeln nördlich der Stadt und fließt durch ein weites Tal bis zum Meer. " * 6
)
TEXTS = [PROSE, SHORT, f"{PROSE} {INSULT * 4}", SPAM, GERMAN, PROSE.upper(), INSULT]
PARAMS: dict[str, Any] = {"quality": {"remove_below": 0.2}, "quality_signals": {"remove_below": 0.95}}


def examples() -> list[str]:
    """Texts of the example corpus, in pieces that rules differ on."""
    files = sorted((ROOT / "examples/corpus/sources/books").rglob("*.txt"))[:6]
    assert len(files) == 6
    texts = [file.read_text("utf-8") for file in files]
    return [text[at : at + size] for text in texts for at, size in ((0, 90), (500, 2000), (3000, 400))]


def both(docs: pa.Table, **params: Any) -> tuple[Outcome, Outcome]:
    return apply(docs, **params), apply(docs, **params, score_removed=False)


@pytest.mark.parametrize("keep", [None, ["en"]])
def test_the_same_documents_stay_for_the_same_reasons(keep: list[str] | None) -> None:
    docs = pa.concat_tables([documents(TEXTS + examples()), documents(TEXTS, "free")])
    params = {**PARAMS, "language": {"keep": keep}, "skip_sources": {"free": ["*"]}}
    whole, less = both(docs, **params)
    assert less.kept.equals(whole.kept)
    assert less.decisions.drop(["failed"]).equals(whole.decisions.drop(["failed"]))
    late = {rule.name for rule in stage(("web", "free"), **params).rules if rule.signal in of_scores()}
    deciding = whole.decisions["rule"].to_pylist()
    assert late & set(deciding) and set(deciding) - late  # some of each kind


@pytest.mark.parametrize("score_removed", [True, False])
def test_a_partition_may_be_read_in_any_pieces(score_removed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = documents(TEXTS + examples())
    params = {**PARAMS, "score_removed": score_removed, "cut_lines": True}
    at_once = apply(docs, **params)
    monkeypatch.setattr(filter_apply, "spans", partial(spans, limit=1_500))
    in_pieces = apply(docs, **params)
    assert at_once.signals is not None and len(list(filter_apply.spans(docs["text"].combine_chunks()))) > 9
    for name in ("kept", "decisions", "signals"):
        assert getattr(in_pieces, name).equals(getattr(at_once, name)), name
    assert in_pieces.counters == at_once.counters


def test_scores_are_those_of_all_where_no_other_rule_removes() -> None:
    docs = documents(TEXTS + examples())
    whole, less = both(docs, **PARAMS)
    late = [rule.name for rule in stage(**PARAMS).rules if rule.signal in of_scores()]
    early = whole.decisions.filter(pc.invert(pc.is_in(whole.decisions["rule"], value_set=pa.array(late))))
    removed = pc.is_in(docs["doc_id"], value_set=early["doc_id"].combine_chunks())
    assert 0 < pc.sum(removed).as_py() < len(docs)
    assert whole.signals is not None and less.signals is not None
    for name in whole.signals.column_names:
        expected = whole.signals[name]
        if name in of_scores():
            assert expected.null_count < len(docs)
            expected = pc.if_else(removed, pa.scalar(None, expected.type), expected)
        assert less.signals[name].equals(expected), name


def test_a_batch_of_which_nothing_is_left_has_no_scores() -> None:
    _, less = both(documents([SHORT, SPAM]), **PARAMS)
    assert len(less.kept) == 0
    assert less.signals is not None
    assert all(less.signals[name].null_count == 2 for name in of_scores())


def test_it_is_part_of_the_key_only_where_it_is_set() -> None:
    assert "score_removed" not in stage().key_params()
    assert stage(score_removed=False).key_params()["score_removed"] is False
