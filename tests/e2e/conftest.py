"""One small run of the whole pipeline, made once and read by many tests, in all test processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared
from tests.e2e.cli import corpusmill, small_corpus, write_recipe


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        small_corpus(folder / "in")

    return shared(tmp_path_factory, "corpus", make) / "in"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The folder of a finished run, made in one process without workers."""

    def make(folder: Path) -> None:
        recipe = write_recipe(folder / "small.yaml", corpus, folder / "run")
        corpusmill("run", recipe, "--workers", "0", env={"PYTHONHASHSEED": "0"})

    return shared(tmp_path_factory, "finished", make) / "run"
