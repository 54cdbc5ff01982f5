"""Texts that runs wrote are kept beside the ratings: a later start asks about the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.schemas.generation import Sampling
from corpusmill.train.evaluate.judge.pairs import from_run
from corpusmill.train.evaluate.judge.texts import read_texts, texts_file
from corpusmill.train.generate import generate

SAMPLING = Sampling(max_tokens=4, temperature=0.7)


def test_texts_are_generated_once(reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, file = str(reader / "config.yaml"), texts_file(tmp_path / "deep" / "ratings.jsonl")
    assert file.name == "ratings.texts.jsonl"
    prompts = ["The data", "A run", "The data"]
    first = from_run(run, prompts, SAMPLING, file)
    assert [prompt for prompt, _ in first.texts] == prompts and len(read_texts(file)) == 3
    calls: list[int] = []

    def others(opened: Any, prompts: Sequence[str], *_: Any) -> list[str]:
        """As a numerical change between two starts gives them."""
        calls.append(len(prompts))
        return [f"other {number}" for number, _ in enumerate(prompts)]

    monkeypatch.setattr(generate, "texts", others)
    assert from_run(run, prompts, SAMPLING, file) == first and calls == []
    # What is known stays, the rest is added.
    more = from_run(run, ["A shard", *prompts], SAMPLING, file)
    assert more.texts == [("A shard", "other 0"), *first.texts] and calls == [4]
    assert from_run(run, ["A shard"], SAMPLING, file).texts == [("A shard", "other 0")] and calls == [4]
    # Other sampling, and other weights, have other texts.
    from_run(run, prompts, SAMPLING.model_copy(update={"seed": 1}), file)
    assert calls == [4, 3] and len(read_texts(file)) == 7
    whole = file.read_bytes()
    file.write_bytes(whole.replace(str(first.weights).encode(), b"0" * 32))
    from_run(run, prompts, SAMPLING, file)
    assert calls == [4, 3, 3]


def test_a_damaged_file_of_texts_is_named(reader: Path, tmp_path: Path) -> None:
    file = tmp_path / "ratings.texts.jsonl"
    file.write_text('{"prompt": 1}\n')
    with pytest.raises(UserError, match=r"ratings.texts.jsonl: line 1: not a JudgedText"):
        from_run(str(reader / "config.yaml"), ["The data"], SAMPLING, file)
