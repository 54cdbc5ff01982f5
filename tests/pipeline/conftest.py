"""A corpus in shards, made once: for the tests of the stage, and of what inspects shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared
from tests.pipeline.shard.helpers import build, corpus


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run up to `shard`; not to be written to."""

    def make(folder: Path) -> None:
        build(folder, corpus())

    return shared(tmp_path_factory, "shards", make)
