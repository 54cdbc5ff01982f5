"""The small finished run of the end-to-end tests, here too, and its publications; and a tiny one for slow stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared
from tests.e2e.cli import corpusmill
from tests.e2e.conftest import corpus, finished  # noqa: F401 (fixtures)
from tests.operations.publications import json_lines, published  # noqa: F401 (fixtures)

# All stages on two small sources, a partition each: a fifth of the small run's requests.
TINY = """\
name: tiny
output: {output}
seed: 7
sources:
  qa: {{paths: [{corpus}/faq.jsonl.zst], priority: 2}}
  planted: {{paths: [{corpus}/planted]}}
filter:
  language: {{keep: [en]}}
  skip_sources: {{qa: [c4, fineweb]}}
split: {{validation_share: 0.05, min_documents: 2}}
tokenizer: {{vocab_size: 1024, sample_mb: 1}}
shard: {{block_tokens: 4096, shard_mb: 0.2}}
report: {{samples: 1}}
"""


def write_tiny_recipe(file: Path, corpus: Path, output: str | Path) -> Path:  # noqa: F811
    file.write_text(TINY.format(corpus=corpus, output=output))
    return file


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:  # noqa: F811
    """The folder of a finished run of the tiny recipe, made in one process on the local disk."""

    def make(folder: Path) -> None:
        recipe = write_tiny_recipe(folder / "tiny.yaml", corpus, folder / "run")
        corpusmill("run", recipe, "--workers", "0")

    return shared(tmp_path_factory, "tiny", make) / "run"
