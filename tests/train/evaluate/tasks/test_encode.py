"""Pairs as ids, by the rule of lm-evaluation-harness written out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.hugging_face import library
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.tasks.encode import Encoder
from tests.conftest import ROOT
from tests.train.evaluate.tasks.runs import tokenizer_json

EOS = 0
DATA = tokenizer_json([(ROOT / "docs/concepts.md").read_text(encoding="utf-8")])
ENCODER = Encoder(library(DATA, "test"), EOS)


def ids(text: str) -> list[int]:
    return list(ENCODER.tokenizer.encode(text, add_special_tokens=False).ids)


def plainly(context: str, continuation: str) -> tuple[list[int], list[int]]:
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    if not context:
        return [EOS], ids(continuation)
    whole = ids(context + continuation)
    return ids(context), whole[len(ids(context)) :]


TEXT = st.text(st.sampled_from("ab the, \n\té日👩"), max_size=12)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=6))
def test_any_pairs(pairs: list[tuple[str, str]]) -> None:
    found = ENCODER.queries(pairs)
    assert [(list(one.context), list(one.continuation)) for one in found] == [
        plainly(*pair) for pair in pairs
    ]
    assert all(len(query.context) > 0 for query in found)


@given(st.text(st.sampled_from("abc é"), max_size=40), st.integers(2, 9), st.none() | st.integers(1, 12))
def test_windows_score_each_token_once(text: str, longest: int, stride: int | None) -> None:
    found = ENCODER.windows(text, longest, stride)
    assert [token for query in found for token in query.continuation] == ids(text)
    for number, query in enumerate(found):
        read = [*query.context, *query.continuation]
        assert len(query.continuation) <= (min(stride or longest, longest) if number else longest)
        assert len(read) == longest + 1 if number else query.context == [EOS]
        if number:  # what comes before it in the text
            end = sum(len(one.continuation) for one in found[: number + 1])
            assert read == ids(text)[end - longest - 1 : end]


def test_a_token_across_the_border_belongs_to_the_continuation_or_is_none() -> None:
    (query,) = ENCODER.queries([("the answer: ", "the")])
    assert ENCODER.tokenizer.decode(list(query.continuation)) == " the"
    (empty,) = ENCODER.queries([("a", "")])
    assert empty == Query(ids("a"), [])


def test_what_looks_like_the_end_of_text_is_text() -> None:
    (query,) = ENCODER.queries([("", "<|endoftext|>")])
    assert list(query.context) == [EOS] and EOS not in query.continuation and len(query.continuation) > 3
