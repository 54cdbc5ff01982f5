"""Equal to lm-evaluation-harness, item by item: its own task files with an exported model, and with the run through our adaptor."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.peers import HARNESS, NotMeasured, packages
from corpusmill.schemas.evaluation import ITEMS, EvaluationResults, Item
from corpusmill.train.evaluate.tasks.read import SHIPPED, read_task
from corpusmill.train.evaluate.tasks.run import evaluate_tasks
from corpusmill.train.run_folder import open_run
from tests.conftest import DATA, IMPORT_PATH, shared
from tests.train.evaluate.tasks.runs import LENGTH
from tests.train.test_commands import command

MEAN = {"aggregation": "mean", "higher_is_better": True}
CHOICES = ["acc", "acc_norm", "acc_bytes", "exact_match", "brier_score"]
ROLLING = {
    "task": "rolling", "output_type": "loglikelihood_rolling", "dataset_path": "json", "doc_to_text": "",
    "doc_to_target": "{{text}}", "test_split": "test", "metric_list": [{"metric": "bits_per_byte"}],
}  # fmt: skip
GENERATED = {"max_gen_toks": 12}


class Case(NamedTuple):
    """A shipped task beside a file of the harness (below its `tasks`), on the same rows."""

    theirs: str
    rows: list[dict[str, Any]]
    metrics: list[str] = []  # noqa: RUF012
    examples: list[dict[str, Any]] = []  # noqa: RUF012
    shots: int = 0
    ours: list[dict[str, Any]] = []  # noqa: RUF012 (rows as first published, where the harness has others)


def sentences(number: int) -> str:
    return f"Ship {number} left the port at dawn. It carried {number * 3} barrels of tea."


MADE: dict[str, Case] = {
    "piqa": Case("piqa/piqa.yaml", [
        {"goal": "boil an egg", "sol1": "Put it into hot water. ", "sol2": "Put it on a warm roof — all day.", "label": 0},
        {"goal": "Öl wechseln", "sol1": "the öld oil goes oüt first", "sol2": "add more", "label": 1},
    ], [*CHOICES, "acc_mutual_info"]),
    "arc_easy": Case("arc/arc_easy.yaml", [
        {"id": "a", "question": "What melts?", "choices": {"text": ["ice", "stone", "1"], "label": ["1", "2", "3"]}, "answerKey": "1"},
        {"id": "b", "question": "What shines?", "choices": {"text": ["mud", "the sun"], "label": ["A", "B"]}, "answerKey": "B"},
    ], [*CHOICES[:4]]),
    "sciq": Case("sciq/sciq.yaml", [
        {"question": "What is it?", "support": "  It is water.", "distractor1": "fire", "distractor2": "air", "distractor3": "sand",
         "correct_answer": "water"},
        {"question": "And then?", "support": "", "distractor1": "a", "distractor2": "b", "distractor3": "c", "correct_answer": "d"},
    ], CHOICES, [
        {"question": "Why?", "support": "Because.", "distractor1": "e", "distractor2": "f", "distractor3": "g", "correct_answer": "h"},
    ], 1),
    "boolq": Case("super_glue/boolq/default.yaml", [
        {"passage": sentences(n), "question": f"did ship {n} carry tea", "label": n % 2} for n in range(3)
    ], CHOICES),
    "winogrande": Case("winogrande/default.yaml", [
        {"sentence": "The cup did not fit into the bag because the _ was too big.", "option1": "cup", "option2": "bag", "answer": "1"},
        {"sentence": "Ann called Eve, but _ did not hear it.", "option1": "Ann", "option2": "Eve", "answer": "2"},
    ], ["acc"], [
        {"sentence": "Tom paid Jim since _ had asked.", "option1": "Tom", "option2": "Jim", "answer": "2"},
    ], 1),
    "lambada": Case("lambada/lambada_openai.yaml", [{"text": sentences(n)} for n in range(3)], ["acc", "perplexity"]),
    "triviaqa": Case("triviaqa/default.yaml", [
        {"question": f"What did ship {n} carry", "answer": {"aliases": ["Tea", f"tea {n}"]}} for n in range(3)
    ], ["exact_match"], [
        {"question": f"Who was {n}", "answer": {"aliases": [f"nobody {n}", "none"]}} for n in range(4)
    ], 2),
    **{name: Case(f"glue/{name}/default.yaml", [
        {"sentence": f"{sentences(n)} ", "sentence1": f"It is {n}.", "sentence2": f"He saw {n} of them .", "question": f"What is {n}?",
         "question1": f"Why {n}?", "question2": f"How {n}?", "premise": sentences(n), "hypothesis": f" It has {n} sails" + "." * (n % 2),
         "label": n % 2} for n in range(3)
    ], ["acc"]) for name in ("sst2", "cola", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli")},
    **{name: Case(f"super_glue/{name}/default.yaml", [
        {"premise": f"The man {n} fell. ", "hypothesis": f"he was {n}", "choice1": "He slipped.", "choice2": f"It was {n}.",
         "question": ("cause", "effect")[n % 2], "sentence1": f"The bank {n} is high.", "sentence2": "I sat at the bank.", "start1": 4,
         "end1": 8, "label": n % 2} for n in range(3)
    ], ["acc"]) for name in ("cb", "copa", "wic")},
    "wsc": Case("super_glue/wsc/default.yaml", [
        {"text": f'Ann reminded Eve , who was {n} , that " she did n\'t see her ( at all ) \' .', "span1_index": 0, "span1_text": "Ann",
         "span2_index": 9, "span2_text": "she", "label": n % 2} for n in range(3)
    ], ["acc"]),
}  # fmt: skip


def lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def some(rows: Iterator[dict[str, Any]] | list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Rows spread evenly."""
    every = list(rows)
    return [every[number * len(every) // count] for number in range(count)]


def mmlu(file: Path, count: int) -> list[dict[str, Any]]:
    """Questions out of rows that each have one of four answers."""
    found: dict[int, dict[str, Any]] = {}
    for row in lines(file):
        made = found.setdefault(
            row["eval_instance_index"],
            {"question": row["question"], "subject": "anatomy", "choices": [], "answer": 0},
        )
        if row["is_correct"]:
            made["answer"] = len(made["choices"])
        made["choices"].append(row["answer"])
    whole = [row for row in found.values() if len(row["choices"]) == 4]
    return some(whole, count)


def hellaswag(row: dict[str, Any]) -> dict[str, Any]:
    """As first published: the context's beginning, and the words with which the last sentence begins."""
    before, dot, after = row["ctx"].rpartition(". ")
    return {**row, "ctx_a": before + dot.strip(), "ctx_b": after, "label": str(row["label"])}


def winogender(row: dict[str, Any]) -> dict[str, Any]:
    """As the Hub has it."""
    occupation, participant, answer, gender, _ = row["sentid"].split(".")
    forms = {"male": "he him his", "female": "she her hers", "neutral": "they them their"}[gender].split()
    words = row["sentence"].replace(",", " ").replace(".", " ").lower().split()
    pronoun = next(word for word in words if word in forms)
    return {
        **row, "occupation": occupation, "participant": participant, "label": int(answer), "gender": gender,
        "pronoun": pronoun,
    }  # fmt: skip


def real() -> dict[str, Case]:
    """Samples of published sets."""
    sets = DATA / "evalsets"
    if not sets.is_dir():
        return {}
    with gzip.open(sets / "crows_pairs/crows_pairs.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        # The harness takes the column without a name for the (empty) doc_to_text.
        crows = [
            {key: value for key, value in row.items() if key} for row in some(list(csv.DictReader(stream)), 8)
        ]
    with (sets / "winogender/all_sentences.tsv").open(encoding="utf-8", newline="") as stream:
        gender = some(list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)), 12)
    numbers = [
        {"question": row["question"], "answer": row["answer"]}
        for row in lines(sets / "decon_mmlu_gsm8k/gsm8k_test-1.jsonl.gz")
    ]
    test, dev = (
        mmlu(sets / f"decon_mmlu_gsm8k/mmlu_{name}-1.jsonl.gz", n) for name, n in (("test", 6), ("dev", 5))
    )
    pairs = lines(sets / "blimp/blimp.jsonl.gz")
    stories = [hellaswag(row) for row in some(lines(sets / "hellaswag_val/hellaswag_val.jsonl.gz"), 8)]
    people = some(lines(sets / "bbq/bbq_every_4th.jsonl.gz"), 12)
    return {
        "blimp": Case("blimp/adjunct_island.yaml", some(pairs, 16), CHOICES),
        "hellaswag": Case("hellaswag/hellaswag.yaml", stories, [*CHOICES, "acc_mutual_info"]),
        "mmlu": Case("mmlu/default/mmlu_anatomy.yaml", test, CHOICES, dev, 2),
        "mmlu_continuation": Case("mmlu/continuation/mmlu_anatomy.yaml", test, CHOICES),
        "gsm8k": Case("gsm8k/gsm8k.yaml", numbers[:4], [], numbers[4:12], 3),
        "crows_pairs": Case("crows_pairs/crows_pairs_english.yaml", crows),
        "winogender": Case(
            "winogender/winogender.yaml", [winogender(row) for row in gender], CHOICES, ours=gender
        ),
        "bbq": Case("bbq/bbq_multiple_choice.yaml", people),
    }


CASES = {**MADE, **real()}
ADAPTED = [
    "rolling",
    *(f"local_{name}" for name in ("piqa", "winogrande", "triviaqa", "gsm8k") if name in CASES),
]


def write_rows(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def write_tasks(folder: Path, harness: Path) -> None:
    """For each case the harness's own file and one on top of it that names local rows; `<name>.ours.yaml`, on top of ours."""
    for name, case in CASES.items():
        base = harness / case.theirs
        shutil.copytree(base.parent, folder / name, ignore=shutil.ignore_patterns("README.md"))
        files = {"test": write_rows(folder / f"{name}.jsonl", case.rows)}
        if case.examples:
            files["train"] = write_rows(folder / f"{name}.train.jsonl", case.examples)
        theirs: dict[str, Any] = {
            "include": base.name, "task": f"local_{name}", "dataset_path": "json", "dataset_name": None,
            "dataset_kwargs": {"data_files": files}, "test_split": "test", "validation_split": None,
            "training_split": None, "fewshot_split": "train" if case.examples else None, "num_fewshot": case.shots,
        }  # fmt: skip
        ours: dict[str, Any] = {"include": str(SHIPPED / f"{name}.yaml"), "num_fewshot": case.shots}
        if name == "gsm8k":
            for one in (ours, theirs):
                one["generation_kwargs"] = {"until": ["Question:"], "do_sample": False, **GENERATED}
        elif name == "triviaqa":
            for one in (ours, theirs):
                one["generation_kwargs"] = {"until": ["\n", ".", ","], "do_sample": False, **GENERATED}
        elif case.metrics:
            own = {"perplexity": "perplexity", "brier_score": "brier_score"}
            theirs["metric_list"] = [
                {"metric": one, **MEAN, "aggregation": own.get(one, "mean")} for one in case.metrics
            ]
            ours["metric_list"] = case.metrics
        ours["data"] = write_rows(folder / f"{name}.ours.jsonl", case.ours or case.rows)
        if case.examples:
            kept = read_task(SHIPPED / f"{name}.yaml").fewshot_config.model_dump(exclude={"hub"})
            ours["fewshot_config"] = {**kept, "data": files["train"]}
        (folder / name / f"local_{name}.yaml").write_text(json.dumps(theirs), encoding="utf-8")
        (folder / f"{name}.ours.yaml").write_text(json.dumps(ours), encoding="utf-8")
    texts = write_rows(
        folder / "texts.jsonl", [{"text": sentences(1)}, {"text": " ".join(map(sentences, range(40)))}]
    )
    rolling = {**ROLLING, "dataset_kwargs": {"data_files": {"test": texts}}}
    (folder / "rolling.yaml").write_text(json.dumps(rolling), encoding="utf-8")


class Answers(NamedTuple):
    """Of the harness, by model and task; and our items and figures."""

    harness: dict[str, Any]
    items: dict[str, list[Item]]
    results: EvaluationResults


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory, reader: Path) -> Answers:
    def make(folder: Path) -> None:
        try:
            peer = packages(HARNESS.name, HARNESS.requirements)
        except NotMeasured as reason:
            (folder / "reason").write_text(str(reason))
            return
        (folder / "tasks").mkdir()
        write_tasks(folder / "tasks", peer / "lm_eval/tasks")
        command("export", str(reader / "run"), str(folder / "model"))
        names = [*(f"local_{name}" for name in CASES), "rolling"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.train.evaluate.tasks.harness", peer, folder / "tasks", folder / "model",
             reader / "run", ",".join(names), ",".join(ADAPTED)],
            capture_output=True, text=True, cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        shutil.copytree(reader / "run", folder / "run")
        tasks = ["text", *(str(folder / f"tasks/{name}.ours.yaml") for name in CASES)]
        opened = open_run(folder / "run", [f"data.shards={reader / 'shards'}"])
        evaluate_tasks(*opened, tasks, given={"text": [str(folder / "tasks/texts.jsonl")]})

    folder = shared(tmp_path_factory, "lm-eval", make)
    if (folder / "reason").exists():
        pytest.skip(f"lm-eval: {(folder / 'reason').read_text()}")
    harness = json.loads((folder / "tasks/answer.json").read_text())
    items = {
        name: [Item.model_validate_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for name in (*CASES, "text")
        if (file := folder / f"run/{ITEMS}/{name}.jsonl").exists()
    }
    results = EvaluationResults.from_json((folder / "run/evaluation/results.json").read_bytes(), "results")
    return Answers(harness, items, results)


@pytest.mark.parametrize("name", CASES)
def test_prompts_and_answers_are_equal(answers: Answers, name: str) -> None:
    theirs = answers.harness["exported"][f"local_{name}"]["items"]
    items = answers.items[name]
    assert len(items) == len(theirs) == len(CASES[name].rows)
    for item, sample in zip(items, theirs, strict=True):
        if item.generated is not None:
            assert item.prompt == sample["asked"][0][0]
            assert item.generated == sample["answered"][0][0]
            continue
        texts = [context + rest for context, rest in sample["asked"]]
        between = (
            "" if name in ("crows_pairs", "lambada", "winogrande") else " "
        )  # of other tasks the delimiter
        count = len(item.choices)
        assert [item.prompt + between + choice for choice in item.choices] == texts[:count]
        found = [value for ((value, _),) in sample["answered"]]
        np.testing.assert_allclose([*item.logprobs, *item.unconditional], found, atol=1e-4)
        assert item.greedy == [greedy for ((_, greedy),) in sample["answered"]][:count]


@pytest.mark.parametrize("name", CASES)
def test_metrics_are_equal(answers: Answers, name: str) -> None:
    theirs = answers.harness["exported"][f"local_{name}"]
    compared = 0
    for item, sample in zip(answers.items[name], theirs["items"], strict=True):
        for key, value in sample["metrics"].items():
            metric = key.partition(",")[0]
            if metric == "perplexity":
                assert item.metrics["loglikelihood"] == pytest.approx(value, abs=1e-4)
            elif metric == "brier_score":
                gold, shares = value
                assert item.gold == gold
                wanted = np.square(np.array(shares) - np.eye(len(shares))[gold]).sum()
                assert item.metrics["brier_score"] == pytest.approx(wanted, abs=1e-4)
            elif metric in item.metrics or key in item.metrics:
                ours = item.metrics.get(key, item.metrics.get(metric))
                assert ours == pytest.approx(value, abs=1e-4), key
            else:
                continue
            compared += 1
    assert compared >= len(theirs["items"])
    figures = answers.results.tasks[name].metrics
    for key, value in theirs["results"].items():
        metric = key.partition(",")[0]
        for own in {metric, key} & set(figures):
            assert figures[own].value == pytest.approx(value, rel=1e-4), key


def test_bits_per_byte_are_equal(answers: Answers) -> None:
    """Of a text within a window, and of one that several windows read."""
    theirs = answers.harness["exported"]["rolling"]
    for item, sample in zip(answers.items["text"], theirs["items"], strict=True):
        assert item.logprobs[0] == pytest.approx(sample["answered"][0][0], rel=1e-6)
    assert [item.tokens[0] > LENGTH for item in answers.items["text"]] == [False, True]
    found = answers.results.tasks["text"].metrics["bits_per_byte"].value
    assert found == pytest.approx(theirs["results"]["bits_per_byte,none"], rel=1e-6)


@pytest.mark.parametrize("task", ADAPTED)
def test_the_adaptor_answers_as_the_exported_model(answers: Answers, task: str) -> None:
    theirs, ours = (answers.harness[model][task]["items"] for model in ("exported", "native"))
    for one, other in zip(theirs, ours, strict=True):
        assert one["asked"] == other["asked"]
        for (there,), (here,) in zip(one["answered"], other["answered"], strict=True):
            if isinstance(there, list):
                assert here == [pytest.approx(there[0], abs=1e-4), there[1]]
            else:
                assert here == (pytest.approx(there, rel=1e-6) if isinstance(there, float) else there)


@pytest.mark.skipif(
    "bbq" not in CASES, reason="the folder of test data (../shared/data) is not beside this checkout"
)
def test_biased_answers_are_those_of_the_harness(answers: Answers) -> None:
    """Which the harness finds in Python, and our template without it."""
    biased = 0
    for item, sample in zip(
        answers.items["bbq"], answers.harness["exported"]["local_bbq"]["items"], strict=True
    ):
        assert [item.choices[number] for number in item.fields["biased"]] == sample["doc"]["biased_answers"]
        biased += len(item.fields["biased"])
    assert biased >= 6
