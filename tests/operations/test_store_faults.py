"""A whole run into an object store of which a fifth of the answers break: it needs no restart, and writes the same bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from tests.e2e.cli import corpusmill, difference, published
from tests.faults.proxy import cut, proxy, refused, reset
from tests.operations.conftest import write_tiny_recipe


@pytest.mark.slow
@pytest.mark.s3
def test_a_run_needs_no_restart(tiny: Path, corpus: Path, s3: str, tmp_path: Path) -> None:
    chance, kinds = random.Random(20), (reset, cut, refused(503), refused(500))
    with proxy(os.environ["AWS_ENDPOINT_URL"]) as server:
        server.policy = lambda request: chance.choice(kinds) if chance.random() < 0.2 else None
        recipe = write_tiny_recipe(tmp_path / "tiny.yaml", corpus, s3)
        corpusmill("run", recipe, "--workers", "0", env={"AWS_ENDPOINT_URL": server.url})
        assert server.faults > 100
    for entry in Folder(s3).list():
        (Folder(tmp_path / "copy") / entry.path).write((Folder(s3) / entry.path).read())
    assert not difference(published(tmp_path / "copy"), published(tiny))
