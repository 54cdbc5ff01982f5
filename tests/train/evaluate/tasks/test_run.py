"""`corpusmill evaluate RUN --tasks`: what it prints and writes, what it scores again, what it refuses."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import corpusmill
from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import ITEMS, RESULTS, Estimate, EvaluationResults, Item
from corpusmill.train.evaluate.tasks import run as tasks_run
from corpusmill.train.evaluate.tasks.read import shipped
from corpusmill.train.evaluate.tasks.run import exponential, ratio, scaled
from tests.train.test_commands import command

PAIRS = [
    {"sentence_good": f"The model {verb}s {n} rows.", "sentence_bad": f"The model rows {verb} {n} the.", "UID": verb, "field": "x",
     "pairID": str(n)}
    for verb in ("read", "write") for n in range(6)
]  # fmt: skip


@pytest.fixture
def run(reader: Path, tmp_path: Path) -> Path:
    shutil.copytree(reader, tmp_path / "reader")
    return tmp_path / "reader/run"


def written(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def evaluate(run: Path, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(command("evaluate", str(run), *arguments, "--json")))


def items_of(run: Path, task: str) -> list[Item]:
    lines = (run / f"{ITEMS}/{task}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Item.model_validate_json(line) for line in lines]


def test_results_items_and_the_table(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(tmp_path / "blimp.jsonl", PAIRS)
    options = ("--tasks", "blimp", "--data", f"blimp={data}")
    results = evaluate(run, *options)
    assert results == json.loads((run / RESULTS).read_text())
    assert results == corpusmill.evaluate(run, tasks=["blimp"], data={"blimp": data})
    assert not (run / "evaluation.json").exists()
    task = EvaluationResults.model_validate(results).tasks["blimp"]
    items = items_of(run, "blimp")
    assert task.items == len(items) == 12 and task.chance == 0.5 and task.skipped == {}
    accuracy = sum(item.metrics["acc"] for item in items) / 12
    assert task.metrics["acc"].value == pytest.approx(accuracy) and task.metrics["acc"].n == 12
    by_verb = task.slices["paradigm"]
    assert set(by_verb) == {"read", "write"} and by_verb["read"]["acc"].n == 6
    assert (by_verb["read"]["acc"].value + by_verb["write"]["acc"].value) / 2 == pytest.approx(accuracy)
    assert (
        items[0].choices == [PAIRS[0]["sentence_good"], PAIRS[0]["sentence_bad"]] and items[0].id == "read.0"
    )
    monkeypatch.setenv("COLUMNS", "80")
    shown = command("evaluate", str(run), *options)
    assert "blimp: 12 items (reader, step 40)" in shown and "\n| acc " in shown and "0.500 |" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_nothing_is_scored_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(tmp_path / "blimp.jsonl", PAIRS)
    other = {"task": "other", "output_type": "loglikelihood", "data": "blimp.jsonl", "doc_to_text": "sentence_bad",
             "doc_to_target": " The end"}  # fmt: skip
    (tmp_path / "other.yaml").write_text(json.dumps(other))
    options = ("--tasks", f"blimp,{tmp_path / 'other.yaml'}", "--data", f"blimp={data}")
    scored: list[str] = []
    real = tasks_run.score

    def counted(prepared: Any, *rest: Any) -> Any:
        scored.append(prepared.task.task)
        return real(prepared, *rest)

    monkeypatch.setattr(tasks_run, "score", counted)
    first = evaluate(run, *options)
    assert scored == ["blimp", "other"] and set(first["tasks"]) == {"blimp", "other"}
    assert evaluate(run, *options) == first and evaluate(run, *options[:1], "blimp", *options[2:]) == first
    assert len(scored) == 2
    (tmp_path / "other.yaml").write_text(json.dumps({**other, "about": "words that change no figure"}))
    evaluate(run, *options)
    assert len(scored) == 2
    evaluate(run, *options, "--limit", "5")
    assert scored[2:] == ["blimp", "other"]
    evaluate(run, *options)
    (tmp_path / "other.yaml").write_text(json.dumps({**other, "doc_to_target": " The"}))
    evaluate(run, *options)
    assert scored[4:] == ["blimp", "other", "other"]
    written(tmp_path / "blimp.jsonl", PAIRS[:8])
    evaluate(run, *options)
    assert scored[7:] == ["blimp", "other"]
    (run / f"{ITEMS}/blimp.jsonl").unlink()
    last = evaluate(run, *options)
    assert scored[9:] == ["blimp"] and len(items_of(run, "blimp")) == 8
    # Of other weights nothing is kept, and no items stay behind.
    record = {**last, "weights_hash": "0"}
    (run / RESULTS).write_text(json.dumps(record))
    alone = evaluate(run, *options[:1], "blimp", *options[2:])
    assert set(alone["tasks"]) == {"blimp"} and scored[10:] == ["blimp"]
    assert [file.name for file in (run / ITEMS).iterdir()] == ["blimp.jsonl"]


def test_a_limit_is_an_even_sample_and_its_items_are_those_of_all(run: Path, tmp_path: Path) -> None:
    data = written(tmp_path / "blimp.jsonl", PAIRS)
    options = ("--tasks", "blimp", "--data", f"blimp={data}", "--num-fewshot", "1")
    evaluate(run, *options)
    whole = {item.id: item for item in items_of(run, "blimp")}
    part = evaluate(run, *options, "--limit", "4")["tasks"]["blimp"]
    assert part["items"] == 4 and part["fewshot"] == 1
    assert part["notes"] == ["4 of 12 rows, spread evenly", "examples are other rows of the evaluated data"]
    found = items_of(run, "blimp")
    assert [item.id for item in found] == ["read.0", "read.2", "write.1", "write.4"]
    for item in found:
        assert item.prompt == whole[item.id].prompt != "" and item.logprobs == pytest.approx(
            whole[item.id].logprobs, abs=1e-4
        )


def test_progress_is_shown(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("corpusmill.train.evaluate.progress.EVERY", 0.0)
    corpusmill.evaluate(run, tasks=["blimp"], data={"blimp": written(tmp_path / "blimp.jsonl", PAIRS)})
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "blimp: 12 items"
    assert shown[-1].startswith("blimp: 12 of 12 items, ") and shown[-1].endswith(" items/s, 0 s left")


def test_damaged_rows_are_counted(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "blimp.jsonl"
    written(data, PAIRS[:3])
    data.write_text(
        data.read_text() + "{broken\n" + json.dumps({"UID": "u", "field": "f", "pairID": "9"}) + "\n"
    )
    task = evaluate(run, "--tasks", "blimp", "--data", f"blimp={data}")["tasks"]["blimp"]
    assert task["items"] == 3
    assert task["skipped"] == {"doc_to_choice: gives no list of texts": 1, "not JSON": 1}
    shown = command("evaluate", str(run), "--tasks", "blimp", "--data", f"blimp={data}")
    assert "blimp: 1 not scored: not JSON" in shown


def test_generated_texts_and_a_folder_of_data(run: Path, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(4)]
    written(tmp_path / "gsm8k.jsonl", rows[:2])
    written(tmp_path / "gsm8k.fewshot.jsonl", rows[2:])
    options = ("--tasks", "gsm8k", "--data", str(tmp_path), "--num-fewshot", "2")
    task = evaluate(run, *options)["tasks"]["gsm8k"]
    assert (
        set(task["metrics"]) == {"exact_match,strict-match", "exact_match,flexible-extract"}
        and task["chance"] is None
    )
    items = items_of(run, "gsm8k")
    assert all(
        item.generated and item.references == [row["answer"]]
        for item, row in zip(items, rows[:2], strict=True)
    )
    assert all("Question: What is 3 + 1?" in item.prompt for item in items)
    shown = command("evaluate", str(run), *options)
    assert "gsm8k: 2 items, 2 examples before each" in shown and max(map(len, shown.splitlines())) <= 80
    assert "gsm8k: 2 of 2 prompts are longer" not in shown


def test_perplexity_has_the_interval_of_its_logarithm(run: Path, tmp_path: Path) -> None:
    data = written(tmp_path / "l.jsonl", [{"text": row["sentence_good"]} for row in PAIRS])
    task = evaluate(run, "--tasks", "lambada", "--data", f"lambada={data}")["tasks"]["lambada"]
    mean = sum(item.metrics["loglikelihood"] for item in items_of(run, "lambada")) / 12
    found = task["metrics"]["perplexity"]
    assert found["value"] == pytest.approx(math.exp(-mean)) and found["low"] < found["value"] < found["high"]
    one = exponential(
        scaled(Estimate(value=-2.0, se=0.1, low=-2.2, high=-1.8, n=5, clusters=5, method="clt"), -1)
    )
    assert (one.value, one.se) == (pytest.approx(math.exp(2)), pytest.approx(0.1 * math.exp(2)))
    assert (one.low, one.high) == (pytest.approx(math.exp(1.8)), pytest.approx(math.exp(2.2)))


def test_bits_per_byte_of_texts(run: Path, tmp_path: Path) -> None:
    texts = ["Short.", "The model reads rows. " * 60, "日本語 text"]
    data = written(
        tmp_path / "t.jsonl", [{"text": text, "source": "b" if "m" in text else "a"} for text in texts]
    )
    task = evaluate(run, "--tasks", "text", "--data", f"text={data}")["tasks"]["text"]
    items = items_of(run, "text")
    nats, size = -sum(item.logprobs[0] for item in items), sum(len(text.encode()) for text in texts)
    assert task["metrics"]["bits_per_byte"]["value"] == pytest.approx(nats / math.log(2) / size)
    assert task["metrics"]["byte_perplexity"]["value"] == pytest.approx(math.exp(nats / size))
    own = [item.metrics["bits_per_byte"] for item in items]
    assert own == pytest.approx([-i.logprobs[0] / math.log(2) / len(i.choices[0].encode()) for i in items])
    assert (
        set(task["slices"]["source"]) == {"a", "b"}
        and task["slices"]["source"]["b"]["bits_per_byte"]["se"] is None
    )
    assert task["notes"] == ["texts are read in windows of 256 tokens, without overlap"]


def test_the_ratio_of_sums_and_its_error() -> None:
    nats, sizes = [1.0, 4.0, 2.0, 9.0], [2, 3, 2, 5]
    items = [
        Item(id=str(n), cluster=str(n), prompt="", logprobs=[-x], metrics={}) for n, x in enumerate(nats)
    ]
    found = ratio(items, sizes)
    assert found.value == pytest.approx(16 / 12) and found.n == 4
    left = [x - 16 / 12 * size for x, size in zip(nats, sizes, strict=True)]
    assert found.se == pytest.approx(math.sqrt(sum(x * x for x in left) * 4 / 3) / 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tasks", "nope"), "--tasks nope: no such task"),
        (("--tasks", " , "), "--tasks: names no task"),
        (("--tasks", "blimp"), "blimp: where are its rows"),
        (("--tasks", "blimp,blimp", "--data", "blimp=x"), "two tasks have the name blimp"),
        (("--tasks", "blimp", "--data", "bimp=x"), "--data bimp=...: no such task is evaluated"),
        (("--tasks", "blimp", "--data", "=x"), "--data =x: must be TASK=FILE or a folder"),
        (("--tasks", "blimp", "--data", "blimp=gone.jsonl"), "gone.jsonl: no such file"),
        (("--limit", "5"), "--data, --limit, --num-fewshot: are of tasks"),
    ],
)
def test_mistakes_are_one_line(reader: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as error:
        command("evaluate", str(reader / "run"), *arguments)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_rows_of_another_task_name_their_columns(reader: Path, tmp_path: Path) -> None:
    data = written(tmp_path / "x.jsonl", [{"a": 1, "b": 2}])
    with pytest.raises(
        UserError,
        match=r"piqa: .*x\.jsonl: gives no item: doc_to_text: 'goal' is undefined; its columns: 'a', 'b'",
    ):
        command("evaluate", str(reader / "run"), "--tasks", "piqa", "--data", f"piqa={data}")


def test_tasks_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = command("tasks").splitlines()
    assert [line.split()[0] for line in shown] == shipped()
    assert max(map(len, shown)) <= 80
    assert "doc_to_choice" in command("tasks", "piqa")
    assert json.loads(command("tasks", "piqa", "--json"))["task"] == "piqa"
    assert len(json.loads(command("tasks", "--json"))) == len(shipped())
