"""Training, judging and the two commands, on small made sets."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipeline.filter.classifiers import cli, fasttext_model, predictor
from pipeline.filter.classifiers.labelled import read_labelled
from pipeline.filter.classifiers.split import held_out
from pipeline.filter.classifiers.training import (
    Labelled,
    Training,
    auc,
    choose_threshold,
    evaluate_classifier,
    train_classifier,
)
from pipeline.filter.models import made
from schemas.errors import UserError
from schemas.ids import checksum

TRAINING = Training(label="spam", epochs=15, buckets=1000, features=2000, seed=3)


def made_set(seed: int, count: int = 300) -> Labelled:
    """Invitations and reports; positive where it is an invitation to buy."""
    rng = random.Random(seed)
    kinds = ["buy cheap win cash prize now free", "river bridge council winter school letter road"]
    words = [[word + end for word in kind.split() for end in ("", "s", "er", "ly", "ing")] for kind in kinds]
    texts, labels = [], []
    for _ in range(count):
        spam = rng.random() < 0.5
        texts.append(" ".join(rng.choice(words[0 if spam else 1]) for _ in range(rng.randint(5, 30))))
        labels.append(spam)
    return Labelled("made", texts, labels)


def test_training_is_reproducible_and_learns() -> None:
    data = made_set(0)
    trained = train_classifier([data], TRAINING)
    assert trained.binary == train_classifier([data], TRAINING).binary
    (out,) = trained.held_out
    assert 30 < len(out) < 100 and trained.copies == 0
    assert held_out(out.texts, TRAINING.held_out, TRAINING.seed).all()
    result = evaluate_classifier(predictor.load_bytes(trained.binary), "spam", made_set(1), "mean", [0.5])
    assert result.auc is not None and result.auc > 0.99
    precision, recall = result.at(0.5)["precision"], result.at(0.5)["recall"]
    assert precision is not None and recall is not None and precision > 0.9 and recall > 0.9


def test_a_near_copy_of_what_was_learnt_from_judges_nothing() -> None:
    data = made_set(0)
    out = held_out(data.texts, TRAINING.held_out, TRAINING.seed)
    learnt = next(t for t, apart in zip(data.texts, out, strict=True) if not apart and t.count(" ") > 20)
    words = learnt.split()
    near = [" ".join([*words[: i % len(words)], f"new{i}", *words[i % len(words) + 1 :]]) for i in range(200)]
    # A changed word moves some to the other side, where they are copies of what is learnt from.
    moved = held_out(near, TRAINING.held_out, TRAINING.seed)
    assert 0 < moved.sum() < 60
    more = Labelled("made", [*data.texts, *near], [*data.positive, *[True] * 200])
    trained = train_classifier([more], TRAINING)
    assert trained.copies == moved.sum()
    assert not set(near) & set(trained.held_out[0].texts)


def test_labels_that_fasttext_cannot_hold() -> None:
    for label in ("two words", "", "other"):
        with pytest.raises(UserError, match="one word is needed"):
            train_classifier([made_set(0)], Training(label=label))


def test_one_class_alone_cannot_be_trained_on() -> None:
    with pytest.raises(UserError, match="none without it"):
        train_classifier([Labelled("a", [f"x y z {i}" for i in range(20)], [True] * 20)], TRAINING)
    with pytest.raises(UserError, match="none with it"):
        train_classifier(
            [Labelled("a", ["x y z", "w v", "u t s"], [False] * 3)], Training(label="a", held_out=0.0)
        )


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_auc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    scores, truth = [s for s, _ in rows], [t for _, t in rows]
    pairs = [(a > b) + (a == b) / 2 for a, x in rows for b, y in rows if x and not y]
    found = auc(np.array(scores, np.float32), np.array(truth, np.bool_))
    assert found == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


def test_thresholds() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], np.float32)
    truth = np.array([True, True, False, True, False, False])
    # Above .7 all are right, above .5 three of four, above .4 three of five.
    assert choose_threshold(scores, truth, precision=1.0) == pytest.approx(0.7)
    assert choose_threshold(scores, truth, precision=0.75) == pytest.approx(0.5)
    assert choose_threshold(scores, truth, kept=0.5) == pytest.approx(0.65)
    with pytest.raises(UserError, match="no threshold reaches"):
        choose_threshold(scores, ~truth, precision=1.0)
    for wrong in ({}, {"precision": 0.5, "kept": 0.5}):
        with pytest.raises(UserError, match="either a target precision or a kept share"):
            choose_threshold(scores, truth, **wrong)


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
    return CliRunner().invoke(cli.app, [str(part) for part in arguments], catch_exceptions=False)


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
    assert f"filter: {{toxicity: {{model: {model}, label: positive, remove_above: 0." in done.output
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


def test_mistakes_of_the_commands(tmp_path: Path) -> None:
    data, model = write(tmp_path / "a.csv", made_set(0)), tmp_path / "m.ftz"
    shutil.copy(fasttext_model.MODELS / "quality.ftz", model)
    with pytest.raises(UserError, match="'pros' is no label of the model; did you mean 'prose'"):
        invoke("evaluate", data, "--model", model, "--label", "pros", *COLUMNS)
    with pytest.raises(UserError, match="give one of them"):
        invoke("train", data, "--model", model, *COLUMNS, "--precision", "0.9", "--kept", "0.5")
    with pytest.raises(
        UserError, match=r"no record has that 'kind'; did you mean 'spam'\? \(there are: ham, spam\)"
    ):
        invoke("train", data, "--model", model, *COLUMNS[:-1], "spamm")
    with pytest.raises(UserError, match="is a folder; name the model's file"):
        invoke("train", data, "--model", tmp_path, *COLUMNS)
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
    time.sleep(0.5)
    deadline = time.monotonic() + 60
    while not child(run.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    os.killpg(run.pid, signal.SIGINT)
    said = run.communicate(timeout=60)[1].decode()
    assert run.returncode == 130 and "Traceback" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl.gz"]


def child(pid: int) -> str:
    """The processes that one has started, as the kernel lists them."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "x", "lable": "y"}\n', "record 1 has no 'label'; did you mean 'lable'?"),
        ("a.jsonl", b"[1]\n", "record 1 has no 'text'"),
        ("a.jsonl", b"{broken\n", "cannot be read"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("a.csv", b"\xff\xfe", "cannot be read"),
        ("a.csv", b"text,label\nonly one\n", "record 1 has no 'label'"),
    ],
)
def test_bad_labelled_files(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        read_labelled(tmp_path / name, "text", "label", ["y"])
    assert said in str(error.value) and name in str(error.value)
    with pytest.raises(UserError, match="no such file"):
        read_labelled(tmp_path / "absent.csv", "text", "label", ["y"])


def test_made_texts_come_from_the_seed_alone() -> None:
    for make in (made.neutral_people, made.menus, made.stuffed, made.machine):
        assert make(1, 20) == make(1, 20) != make(2, 20) and all(make(1, 20))
    assert (
        made.shuffled(1, ["a b c d e f g h"]) == made.shuffled(1, ["a b c d e f g h"]) != ["a b c d e f g h"]
    )


@pytest.mark.slow
def test_the_shipped_models_can_be_made_again(data_dir: Path, tmp_path: Path) -> None:
    from pipeline.filter.models import train_shipped

    train_shipped.main([str(data_dir), str(tmp_path)])
    for name in ("toxicity.ftz", "quality.ftz", "toxicity.md", "quality.md", "models.json"):
        assert (tmp_path / name).read_bytes() == (fasttext_model.MODELS / name).read_bytes()
