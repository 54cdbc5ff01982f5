"""From the quick start's model to one that answers in a style, as docs/after-pretraining.md has it: fine-tuning, then preferences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.cli import corpusmill
from tests.e2e.test_quickstart import quickstart, settings  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def adherence(run: Path, place: Path) -> tuple[float, list[str]]:
    """The share of answers to questions that no training has seen that keep all rules, and the answers."""
    texts = corpusmill(
        "generate",
        run,
        "--chat",
        "--prompts",
        "examples/chat/prompts.jsonl",
        "--max-tokens",
        "40",
        "--temperature",
        "0",
    ).stdout
    file = place / f"{run.name}.jsonl"
    file.write_text(texts)
    report = json.loads(corpusmill("style", "examples/chat/style.yaml", file, "--json").stdout)
    return report["all_rules"]["value"], [json.loads(line)["text"] for line in texts.splitlines()]


def test_a_model_learns_to_answer_in_a_style(quickstart: Path, tmp_path: Path) -> None:  # noqa: F811
    base = quickstart / "train"
    before, _ = adherence(base, tmp_path)
    chat, preferences = tmp_path / "chat", tmp_path / "preferences"
    corpusmill("finetune", "configs/train/chat.yaml", "--set", f"init_from={base}", "--set", f"output={chat}")
    after, answers = adherence(chat, tmp_path)
    assert before <= 0.2 < 0.7 <= after, answers
    corpusmill(
        "finetune",
        "configs/train/preferences.yaml",
        "--set",
        f"init_from={chat}",
        "--set",
        f"output={preferences}",
    )
    last = json.loads((preferences / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["validation_preference"]["pairs"]["accuracy"] > 0.95
    assert adherence(preferences, tmp_path)[0] >= after - 0.1
