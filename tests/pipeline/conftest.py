"""A corpus in shards, made once: for the tests of the stage, and of what inspects shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.shard.helpers import build, corpus


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run up to `shard`; not to be written to."""
    tmp = tmp_path_factory.mktemp("shards")
    build(tmp, corpus())
    return tmp
