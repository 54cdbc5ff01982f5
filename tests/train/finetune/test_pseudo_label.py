"""Answers that become training data: which are kept and why others are not, and a model that is tuned on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.pseudo_labels import PseudoLabels, PseudoLabelSettings
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.finetune.pseudo_label import Sample, chosen
from tests.train.finetune.models import base_model, config_of, lines, talk
from tests.train.test_commands import command
from tests.train.test_resume import run

WORDS = ("the", "in", "winter", "thin", "her", "rather", "inner", "other")
ASKED = [{"role": "user", "content": "?"}]


@pytest.mark.parametrize(
    ("samples", "settings", "text", "problem"),
    [
        ([("a", -1.0), ("b", -0.5)], {"least": -0.7}, "b", ""),
        ([("a", -1.0), ("b", -0.9)], {"least": -0.7}, "b", "unlikely"),
        ([("a", -1.0), ("b", -0.1), ("a", -0.8), ("c", -2.0)], {"agree": 0.5}, "a", ""),
        ([("a", -1.0), ("b", -0.1), ("a", -0.8), ("c", -2.0)], {"agree": 0.6}, "a", "disagreement"),
    ],
)  # fmt: skip
def test_which_answer_is_kept(
    samples: list[tuple[str, float]], settings: dict[str, Any], text: str, problem: str
) -> None:
    made = PseudoLabelSettings(answers=len(samples), **settings)
    least = -1e9 if made.least is None else made.least
    found = chosen(
        ASKED, [Sample(text, likely, "unlikely" if likely < least else "") for text, likely in samples], made
    )
    assert (found.answer.text, found.answer.problem) == (text, problem)
    assert found.agreement == sum(one == text for one, _ in samples) / len(samples)


@pytest.fixture
def tuned(tmp_path: Path) -> str:
    """A model that has learnt to answer in upper case."""
    data = lines(tmp_path / "lines.jsonl", [talk(f"say {word}", word.upper()) for word in WORDS] * 4)
    made = config_of(
        tmp_path, data, base_model(tmp_path / "base"), **{"schedule.steps": 120, "optimizer.lr": 1e-2}
    )
    run(made)
    return str(made["output"])


def test_a_model_is_tuned_on_its_own_answers(tuned: str, tmp_path: Path) -> None:
    prompts = lines(tmp_path / "prompts.jsonl", [{"prompt": f"say {word}"} for word in WORDS])
    guide = tmp_path / "guide.yaml"
    guide.write_text("name: loud\nrules: [{id: upper, case: upper}, {id: short, max_words: 3}]\n")
    out, rest = tmp_path / "own.jsonl", tmp_path / "rest.jsonl"
    options = (
        "--answers",
        "4",
        "--style",
        str(guide),
        "--least",
        "-1.5",
        "--max-tokens",
        "24",
        "--removed",
        str(rest),
    )
    result = json.loads(command("pseudo-label", tuned, prompts, "--out", str(out), *options, "--json"))
    found = PseudoLabels.model_validate(result)
    kept, removed = ([json.loads(line) for line in file.read_text().splitlines()] for file in (out, rest))
    assert len(kept) == found.kept > len(WORDS) / 2 and len(removed) == sum(found.removed.values())
    assert found.prompts == len(WORDS) == found.kept + len(removed)
    for line in kept:
        answer, about = line["messages"][-1], line["pseudo_label"]
        assert answer["role"] == "assistant" and answer["content"] == answer["content"].upper()
        assert about["log_probability"] >= -1.5 and 0 < about["agreement"] <= 1 and about["model"] == "tuned"
    assert all(line["pseudo_label"]["removed"] for line in removed)
    first = out.read_bytes()
    command("pseudo-label", tuned, prompts, "--out", str(out), *options)
    assert out.read_bytes() == first  # equal arguments, equal answers
    again = config_of(tmp_path / "again", str(out), tuned, **{"schedule.steps": 4, "data.conversations": {}})
    shards = open_run_data(TrainConfig.model_validate(again))
    assert sum(one.index.ndocs for one in [*shards.train.values(), *shards.validation.values()]) == found.kept
    assert run(again)["steps"] == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "every answer would be kept: give least, agree or style"),
        ({"agree": 0.5}, "compares several answers: set answers to 2 or more"),
    ],
)
def test_settings_that_keep_everything(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate(PseudoLabelSettings, given, "pseudo-label")
