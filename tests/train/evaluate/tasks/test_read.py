"""Tasks by name and file: all that ship, files of lm-evaluation-harness, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.schemas.tasks import METRICS, Task
from corpusmill.train.evaluate.tasks.read import find_task, read_task, shipped
from corpusmill.train.evaluate.tasks.render import Renderer

NAMES = {
    "hellaswag", "piqa", "arc_easy", "arc_challenge", "mmlu", "mmlu_continuation", "blimp", "winogrande", "boolq", "sciq",
    "lambada", "text", "squad", "triviaqa", "gsm8k", "crows_pairs", "bbq", "winogender", "winobias",
    "cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "cb", "copa", "wic", "multirc", "wsc", "record",
    "arithmetic",
}  # fmt: skip


def written(tmp_path: Path, name: str = "mine.yaml", **keys: Any) -> Path:
    (tmp_path / name).write_text(json.dumps({"task": "mine", **keys}), encoding="utf-8")
    return tmp_path / name


def test_every_shipped_task_is_whole() -> None:
    assert set(shipped()) == NAMES
    for name in shipped():
        task = find_task(name).task
        assert task.task == name and task.about
        assert name in ("text", "arithmetic") or (task.hub and task.licence and task.citation)
        Renderer(task)  # its templates compile


def test_a_name_that_is_none() -> None:
    with pytest.raises(UserError, match="--tasks helaswag: no such task; did you mean 'hellaswag'"):
        find_task("helaswag")
    with pytest.raises(UserError, match=r"nothing\.yaml: no such file"):
        find_task("nothing.yaml")


def test_a_file_of_the_harness(tmp_path: Path) -> None:
    file = written(
        tmp_path, dataset_path="cais/mmlu", dataset_name="anatomy", test_split="test", validation_split="validation",
        fewshot_split="dev", fewshot_config={"sampler": "first_n"}, output_type="multiple_choice", tag="mmlu_tasks",
        doc_to_text="{{question}}", doc_to_choice=["A", "B"], doc_to_target="answer", should_decontaminate=True,
        doc_to_decontamination_query="question", metadata={"version": 1.0}, repeats=1,
        metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    task = read_task(file)
    assert task.hub and (task.hub.repo, task.hub.config, task.hub.split) == ("cais/mmlu", "anatomy", "test")
    examples = task.fewshot_config.hub
    assert examples and (examples.config, examples.split) == ("anatomy", "dev")
    assert task.fewshot_config.sampler == "first_n" and task.wants("acc")


def test_local_files_of_the_harness(tmp_path: Path) -> None:
    files = {"test": "a.jsonl", "train": ["b.jsonl", "c.jsonl"]}
    task = read_task(
        written(
            tmp_path, dataset_path="json", dataset_kwargs={"data_files": files}, test_split="test", fewshot_split="train",
            doc_to_text="q", doc_to_target="a",
        )
    )  # fmt: skip
    assert (task.data, task.fewshot_config.data) == (["a.jsonl"], ["b.jsonl", "c.jsonl"])


def test_include(tmp_path: Path) -> None:
    written(tmp_path, "base.yaml", doc_to_text="q", doc_to_target="a", about="base")
    (tmp_path / "top.yaml").write_text("include: base.yaml\ntask: top\n")
    task = read_task(tmp_path / "top.yaml")
    assert (task.task, task.about, task.doc_to_text) == ("top", "base", "q")
    (tmp_path / "base.yaml").write_text("include: top.yaml\n")
    with pytest.raises(UserError, match="more than 8 files that include each other"):
        read_task(tmp_path / "top.yaml")


def test_python_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "task: t\n# process_docs: !function a.b\nprocess_docs: !function utils.process\n"
    )
    with pytest.raises(UserError, match=r"t\.yaml:3: process_docs: !function runs Python"):
        read_task(tmp_path / "t.yaml")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"output_type": "multiple_choice", "doc_to_target": 0}, "output_type multiple_choice needs doc_to_choice"),
        ({"output_type": "loglikelihood", "doc_to_choice": ["a"], "doc_to_target": "b"}, "loglikelihood has no doc_to_choice"),
        ({"output_type": "schema", "doc_to_choice": ["a"], "doc_to_target": "b"}, "doc_to_text: missing"),
        ({"doc_to_text": "q"}, "doc_to_target: missing"),
        ({"doc_to_target": 1}, "of output_type generate_until it is a text"),
        ({"doc_to_target": "a", "metric_list": ["acc"]}, "acc is not defined for output_type generate_until .allowed: exact_match"),
        ({"doc_to_target": "a", "metric_list": ["exactmatch"]}, "no metric 'exactmatch'; did you mean 'exact_match'"),
        ({"doc_to_target": "a", "metric_list": [{"metric": "exact_match", "aggregation": "median"}]}, "is mean, not median"),
        ({"doc_to_target": "a", "metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["("]}]}, "not a regular expression"),
        ({"doc_to_target": "a", "generation_kwargs": {"until": [str(n) for n in range(17)]}}, "until: at most 16 texts"),
        ({"doc_to_target": "a", "doc_to_txt": "q"}, "doc_to_txt: unknown key; did you mean 'doc_to_text'"),
        ({"doc_to_target": "a", "task": "../x"}, "task: string should match pattern"),
        ({"doc_to_target": "a", "repeats": 3}, "repeats: only 1"),
        ({"doc_to_target": "a", "output_type": "loglikelihood_rolling", "num_fewshot": 1}, "loglikelihood_rolling has no examples"),
        ({"doc_to_target": "a", "dataset_path": "a/b"}, "dataset_path: needs test_split or validation_split"),
        ({"doc_to_target": "a", "dataset_path": "json", "test_split": "x"}, "dataset_kwargs.data_files: missing"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read_task(written(tmp_path, **keys))
    assert str(error.value).startswith(str(tmp_path / "mine.yaml")) and "\n" not in str(error.value)


KEYS = st.sampled_from(
    ["dataset_path", "dataset_name", "dataset_kwargs", "test_split", "validation_split", "fewshot_split", "fewshot_config", "repeats",
     "include", "output_type", "doc_to_text", "doc_to_choice", "doc_to_target", "metric_list", "data", "hub", "columns"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["json", "test", "a/b", "split", "data_files", "{{x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["split", "data_files", "test"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_file_gives_a_task_or_its_mistakes(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, Any]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(json.dumps({"task": "any", **keys}), encoding="utf-8")
    try:
        Renderer(read_task(file))
    except UserError as error:
        assert str(error).startswith((str(file), "any: ", str(file.parent)))


def test_a_template_that_is_none() -> None:
    task = Task(task="t", doc_to_text="{{a", doc_to_target="b")
    with pytest.raises(UserError, match=r"t: doc_to_text: not a Jinja2 template: line 1:"):
        Renderer(task)


def test_metrics_have_a_default_for_each_output_type() -> None:
    kinds = {kind for kinds, _ in METRICS.values() for kind in kinds}
    for kind in kinds:
        choices = {"doc_to_choice": ["a", "b"]} if kind in ("multiple_choice", "schema") else {}
        task = Task.model_validate(
            {"task": "t", "output_type": kind, "doc_to_text": "0", "doc_to_target": "x", **choices}
        )
        assert task.metrics
