"""The tokenizer in tasks: loaded once in a process, and named as the user knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe import load
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.shard.tokenizer import Tokenizer
from tests.pipeline.shard.helpers import corpus, prepared


def test_a_stage_in_one_process_loads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, loaded = load.library, []

    def noted(data: bytes, where: str) -> Any:
        loaded.append(where)
        return library(data, where)

    stage, here = prepared(tmp_path, corpus())
    monkeypatch.setattr(load, "library", noted)
    file = tmp_path / "tokenizer/tokenizer.json"
    file.write_bytes(file.read_bytes() + b" \n \n")  # bytes that no other test has loaded
    Shards(stage).run(here)
    assert len(here.partitions) > 1
    assert loaded == [str(Folder(file))]


def test_errors_name_the_users_file(made: Path, tmp_path: Path) -> None:
    given = Folder(tmp_path / "mine.json")
    with pytest.raises(UserError, match=r"mine\.json: no special token '</s>' to end documents"):
        Tokenizer(Folder(made / "shards/tokenizer.json"), "</s>", given).load()
