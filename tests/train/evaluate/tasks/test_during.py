"""Tasks during a run: the same figures as afterwards, in any number of processes, and a run that they do not change."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.stored import read_items
from corpusmill.train.evaluate.tasks.during import ITEMS_FILE, LEAST, Scores, TaskCurves
from corpusmill.train.evaluate.tasks.run import evaluate_tasks
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.log.plots import History, groups
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import train
from tests.forks import launch

Make = Callable[..., Path]
NAMES = ("acc", "acc_norm", "gold_logprob_per_byte")


@pytest.fixture
def settings(reader: Path, tmp_path: Path) -> Make:
    """Writes a config of 12 steps with a task of 60 items of four choices, and one of pairs; arguments are keys to set."""
    draw = random.Random(3)
    words = ["the", "run", "data", "token", "shard", "block", "step", "model", "loss", "file"]
    rows = [
        {
            "q": " ".join(draw.choices(words, k=6)),
            "c": [draw.choice(words) * (n + 1) for n in range(4)],
            "a": n % 4,
        }
        for n in range(60)
    ]
    (tmp_path / "guess.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "guess.yaml").write_text(
        "task: guess\ndata: guess.jsonl\noutput_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\ndoc_to_target: a\n"
    )
    pairs = [{"good": f"the {a} of the run", "bad": f"run the of {a} the"} for a in words for _ in range(3)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (tmp_path / "pairs.yaml").write_text(
        "task: pairs\ndata: pairs.jsonl\noutput_type: multiple_choice\ndoc_to_text: ''\n"
        "doc_to_choice: '{{[good, bad]}}'\ndoc_to_target: 0\nid: '{{row_number}}'\n"
    )

    def write(name: str = "run", **changes: Any) -> Path:
        config = json.loads((reader / "config.yaml").read_text())
        config["output"] = str(tmp_path / name)
        config["schedule"]["steps"], config["checkpoint"]["every"] = 12, 6
        config["data"]["micro_batch"] = 2
        config["evaluation"] = {
            "every": 4, "tasks": [str(tmp_path / "guess.yaml"), str(tmp_path / "pairs.yaml")], "budget": 1.0, **changes
        }  # fmt: skip
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps(config))
        return file

    return write


def run(file: Path) -> Folder:
    config = load(TrainConfig, file)
    train(config)
    return Folder(config.output_url)


def no_time(*_: object) -> float:
    return 1e-9


def train_with_all_items(file: str) -> None:
    """Training in which scoring seems to take no time: on a busy machine, fewer items than all could fit into the budget."""
    TaskCurves._time = no_time  # type: ignore[method-assign]
    train(load(TrainConfig, file))


def scored(folder: Folder) -> dict[int, dict[str, dict[str, float]]]:
    return {row["step"]: row["tasks"] for row in read_metrics(folder) if "tasks" in row}


def test_the_figures_are_those_of_an_evaluation_and_the_run_is_the_same(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskCurves, "_time", no_time)  # as in `train_with_all_items`
    folder = run(settings())
    found = scored(folder)
    assert list(found) == [4, 8, 12] and set(found[4]) == {"guess", "pairs"}
    assert json.loads((folder / ITEMS_FILE).read()) == {"guess": 60, "pairs": 30}
    after, _ = evaluate_tasks(
        *open_run(folder.url), [str(tmp_path / "guess.yaml"), str(tmp_path / "pairs.yaml")]
    )
    for task, result in after.tasks.items():
        for name in NAMES:
            assert found[12][task][name] == pytest.approx(result.metrics[name].value, abs=1e-6), (task, name)
    items = {name: list(read_items(folder, name).values()) for name in after.tasks}
    above = [
        (np.mean([i.core for i in items[name]]) - chance) / (1 - chance)
        for name, chance in (("guess", 0.25), ("pairs", 0.5))
    ]
    assert read_metrics(folder)[-1]["core"] == pytest.approx(sum(above) / 2)
    assert found[4]["pairs"] != found[12]["pairs"]
    plain = run(settings("plain", tasks=[]))
    assert scored(plain) == {}
    assert read_metrics(plain)[-1]["validation"] == read_metrics(folder)[-1]["validation"]
    ends = [checkpoint.load_newest(one) for one in (folder, plain)]
    assert ends[0] and ends[1] and ends[0].weights_xxh3 == ends[1].weights_xxh3


def test_a_curve_in_tensorboard_and_on_the_dashboard(settings: Make, tmp_path: Path) -> None:
    file = settings(tasks=[str(tmp_path / "pairs.yaml")])
    config = json.loads(file.read_text())
    config["log"]["tensorboard"] = True
    file.write_text(json.dumps(config))
    folder = run(file)
    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    assert [one.step for one in events.Scalars("tasks/pairs/acc")] == [4, 8, 12]
    shown = groups(History().read(folder), load(TrainConfig, file))
    (plots,) = [group["plots"] for group in shown if group["title"] == "Tasks"]
    assert [plot["title"] for plot in plots] == ["Above chance", "Tasks"]


def test_a_share_of_the_time_is_kept_and_a_restart_scores_the_same_items(
    settings: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    file = settings(budget=1e-9)
    folder = run(file)
    assert json.loads((folder / ITEMS_FILE).read()) == {"guess": LEAST, "pairs": LEAST}
    printed = capfd.readouterr().err
    assert (
        "20 of 60 items of guess, 20 of 30 items of pairs" in printed and "raise evaluation.every" in printed
    )
    before = scored(folder)
    (Folder(folder.url) / "checkpoints/step-000012").delete()
    file = settings(budget=1.0)  # the run goes on with the items that it began with
    assert scored(run(file)) == before


def test_two_processes_score_as_one(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskCurves, "_time", no_time)
    one = scored(run(settings("one")))
    done = launch(2, f"{__name__}:train_with_all_items", settings("two"))
    assert done.returncode == 0, done.stderr
    two = scored(Folder(load(TrainConfig, settings("two")).output_url))
    for step, tasks in one.items():
        for task, figures in tasks.items():
            assert two[step][task] == pytest.approx(figures, abs=1e-4), (step, task)


def test_mistakes_end_the_run_before_its_first_step(settings: Make, tmp_path: Path) -> None:
    (tmp_path / "text.yaml").write_text(
        "task: text\ndata: guess.jsonl\noutput_type: generate_until\ndoc_to_text: q\ndoc_to_target: q\n"
    )
    for tasks, words in (
        ([str(tmp_path / "text.yaml")], "text generates texts"),
        (["helaswag"], "hellaswag"),
        ([str(tmp_path / "nowhere.yaml")], "nowhere.yaml"),
    ):
        with pytest.raises(UserError, match=words):
            run(settings("refused", tasks=tasks))
        assert not read_metrics(Folder(tmp_path / "refused"))


def one_sentence(tmp_path: Path, name: str, words: list[int]) -> str:
    """A task of a sentence of so many words in each row."""
    rows = [{"q": f"{number}", "t": " ".join(["the"] * count)} for number, count in enumerate(words)]
    (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / f"{name}.yaml").write_text(
        f"task: {name}\ndata: {name}.jsonl\noutput_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: t\n"
    )
    return str(tmp_path / f"{name}.yaml")


def test_what_cannot_be_scored_is_refused_or_counted(
    settings: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskCurves, "_time", no_time)
    long = one_sentence(tmp_path, "long", [3000] * 5)
    with pytest.raises(
        UserError, match="evaluation.tasks: long: no item can be scored: a choice has more tokens"
    ):
        run(settings("refused", tasks=[long]))
    assert not read_metrics(Folder(tmp_path / "refused"))
    some = one_sentence(tmp_path, "some", [3000] * 5 + [2] * 30)
    with (tmp_path / "some.jsonl").open("a") as file:
        file.write("\n{damaged\n")
    folder = run(settings("counted", tasks=[some]))
    printed = capfd.readouterr().err
    assert printed.count("evaluation: some: 6 items left out: ") == 1
    assert "a choice has more tokens than the model has positions (5)" in printed and "(1)" in printed
    assert json.loads((folder / ITEMS_FILE).read()) == {"some": 30}
    assert Scores({"none": {}, "one": {"acc": 0.5}}, None).line() == "none –  one 0.5000"


@pytest.mark.parametrize("kind", ["schema", "loglikelihood_rolling", "classes"])
def test_figures_of_every_kind_are_those_of_an_evaluation(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(TaskCurves, "_time", no_time)
    rows = [{"n": number % 2, "t": f"shard {number}"} for number in range(24)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {
        "schema": "output_type: schema\ndoc_to_text: n\ndoc_to_choice: ['the data', 'a much longer context']\n"
        "doc_to_target: t\nmetric_list: [acc]\n",
        "loglikelihood_rolling": "output_type: loglikelihood_rolling\ndoc_to_target: t\n",
        "classes": "output_type: multiple_choice\ndoc_to_text: t\ndoc_to_choice: ['yes', 'no']\ndoc_to_target: n\n"
        "metric_list: [acc, f1]\n",
    }[kind]
    task = tmp_path / "own.yaml"
    task.write_text(f"task: own\ndata: own.jsonl\n{keys}")
    folder = run(settings(tasks=[str(task)]))
    found = scored(folder)[12]["own"]
    # A run adds it where a task does not ask for it.
    task.write_text(task.read_text().replace("[acc", "[gold_logprob_per_byte, acc"))
    after, _ = evaluate_tasks(*open_run(folder.url), [str(task)])
    wanted = {name: one.value for name, one in after.tasks["own"].metrics.items()}
    assert found == pytest.approx(wanted, abs=1e-6)
