"""Small blocks, and tars of others to make a token set of."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from corpusmill.train.data.texts import token_set as module
from corpusmill.train.data.texts.token_set import token_set
from tests.train.data.texts.helpers import (
    texts,
    tokenizer_file,
    write_tar,
)

BLOCK = 64  # tokens in a block here


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_TOKENS", BLOCK)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Two sources in seven tars, with validation, and a tokenizer beside them."""
    tokenizer_file(tmp_path)
    for number in range(4):
        write_tar(tmp_path / f"in/web/{number}.tar", texts(40, number))
    for number in range(2):
        write_tar(
            tmp_path / f"in/books/train/{number}.tar", [*texts(9, 10 + number), "", texts(1, 7, 900)[0]]
        )
    write_tar(tmp_path / "in/books/validation/0.tar", texts(5, 20))
    return tmp_path / "in"


def make(folder: Path, cache: str = "cache", logged: list[str] | None = None) -> Folder:
    """The token set of `foreign`."""
    tokenizer = str(folder.parent / "tokenizer.json")
    return token_set(str(folder), str(folder.parent / cache), tokenizer=tokenizer, log=(logged or []).append)
