"""The quick start itself, as `make quickstart` runs it: the whole example corpus, a model, the report.

The model is trained for a tenth of its steps: what it beats then, it beats at the end (README.md has the figures, which
bench/quickstart.py measures).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import shared
from tests.e2e.cli import corpusmill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def quickstart(quickstart_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model trained on the run, on a tenth of the tokens."""

    def make(folder: Path) -> None:
        corpusmill("train", "configs/train/quickstart.yaml", *settings(quickstart_run, folder))

    return shared(tmp_path_factory, "quickstart-train", make)


def settings(run: Path, folder: Path) -> list[str]:
    values = [
        f"data.shards={run}/shards",
        f"output={folder}/train",
        "schedule.steps=100",
        "schedule.warmup_steps=10",
    ]
    return [word for value in values for word in ("--set", value)]


def test_nothing_is_lost(quickstart_run: Path) -> None:
    result = json.loads(corpusmill("verify", quickstart_run, "--json").stdout)
    assert result["problems"] == []
    assert set(result["stages"]) == {"ingest", "filter", "dedup", "redact"}


def test_what_was_planted_is_caught(quickstart_run: Path) -> None:
    facts = json.loads((quickstart_run / "report/report.json").read_text())
    kinds = {row["kind"]: row for row in facts["planted"]}
    wanted = {"exact_copy": 1.0, "spam": 0.9, "pii": 0.9, "secret": 0.9, "short": 1.0, "non_english": 0.9}
    for kind, share in wanted.items():
        row = kinds[kind]
        gone = row["caught"] + sum(row["elsewhere"].values())  # another stage took it before this one could
        assert gone >= share * row["planted"], row


def test_the_model_beats_a_unigram_model_on_every_source(quickstart_run: Path, quickstart: Path) -> None:
    result = json.loads(
        corpusmill(
            "evaluate", "configs/train/quickstart.yaml", *settings(quickstart_run, quickstart), "--json"
        ).stdout
    )
    sources = result["sources"]
    assert {"wiki", "books", "speeches", "docs", "qa", "code"} <= set(sources)
    for name, row in sources.items():
        assert row["loss"] < row["unigram"]["loss"] - 0.8, (name, row)


def test_it_generates(quickstart_run: Path, quickstart: Path) -> None:
    out = corpusmill(
        "generate",
        "configs/train/quickstart.yaml",
        *settings(quickstart_run, quickstart),
        "--prompt",
        "The history of",
    ).stdout
    assert out.startswith("The history of") and len(out) > 40


def test_it_generates_what_is_asked_for(quickstart_run: Path, quickstart: Path) -> None:
    """With the tokenizer of the recipe, whose tokens are runs of bytes."""
    out = corpusmill(
        "generate", "configs/train/quickstart.yaml", *settings(quickstart_run, quickstart), "--prompt", "Born in ",
        "--regex", "(18|19)[0-9]{2} (à|in) [A-Z][a-z]{2,5}",
    ).stdout  # fmt: skip
    assert re.fullmatch("Born in (18|19)[0-9]{2} (à|in) [A-Z][a-z]{2,5}\n", out)
