"""The two commands on small made sets: what they write, print and refuse."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.pipeline.commands import classifier
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.labelled import Labelled
from tests.command_line import CliRunner
from tests.pipeline.filter.classifiers.helpers import made_set
from tests.pipeline.filter.helpers import PROSE


def write(path: Path, data: Labelled) -> Path:
    rows = [
        {"body": t, "kind": "spam" if p else "ham"} for t, p in zip(data.texts, data.positive, strict=True)
    ]
    if path.name.endswith(".csv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["body", "kind"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


COLUMNS = ["--text-column", "body", "--label-column", "kind", "--positive", "spam"]


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(classifier.app, [str(part) for part in arguments], catch_exceptions=False)


def identity_file(path: Path) -> Path:
    """Phrases in the fields of the template set."""
    rows = [
        "template,toxicity,phrase",
        *(f"x,nontoxic,Amy is a kind {term}" for term in ("muslim", "gay", "gay")),
    ]
    path.write_text("\n".join([*rows, "x,toxic,Amy is a vile gay", "x,nontoxic,buy cheap deaf cash"]) + "\n")
    return path


def test_the_commands(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", made_set(0)), write(tmp_path / "b.jsonl.gz", made_set(1, 100))
    model, phrases = tmp_path / "out" / "mine.ftz", identity_file(tmp_path / "phrases.csv")
    done = invoke(
        "train", first, "--model", model, *COLUMNS, "--unseen", second, "--precision", "0.9", "--licence", "CC0",
        "--identity", phrases,
    )  # fmt: skip
    assert done.exit_code == 0 and "threshold" in done.output and "of 4 harmless phrases" in done.output
    # `toxicity` pools by the worst windows: a threshold chosen on means holds in `quality`.
    assert f"filter: {{quality: {{model: {model}, label: positive, remove_above: 0." in done.output
    card = (tmp_path / "out" / "mine.md").read_text()
    assert checksum(model.read_bytes()) in card and "| b.jsonl | 100 |" in card and "| CC0 |" in card
    assert "Of 4 harmless phrases of phrases.csv" in card and "| gay | 2 |" in card
    judged = invoke(
        "evaluate", second, "--model", model, "--label", "positive", *COLUMNS, "--json", "--identity", phrases,
        "--threshold", "0.6",
    )  # fmt: skip
    result = json.loads(judged.output)
    assert result["sets"][0]["documents"] == 100 and result["sets"][0]["auc"] > 0.99
    assert [row["threshold"] for row in result["sets"][0]["rows"]] == [0.6]
    assert result["identity"][0]["phrases"] == 4 and ["deaf", 1, 1] in result["identity"][0]["terms"]
    shown = invoke("evaluate", second, "--model", model, "--label", "positive", *COLUMNS, "--input", "text")
    assert "| 0.500 |" in shown.output


def test_training_prints_one_machine_readable_result_if_asked(tmp_path: Path) -> None:
    data, model = write(tmp_path / "a.csv", made_set(0)), tmp_path / "m.ftz"
    made_of = json.loads(
        invoke("train", data, "--model", model, *COLUMNS, "--kept", "0.3", "--epochs", "2", "--json").output
    )
    assert made_of["xxh3"] == checksum(model.read_bytes()) and made_of["model"] == str(model)
    share = next(row for row in made_of["held_out"]["rows"] if row["threshold"] == made_of["threshold"])
    assert share["share_above"] == pytest.approx(0.3, abs=0.05)


def test_the_recipe_that_is_printed_pools_as_the_threshold_was_chosen(tmp_path: Path) -> None:
    data, model = write(tmp_path / "a.csv", made_set(0)), tmp_path / "m.ftz"
    options = ["--worst", "--epochs", "2", "--seed", "5", "--held-out", "0.3"]
    done = invoke("train", data, "--model", model, *COLUMNS, *options)
    assert f"filter: {{toxicity: {{model: {model}, label: positive, remove_above: 0.5}}}}" in done.output
    card = (tmp_path / "m.md").read_text()
    assert (
        "the mean of the worst 10% of them" in card and "seed 5, held_out 0.3" in card and "epochs 2," in card
    )


def test_judging_reads_and_pools_as_asked(tmp_path: Path) -> None:
    book, insult = PROSE * 20, " you stupid fucking bitch, shut the fuck up "
    data = write(tmp_path / "a.jsonl.gz", Labelled("made", [book + insult, book], [True, False]))
    model = fasttext_model.MODELS / "toxicity.safetensors"

    def recall(*options: str, threshold: str) -> float:
        options = ("--label", "toxic", *COLUMNS, "--json", "--threshold", threshold, *options)
        found = json.loads(invoke("evaluate", data, "--model", model, *options).output)["sets"][0]
        return float(found["rows"][0]["recall"])

    assert recall(threshold="0.1") == 0 and recall("--worst", threshold="0.1") == 1
    # As one text instead of by windows, the book is not diluted.
    assert (
        recall("--worst", threshold="0.4") == 0 and recall("--worst", "--input", "text", threshold="0.4") == 1
    )


def test_mistakes_of_the_commands(tmp_path: Path) -> None:
    data, model = write(tmp_path / "a.csv", made_set(0)), tmp_path / "m.ftz"
    shutil.copy(fasttext_model.MODELS / "quality.ftz", model)
    with pytest.raises(UserError, match="'pros' is not a label of the model; did you mean 'prose'"):
        invoke("evaluate", data, "--model", model, "--label", "pros", *COLUMNS)
    with pytest.raises(UserError, match="give one of them"):
        invoke("train", data, "--model", model, *COLUMNS, "--precision", "0.9", "--kept", "0.5")
    with pytest.raises(
        UserError, match=r"no record has that 'kind'; did you mean 'spam'\? \(there are: ham, spam\)"
    ):
        invoke("train", data, "--model", model, *COLUMNS[:-1], "spamm")
    with pytest.raises(UserError, match="is a folder; name the model's file"):
        invoke("train", data, "--model", tmp_path, *COLUMNS)
    with pytest.raises(UserError, match=r"m\.md: is where the card goes; name the model's file"):
        invoke("train", data, "--model", tmp_path / "m.md", *COLUMNS)
    wrong = invoke("train", data, "--model", model, *COLUMNS, "--precision", "95")
    assert wrong.exit_code == 2 and "less than or equal to 1" in wrong.output
    assert (fasttext_model.MODELS / "quality.ftz").read_bytes() == model.read_bytes()


def test_help_has_an_example() -> None:
    for name in ("train", "evaluate"):
        assert f"corpusmill classifier {name}" in " ".join(invoke(name, "--help").output.split())


def test_ctrl_c_leaves_nothing_and_no_traceback(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl.gz", made_set(0, 3000))
    command = [
        sys.executable,
        "-m",
        "corpusmill",
        "classifier",
        "train",
        data,
        "--model",
        tmp_path / "out/m.ftz",
    ]
    run = subprocess.Popen(
        [*map(str, command), *COLUMNS, "--epochs", "100000"], stderr=subprocess.PIPE, start_new_session=True
    )
    while not trains(run.pid):
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    reported = run.communicate(timeout=300)[1].decode()
    assert run.returncode == 130 and "Traceback" not in reported
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl.gz"]


def trains(pid: int) -> bool:
    """Whether a process that this one has started has fastText loaded, as the kernel lists them."""
    with contextlib.suppress(OSError):  # one that has just begun or ended
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any("fasttext" in Path(f"/proc/{child}/maps").read_text() for child in children)
    return False
