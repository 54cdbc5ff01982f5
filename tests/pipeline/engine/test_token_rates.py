"""Tokens per byte: from the shards where there are any, from the tokenizer's sample else."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.token_rates import PER, token_rates, tokens


def _shards(folder: Path, sets: list[tuple[str, int, int]]) -> Folder:
    entries = [
        {
            "source": source, "split": "train", "index": f"{i}.json", "index_xxh3": "0", "ntokens": n, "ndocs": 1,
            "text_bytes": size,
        }
        for i, (source, n, size) in enumerate(sets)
    ]  # fmt: skip
    index = {
        "tokenizer": "t", "tokenizer_xxh3": "0", "vocab_size": 300, "eos_id": 0, "dtype": "uint16", "sets": entries,
    }  # fmt: skip
    folder.mkdir()
    (folder / "index.json").write_text(json.dumps(index))
    return Folder(folder)


def test_shards_are_exact(tmp_path: Path) -> None:
    rates = token_rates(_shards(tmp_path / "s", [("a", 90, 400), ("a", 10, 100), ("b", 30, 90)]), None)
    assert rates is not None and rates.measured == "shards" and rates.exact == {"a": 100, "b": 30}
    assert (rates.estimate("a", 500), rates.estimate("b", 90)) == (100, 30)
    assert rates.rate("of which nothing was kept") == rates.overall == round(PER * 130 / 590)
    assert rates.rates(["b", "a"]).tolist() == [rates.rate("b"), rates.rate("a")]


def test_the_tokenizers_sample_serves_without_shards(tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text(
        json.dumps({"sources": {"a": {"tokens": 25, "bytes": 100, "docs": 3}}})
    )
    rates = token_rates(None, Folder(tmp_path))
    assert rates is not None and (rates.measured, rates.exact, rates.estimate("a", 1000)) == (
        "tokenizer",
        {},
        250,
    )


def test_neither_gives_none(tmp_path: Path) -> None:
    assert token_rates(None, None) is None and token_rates(Folder(tmp_path), Folder(tmp_path)) is None
    assert token_rates(_shards(tmp_path / "s", []), None) is None


@given(st.integers(0, 10**18))
def test_rounds_to_the_nearest(product: int) -> None:
    assert abs(tokens(product) * PER - product) <= PER // 2
