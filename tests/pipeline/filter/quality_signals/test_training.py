"""`classifier train --on-signals`, end to end: model and card, the same bytes, scores, a recipe that uses it, errors."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.quality_signals.model import from_bytes
from tests.command_line import CliRunner
from tests.pipeline.filter.helpers import PROSE, apply, documents

WORDS = PROSE.split()


def labelled(path: Path, count: int = 60) -> Path:
    """Sentences of any words against menus of the same words, one of each in turn."""
    rng = random.Random(3)
    with path.open("w") as file:
        for _ in range(count):
            sentences = [f"The {' '.join(rng.choices(WORDS, k=rng.randint(8, 20)))}." for _ in range(5)]
            menu = [" ".join(rng.choices(WORDS, k=2)).title() for _ in range(rng.randint(5, 25))]
            for text, label in ((" ".join(sentences), "good"), ("\n".join(menu), "bad")):
                file.write(json.dumps({"text": text, "label": label}) + "\n")
    return path


def train(data: Path, model: Path, *more: str) -> Any:
    arguments = [
        "classifier",
        "train",
        str(data),
        "--model",
        str(model),
        "--positive",
        "good",
        "--label",
        "good",
        "--on-signals",
    ]
    return CliRunner().invoke(build(), [*arguments, *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("on-signals")
    done = train(labelled(folder / "pages.jsonl"), folder / "pages.json", "--precision", "0.9")
    assert done.exit_code == 0, (done.output, done.exception)
    (folder / "said").write_text(done.output)
    return folder


def test_it_writes_a_model_and_a_card(made: Path) -> None:
    said, card = (made / "said").read_text(), (made / "pages.md").read_text()
    assert re.search(r"pages\.json: [\d,]+ bytes, xxh3 [0-9a-f]{32}, threshold ", said)
    assert re.search(r"filter: \{quality_signals: \{model: .*pages\.json, remove_below: [\d.e-]+\}\}", said)
    for head in (
        "Data it was trained on",
        "On the held-out part",
        "What each signal contributes",
        "Examples",
    ):
        assert f"## {head}" in card
    assert "Expected calibration error: 0." in card and "five models" in card
    assert "| `fineweb.line_punct_ratio` | lines that end like a sentence | up |" in card
    assert len(card.split("## Examples")[1].strip().splitlines()) == 5
    auc = re.search(r"all held-out texts \| \d+ \| \d+ \| ([\d.]+)", card)
    assert auc and float(auc[1]) > 0.95


def test_the_same_texts_give_the_same_bytes_and_free_ones_others(made: Path, tmp_path: Path) -> None:
    again, free = tmp_path / "again.json", tmp_path / "free.json"
    assert train(made / "pages.jsonl", again).exit_code == 0
    assert again.read_bytes() == (made / "pages.json").read_bytes()
    assert train(made / "pages.jsonl", free, "--free").exit_code == 0
    model = from_bytes(free.read_bytes(), "free")
    assert {curve.direction for curve in model.curves} == {"free"} and "No direction was set" in (
        tmp_path / "free.md"
    ).read_text()


def test_a_recipe_and_the_other_commands_use_it(made: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (made / "pages.jsonl").read_text().splitlines()]
    outcome = apply(
        documents([row["text"] for row in rows]), rules=[], language=None,
        quality_signals={"model": str(made / "pages.json"), "remove_below": 0.5},
    )  # fmt: skip
    assert set(outcome.kept["text"].to_pylist()) == {row["text"] for row in rows if row["label"] == "good"}
    stored = outcome.signals["quality_signals.score"].to_pylist()
    model = ["--model", str(made / "pages.json")]
    score = CliRunner().invoke(build(), ["classifier", "score", str(made / "pages.jsonl"), *model, "--json"])
    found = json.loads(score.output)
    assert found["scores"] == stored and found["label"] == "good"
    assert {error["name"] for error in found["errors"]} >= {"all held-out texts"}
    judged = CliRunner().invoke(
        build(),
        [
            "classifier",
            "evaluate",
            str(made / "pages.jsonl"),
            *model,
            "--label",
            "good",
            "--positive",
            "good",
            "--json",
        ],
    )
    assert json.loads(judged.output)["sets"][0]["auc"] > 0.95


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--worst"], "--worst: is for models over words"),
        (
            ["--held-out", "0.9"],
            r"training on signals needs 10 texts with the label 'good' beside those held out; there are \d",
        ),
    ],
)
def test_what_it_does_not_do_is_refused_in_a_line(tmp_path: Path, more: list[str], says: str) -> None:
    done = train(labelled(tmp_path / "a.jsonl", 30), tmp_path / "a.json", *more)
    assert isinstance(done.exception, UserError) and re.search(says, str(done.exception))
    assert not (tmp_path / "a.json").exists()


def test_names_and_options_that_do_not_fit(tmp_path: Path) -> None:
    data = labelled(tmp_path / "a.jsonl", 2)
    done = train(data, tmp_path / "a.ftz")
    assert "a model over signals is a .json" in str(done.exception)
    words = ["classifier", "train", str(data), "--model", "x.ftz", "--positive", "good", "--free"]
    done = CliRunner().invoke(build(), words)
    assert "--free: only a model over signals has directions" in str(done.exception)
