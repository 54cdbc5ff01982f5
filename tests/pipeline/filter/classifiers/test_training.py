"""Training, judging and the two commands, on small made sets."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipeline.filter.classifiers import cli, fasttext_model
from pipeline.filter.classifiers.training import (
    Labelled,
    Training,
    auc,
    choose_threshold,
    evaluate_classifier,
    is_held_out,
    train_classifier,
)
from pipeline.filter.models import made
from schemas.errors import UserError
from schemas.ids import checksum

TRAINING = Training(label="spam", epochs=15, buckets=1000, features=2000, seed=3)


def made_set(seed: int, count: int = 300) -> Labelled:
    """Invitations and reports; positive where it is an invitation to buy."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        spam = rng.random() < 0.5
        words = (
            "buy cheap win cash prize now free" if spam else "river bridge council winter school letter road"
        )
        texts.append(" ".join(rng.choice(words.split()) for _ in range(rng.randint(5, 30))))
        labels.append(spam)
    return Labelled("made", texts, labels)


def loaded(binary: bytes, folder: Path):  # type: ignore[no-untyped-def]
    (folder / "m.ftz").write_bytes(binary)
    return fasttext_model.load(str(folder / "m.ftz"), checksum(binary))


def test_training_is_reproducible_and_learns(tmp_path: Path) -> None:
    data = made_set(0)
    binary, held_out = train_classifier([data], TRAINING)
    again, _ = train_classifier([data], TRAINING)
    assert binary == again
    assert 30 < len(held_out[0]) < 100 and all(is_held_out(text, TRAINING) for text in held_out[0].texts)
    result = evaluate_classifier(loaded(binary, tmp_path), "spam", made_set(1), "mean", [0.5])
    assert result.auc is not None and result.auc > 0.99
    precision, recall = result.at(0.5)["precision"], result.at(0.5)["recall"]
    assert precision is not None and recall is not None and precision > 0.9 and recall > 0.9


def test_equal_texts_are_on_one_side_of_the_split() -> None:
    data = Labelled("twice", ["same words here"] * 50 + ["others there"] * 50, [True] * 50 + [False] * 50)
    shares = {
        sum(is_held_out(t, TRAINING) for t in data.texts[:50]),
        sum(is_held_out(t, TRAINING) for t in data.texts[50:]),
    }
    assert shares <= {0, 50}


def test_one_class_alone_cannot_be_trained_on() -> None:
    with pytest.raises(UserError, match="none without it"):
        train_classifier([Labelled("a", ["x y z"] * 20 + ["w v"], [True] * 21)], TRAINING)
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


def test_the_commands(tmp_path: Path) -> None:
    columns = ["--text-column", "body", "--label-column", "kind", "--positive", "spam"]
    first, second = write(tmp_path / "a.csv", made_set(0)), write(tmp_path / "b.jsonl.gz", made_set(1, 100))
    model = tmp_path / "out" / "mine.ftz"
    run = CliRunner().invoke
    done = run(
        cli.app,
        ["train", str(first), "--model", str(model), *columns, "--unseen", str(second), "--precision",
        "0.9", "--licence", "CC0"],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0 and "threshold" in done.output
    card = (tmp_path / "out" / "mine.md").read_text()
    assert checksum(model.read_bytes()) in card and "| b.jsonl | 100 |" in card and "| CC0 |" in card
    judged = run(
        cli.app, ["evaluate", str(second), "--model", str(model), "--label", "positive", *columns, "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    (result,) = json.loads(judged.output)
    assert result["documents"] == 100 and result["auc"] > 0.99
    shown = run(cli.app, ["evaluate", str(second), "--model", str(model), "--label", "positive", *columns])
    assert "| 0.500 |" in shown.output
    with pytest.raises(UserError, match="did you mean 'positive'"):
        run(cli.app, ["evaluate", str(second), "--model", str(model), "--label", "positiv", *columns],
            catch_exceptions=False)  # fmt: skip


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
        cli.read_labelled(tmp_path / name, "text", "label", ["y"])
    assert said in str(error.value) and name in str(error.value)
    with pytest.raises(UserError, match="no such file"):
        cli.read_labelled(tmp_path / "absent.csv", "text", "label", ["y"])


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
