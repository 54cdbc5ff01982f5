"""The files of GLUE and SuperGLUE as rows, and each task's own metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.train.commands import register
from corpusmill.train.evaluate.metrics.glue import TASKS, read_rows, score
from tests.command_line import CliRunner

TSV: dict[str, tuple[str, dict[str, Any]]] = {
    "cola": ('gj04\t0\t*\tThe "book was.\n', {"sentence": 'The "book was.', "label": 0, "idx": "0"}),
    "sst2": ("sentence\tlabel\nvery good \t1\n", {"sentence": "very good ", "label": 1, "idx": "0"}),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tOne .\tTwo .\r\n",
        {"sentence1": "One .", "sentence2": "Two .", "label": 1, "idx": "0"},
    ),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "4\tmain\tf\t2012\t9\tnone\tnone\tA man.\tA woman.\t2.600\n",
        {"sentence1": "A man.", "sentence2": "A woman.", "label": 2.6, "idx": "4"},
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133273\t1\t2\tWhy?\tHow?\t0\n",
        {"question1": "Why?", "question2": "How?", "label": 0, "idx": "133273"},
    ),
    "mnli": (
        "index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label\n3\tx\tP.\tH.\tneutral\tcontradiction\n",
        {"premise": "P.", "hypothesis": "H.", "label": 2, "idx": "3"},
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n5\tWho?\tHim.\tnot_entailment\n",
        {"question": "Who?", "sentence": "Him.", "label": 1, "idx": "5"},
    ),
    "rte": ("index\tsentence1\tsentence2\n0\tA.\tB.\n", {"sentence1": "A.", "sentence2": "B.", "label": -1, "idx": "0"}),
}  # fmt: skip


@pytest.mark.parametrize("task", TSV)
def test_rows_of_glue(task: str) -> None:
    text, row = TSV[task]
    assert read_rows(task, text) == [row]


CELL = st.text(st.characters(blacklist_characters="\t\n\r", blacklist_categories=("Cs",)), max_size=12)


@given(st.lists(st.tuples(CELL, st.sampled_from("01")), max_size=6))
def test_every_line_of_a_tsv_is_a_row(rows: list[tuple[str, str]]) -> None:
    """Whatever its text holds: quotation marks and line separators of Unicode separate nothing."""
    text = "sentence\tlabel\n" + "".join(f"{sentence}\t{label}\n" for sentence, label in rows)
    found = read_rows("sst2", text)
    assert [(row["sentence"], str(row["label"])) for row in found] == rows


def test_rows_of_superglue() -> None:
    lines: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
        "super_boolq": (
            {"question": "is it", "passage": "It is.", "idx": 1, "label": True},
            [{"question": "is it", "passage": "It is.", "idx": "1", "label": 1}],
        ),
        "super_cb": (
            {"premise": "P", "hypothesis": "H", "label": "neutral", "idx": 0},
            [{"premise": "P", "hypothesis": "H", "label": 2, "idx": "0"}],
        ),
        "super_copa": (
            {"premise": "P", "choice1": "A", "choice2": "B", "question": "cause", "label": 0, "idx": 2},
            [{"premise": "P", "choice1": "A", "choice2": "B", "question": "cause", "label": 0, "idx": "2"}],
        ),
        "super_wsc": (
            {"text": "T", "target": {"span1_index": 0, "span1_text": "T", "span2_index": 1, "span2_text": "it"}, "idx": 0, "label": False},
            [{"text": "T", "span1_index": 0, "span1_text": "T", "span2_index": 1, "span2_text": "it", "idx": "0", "label": 0}],
        ),
        "super_multirc": (
            {"idx": 3, "passage": {"text": "P", "questions": [{"question": "Q", "idx": 5, "answers": [
                {"text": "A", "idx": 8, "label": 1}, {"text": "B", "idx": 9, "label": 0}]}]}},
            [{"paragraph": "P", "question": "Q", "answer": text, "idx": f"3-5-{n}", "group": "3-5", "passage": "3", "label": label}
             for text, n, label in (("A", 8, 1), ("B", 9, 0))],
        ),
        "super_record": (
            {"idx": 0, "passage": {"text": "Ann met Bob.", "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 10}]},
             "qas": [{"idx": 7, "query": "@placeholder left", "answers": [{"text": "Bob", "start": 8, "end": 10}]}]},
            [{"passage": "Ann met Bob.", "query": "@placeholder left", "entities": ["Ann", "Bob"], "answers": ["Bob"], "idx": "7", "group": "0"}],
        ),
    }  # fmt: skip
    for task, (line, rows) in lines.items():
        assert read_rows(task, f"{json.dumps(line)}\n\n") == rows


def test_rows_that_do_not_fit_are_named() -> None:
    for task, text, message in (
        ("sst2", "text\tlabel\nx\t1\n", "data: has no column sentence; its heading is text, label"),
        ("sst2", "sentence\tlabel\nok\t1\nshort\n", "data: line 3: 1 columns, 2 are needed"),
        ("sst2", "sentence\tlabel\nx\t2\n", "line 2: the label '2' is none of 0, 1"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\thigh\n", "line 2: the label 'high' is not a number"),
        (
            "super_cb",
            '{"premise": "P", "idx": 0, "label": "maybe"}',
            "data: line 1: the label 'maybe' is none of entailment",
        ),
        ("super_multirc", '{"idx": 0}', "line 1: not a row of super_multirc: KeyError"),
        ("super_cb", "[1]", "line 1: not a row of super_cb"),
    ):
        with pytest.raises(UserError, match=message):
            read_rows(task, text)


def test_each_task_has_the_metrics_of_its_paper() -> None:
    metrics = {name: set(task.metrics) for name, task in TASKS.items()}
    assert metrics["cola"] == {"matthews"} and metrics["stsb"] == {"pearson", "spearman"}
    assert metrics["mrpc"] == metrics["qqp"] == {"f1", "accuracy"} and metrics["super_cb"] == {
        "accuracy",
        "f1_macro",
    }
    for name, about in TASKS.items():
        if about.labels and name != "super_multirc":
            rows = [{"label": n % len(about.labels)} for n in range(6)]
            right = score(name, rows, [about.labels[row["label"]] for row in rows])
            assert set(right) == set(about.metrics) and all(one.value == 1 for one in right.values())
            assert score(name, rows, [row["label"] for row in rows]) == right  # numbers as well as names
            assert all(one.value < 0.7 for one in score(name, rows, ["?"] * 6).values())


def test_numbers_of_stsb() -> None:
    rows = [{"label": value} for value in (0.0, 1.0, 2.5, 5.0)]
    found = score("stsb", rows, ["0", "1", "4", "5"])
    with pytest.raises(UserError, match="stsb: a prediction is not a number"):
        score("stsb", rows, ["0", "1", "high", "5"])
    assert found["spearman"].value == pytest.approx(1) and 0.9 < found["pearson"].value < 1


def test_multirc_is_by_answer_and_by_question() -> None:
    """Two passages: three questions, of which one is answered rightly throughout."""
    rows = [
        {"passage": passage, "group": group, "label": label}
        for passage, group, label in (("0", "0-0", 1), ("0", "0-0", 0), ("0", "0-1", 1), ("0", "0-1", 1), ("1", "1-0", 0))
    ]  # fmt: skip
    found = score("super_multirc", rows, [1, 0, 1, 0, 1])
    assert found["f1a"].value == pytest.approx(2 * 2 / (3 + 3)) and found[
        "exact_match"
    ].value == pytest.approx(1 / 3)
    assert (found["exact_match"].n, found["exact_match"].clusters, found["f1a"].clusters) == (3, 2, 2)


def test_record_takes_the_best_answer() -> None:
    rows = [{"answers": ["New York", "NYC"], "group": "0"}, {"answers": ["Bob"], "group": "0"}]
    found = score("super_record", rows, ["the new york", "Ann Bob"])
    assert found["exact_match"].value == 0.5 and found["f1"].value == pytest.approx((1 + 2 / 3) / 2)


def test_predictions_are_matched_by_idx(tmp_path: Path) -> None:
    from corpusmill.train.evaluate.metrics.files import score_labels

    data, file = tmp_path / "dev.tsv", tmp_path / "predictions.jsonl"
    data.write_text("index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment\n1\tC\tD\tnot_entailment\n")
    file.write_text('{"idx": 1, "label": "not_entailment"}\n{"idx": 0, "label": "not_entailment"}\n')
    found = score_labels(str(file), "rte", str(data))
    assert found["metrics"]["accuracy"]["value"] == 0.5 and found["items"] == 2
    file.write_text('{"idx": 1, "label": "entailment"}\n')
    with pytest.raises(
        UserError, match="1 predictions for 2 rows of .*; 1 are missing, such as that of idx 0"
    ):
        score_labels(str(file), "rte", str(data))
    with pytest.raises(UserError, match="rt: is no task of GLUE .*did you mean 'rte'"):
        score_labels(str(file), "rt", str(data))
    data.write_text("index\tsentence1\tsentence2\n0\tA\tB\n")
    with pytest.raises(UserError, match="has no labels to compare with"):
        score_labels(str(file), "rte", str(data))


def test_rows_are_written_as_data_of_a_task(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    file = tmp_path / "dev.tsv"
    file.write_text(TSV["mnli"][0])
    done = CliRunner().invoke(app, ["glue-rows", "mnli", str(file)])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [TSV["mnli"][1]]
    missing = CliRunner().invoke(app, ["glue-rows", "mnli", str(tmp_path / "none")])
    assert isinstance(missing.exception, UserError) and "no such file" in str(missing.exception)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"idx": 0, "label": 0}', '{"idx": "0", "label": 1}'],
            "row 2: a second prediction for idx 0, after row 1",
        ),
        (
            ['{"idx": 0, "label": [1]}'],
            "row 1: label is neither a text nor a number: the name or number of a label",
        ),
        (['{"idx": 0, "label": {"a": 1}}'], "row 1: label is neither a text nor a number"),
    ],
)
def test_predictions_that_are_none_are_one_line(tmp_path: Path, lines: list[str], message: str) -> None:
    from corpusmill.train.evaluate.metrics.files import score_labels

    data, file = tmp_path / "dev.tsv", tmp_path / "predictions.jsonl"
    data.write_text("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n")
    file.write_text("\n".join(lines))
    with pytest.raises(UserError, match=f"predictions.jsonl: {message}"):
        score_labels(str(file), "rte", str(data))
