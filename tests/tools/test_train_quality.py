"""The shipped classifiers can be made again, byte for byte; texts made from a seed are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.pipeline.filter.classifiers import fasttext_model
from tools import made_texts, train_prose


def test_made_texts_come_from_the_seed_alone() -> None:
    for make in (made_texts.neutral_people, made_texts.menus, made_texts.stuffed, made_texts.machine):
        assert make(1, 20) == make(1, 20) != make(2, 20) and all(make(1, 20))
    assert (
        made_texts.shuffled(1, ["a b c d e f g h"])
        == made_texts.shuffled(1, ["a b c d e f g h"])
        != ["a b c d e f g h"]
    )


@pytest.mark.slow
def test_the_shipped_models_can_be_made_again(data_dir: Path, tmp_path: Path) -> None:
    train_prose.main([str(data_dir), str(tmp_path)])
    for name in ("quality.ftz", "quality.md"):
        assert (tmp_path / name).read_bytes() == (fasttext_model.MODELS / name).read_bytes()
