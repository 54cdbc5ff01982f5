"""Figures of a comparison: by hand on a tiny corpus, sums that agree, and the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpusmill.pipeline.tokenizer.compare.draw import Sample, draw
from corpusmill.pipeline.tokenizer.compare.kinds import MAKE
from corpusmill.pipeline.tokenizer.compare.measure import compare, measured, places_of
from corpusmill.pipeline.tokenizer.compare.show import show
from corpusmill.schemas.tokenizer import Compared, ComparedSource, Fit, TokenizerComparison
from tests.pipeline.tokenizer.compare.test_draw import DOCS, batches
from tests.pipeline.tokenizer.test_train import array

HELD = pa.table(
    {"source": ["a", "a", "b"], "language": ["en", None, "de"], "text": pa.array(["to be", "be é", "日"], pa.large_string())}
)  # fmt: skip


def figures(fit: Fit) -> tuple[int, ...]:
    return fit.docs, fit.bytes, fit.words, fit.tokens, fit.unknown_tokens, fit.unknown_bytes


def test_unknown_tokens_by_hand() -> None:
    texts = array(["to be", "to to"])
    places = places_of(HELD["text"])
    found = measured("character", MAKE["character"](texts, 600), 1.5, HELD, places)
    assert (found.vocab_size, found.used, found.reversible, found.train_seconds) == (
        7,
        6,
        False,
        1.5,
    )  # "be to"
    assert figures(found.sources["a"]) == (2, 10, 4, 9, 1, 2)
    assert figures(found.sources["b"]) == (1, 3, 1, 1, 1, 3)
    assert figures(found.whole) == (3, 13, 5, 10, 2, 5) and found.whole.whole_words == 0
    assert {name: fit.docs for name, fit in found.languages.items()} == {"de": 1, "en": 1}
    found = measured("word", MAKE["word"](texts, 600), 0.0, HELD, places)
    assert figures(found.sources["a"]) == (2, 10, 4, 4, 2, 5)  # "to", " be"; "be" and " é" are not known
    assert found.sources["a"].whole_words == 0.5 and found.sources["b"].whole_words == 0
    found = measured("byte", MAKE["byte"](texts, 600), 0.0, HELD, places)
    assert figures(found.whole) == (3, 13, 5, 13, 0, 0) and found.reversible
    assert (found.whole.bytes_per_token, found.whole.fertility) == (1.0, 2.6)


def test_words_of_one_token() -> None:
    texts = array(["to be or not to be"] * 9)
    held = pa.table(
        {"source": ["a"], "language": ["en"], "text": pa.array(["to be or nots"], pa.large_string())}
    )
    found = measured("bpe", MAKE["bpe"](texts, 600), 0.0, held, places_of(held["text"]))
    assert found.whole.words == 4 and found.whole.whole_words == 0.75
    assert found.whole.tokens == 5 and found.whole.fertility == 1.25


def sample() -> Sample:
    return draw(batches(DOCS, 2), 0, 1 << 30, 1 << 30)


def test_all_kinds_on_one_sample() -> None:
    found = compare(sample(), list(MAKE), 600, 0)
    assert [one.kind for one in found.kinds] == list(MAKE)
    by = {one.kind: one for one in found.kinds}
    for one in found.kinds:
        assert one.used <= one.vocab_size <= 600 and one.encode_mb_per_second > 0
        assert sum(fit.tokens for fit in one.sources.values()) == one.whole.tokens
        assert one.whole.bytes == by["byte"].whole.tokens
        assert one.whole.words == by["byte"].whole.words and list(one.sources) == ["code", "lone", "web"]
    for kind in ("bpe", "unigram", "wordpiece", "byte"):
        assert by[kind].reversible and by[kind].whole.unknown_tokens == 0
    assert by["bpe"].whole.bytes_per_token > by["character"].whole.bytes_per_token > 1
    again = compare(sample(), ["unigram"], 600, 0).kinds[0]
    assert again.whole == by["unigram"].whole and again.sources == by["unigram"].sources


def test_the_table_fits_80_columns() -> None:
    fit = Fit(
        docs=10**6, bytes=10**12, words=10**11, tokens=10**11, bytes_per_token=12.345, fertility=1234.5678,
        whole_words=0.9999, unknown_tokens=10**9, unknown_bytes=123_456_789,
    )  # fmt: skip
    kinds = [
        Compared(
            kind=kind, vocab_size=999_999, used=999_999, reversible=kind != "word", train_seconds=12_345.67,
            encode_mb_per_second=12_345.6, whole=fit, sources={"a-source-of-a-very-long-name": fit}, languages={"en": fit},
        )
        for kind in MAKE
    ]  # fmt: skip
    about = ComparedSource(
        train_docs=10**9, train_bytes=10**15, held_out_docs=10**6, held_out_bytes=10**12, held_out="hash"
    )
    sources = {"a-source-of-a-very-long-name": about}
    text = show(TokenizerComparison(vocab_size=999_999, seed=0, sources=sources, kinds=kinds))
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert any(line.split()[:3] == ["bpe", "999,999", "999,999"] for line in lines)
    assert "bytes per token, by language" in lines and lines[-1] == "text is lost by: word (unknown tokens)"


def test_places_are_those_of_the_word_rule() -> None:
    (places,) = places_of(array(["Don't stop", "", "日本 e\u0301!"]))
    data = places.view.data.tobytes()
    found = [data[a:b].decode() for a, b in zip(places.starts, places.ends, strict=True)]
    assert found == ["Don", "t", "stop", "日", "本", "e\u0301"] and places.counts.tolist() == [3, 0, 3]
    assert np.all(places.starts < places.ends)
