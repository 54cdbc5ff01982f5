"""A finished run of ingest and filter on a part of the example corpus, and the same recipe run with changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corpusmill.common.config import override, validate
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.what_if.question import Finished, find_run
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import Recipe
from tests.conftest import Serial, shared
from tests.e2e.cli import small_corpus

Rerun = Callable[[list[str]], StageManifest]


def recipe(output: Path, corpus: Path, settings: list[str] | None = None) -> Recipe:
    """Ingest and filter of two sources that are judged differently."""
    sources = {"books": "books", "qa": "faq.jsonl.zst", "docs": "docs.warc.gz", "planted": "planted"}
    config = {
        "name": "small",
        "output": str(output),
        "sources": {name: {"paths": [str(corpus / path)]} for name, path in sources.items()},
        "stages": ["ingest", "filter"],
        "ingest": {"partition_mb": 0.25},
        "filter": {"language": {"keep": ["en"]}, "skip_sources": {"qa": ["c4", "fineweb"]}},
    }
    return validate(Recipe, override(config, settings or []), "test")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        small_corpus(folder / "in")

    return shared(tmp_path_factory, "what-if", make) / "in"


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The folder of the run."""

    def make(folder: Path) -> None:
        Run(recipe(folder / "run", corpus), Folder(folder / "run"), Serial()).execute()

    return shared(tmp_path_factory, "what-if-base", make) / "run"


@pytest.fixture
def run(base: Path) -> Finished:
    return find_run(str(base))


@pytest.fixture
def rerun(base: Path, corpus: Path, tmp_path: Path) -> Rerun:
    """Runs the recipe with settings in a copy of the run; the manifest of its filter."""

    def execute(settings: list[str]) -> StageManifest:
        folder = tmp_path / "again"
        shutil.copytree(base, folder)
        manifests = Run(recipe(folder, corpus, settings), Folder(folder), Serial(), replace=True).execute()
        return next(manifest for manifest in manifests if manifest.stage == "filter")

    return execute
