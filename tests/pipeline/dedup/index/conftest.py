"""A folder, and an index of few ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.index import index_file


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(autouse=True)
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "RANGES", 4)  # each range is a task for every step
