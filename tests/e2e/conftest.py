"""One small run of the whole pipeline, made once per test process and read by many tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import corpusmill, small_corpus, write_recipe


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_corpus(tmp_path_factory.mktemp("corpus") / "in")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The folder of a finished run, made in one process without workers."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = write_recipe(folder / "small.yaml", corpus, folder / "run")
    corpusmill("run", recipe, "--workers", "0", env={"PYTHONHASHSEED": "0"})
    return folder / "run"
