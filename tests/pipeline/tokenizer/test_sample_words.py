"""Counts of a sample by the workers: the same for any partitions, used again after a run was killed, made again if damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.tokenizer.sample import draw
from corpusmill.pipeline.tokenizer.sample_words import sample_words
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from corpusmill.pipeline.tokenizer.train import words_of
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.corpus import Here
from tests.pipeline.tokenizer.test_sample import corpus, prepared
from tests.pipeline.tokenizer.test_tokenizer import build
from tests.pipeline.tokenizer.test_tokenizer import corpus as documents
from tests.pipeline.tokenizer.test_tokenizer import prepared as prepared_stage
from tests.pipeline.tokenizer.test_words import as_dict


def with_(here: Context, scheduler: Here) -> Context:
    return Context(**{**here.__dict__, "scheduler": scheduler})


def test_the_workers_count_what_is_drawn(tmp_path: Path) -> None:
    params, first = TokenizerParams(), None
    for count, shuffle in ((1, None), (4, 7), (9, 8)):
        here, splits, _ = prepared(tmp_path / str(count), corpus(), count, shuffle)
        drawn = draw(here, 9_000, splits, "key")
        found = as_dict(sample_words(here, drawn, params, "key").in_order())
        assert found == as_dict(words_of([table["text"] for table in drawn.tables()], params).in_order())
        first = first or found
        assert found == first


def test_what_a_killed_run_counted_is_used_for_the_same_work_only(tmp_path: Path) -> None:
    here, splits, _ = prepared(tmp_path, corpus())
    params, drawn = TokenizerParams(), draw(here, 9_000, splits, "key")
    with pytest.raises(KeyboardInterrupt):
        sample_words(with_(here, Here(stop_after=1)), drawn, params, "key")
    wanted = as_dict(sample_words(here, drawn, params, "key").in_order())
    idle = with_(here, Here(stop_after=0))
    assert as_dict(sample_words(idle, drawn, params, "key").in_order()) == wanted
    with pytest.raises(KeyboardInterrupt):
        sample_words(idle, drawn, params, "other key")
    # Damaged without a change of its size: counted once more.
    file = next((tmp_path / "tokenizer/scratch/sample/words").glob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(KeyboardInterrupt):
        sample_words(idle, drawn, params, "key")
    assert as_dict(sample_words(here, drawn, params, "key").in_order()) == wanted


@pytest.mark.parametrize("model", ["bpe", "unigram", "wordpiece"])
def test_a_run_that_is_killed_anywhere_ends_with_the_same_bytes(tmp_path: Path, model: str) -> None:
    wanted = build(tmp_path / "whole", documents(), 3, model=model, vocab_size=600)
    made, here = prepared_stage(tmp_path / "killed", documents(), 3, model=model, vocab_size=600)
    kills = 0
    for steps in range(1, 40):
        try:
            Tokenizer(made).run(with_(here, Here(stop_after=steps)))
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills > 5
    folder = Folder(tmp_path / "killed/tokenizer")
    assert {name: (folder / name).read() for name in wanted} == wanted
