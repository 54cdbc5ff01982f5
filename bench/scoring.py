"""Items of tasks a second: `corpusmill evaluate --tasks` beside lm-evaluation-harness with transformers, on the same model, items and
threads.

Two tasks, made of the example corpus: `passages`, 100 contexts of some 100 words with four endings each, and `pairs`, 300 times two
sentences of some 12 words. Weights are random, and fp32 on both sides; the answers are compared, item by item. The harness gets the
batch size of 1, 8 and 32 with which it is fastest on the first items. Times are of whole evaluations without the loading of
libraries and of the model; runs of both alternate, each in a process of its own, and the median counts.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import _models, learning
from bench.peers import HARNESS, NotMeasured, packages

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, THREADS = 3, 2
PASSAGES, PAIRS = 100, 300
CONTEXT_WORDS, ENDING_WORDS, SENTENCE_WORDS = 100, 20, 12
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {file}}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{{{ctx}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""


def write_tasks(folder: Path) -> dict[str, int]:
    """YAML and JSONL of both tasks; items by name."""
    draw = random.Random(17)
    books = sorted((ROOT / "examples/corpus/sources/books").rglob("*.txt"))
    text = "\n".join(file.read_text("utf-8") for file in books)
    words = re.sub(r"\s+", " ", text).split(" ")

    def run_of(count: int) -> str:
        first = draw.randrange(len(words) - count)
        return " ".join(words[first : first + count])

    passages, pairs = [], []
    for number in range(PASSAGES):
        whole = run_of(CONTEXT_WORDS + ENDING_WORDS).split(" ")
        endings = [run_of(ENDING_WORDS) for _ in range(4)]
        endings[number % 4] = " ".join(whole[CONTEXT_WORDS:])
        passages.append({"ctx": " ".join(whole[:CONTEXT_WORDS]), "choices": endings, "label": number % 4})
    for number in range(PAIRS):
        right = run_of(SENTENCE_WORDS).split(" ")
        wrong = draw.sample(right, len(right))
        two = [" ".join(right), " ".join(wrong)]
        pairs.append({"ctx": "", "choices": two if number % 2 == 0 else two[::-1], "label": number % 2})
    found = {}
    for name, rows in (("passages", passages), ("pairs", pairs)):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, file=file), encoding="utf-8")
        found[name] = len(rows)
    return found


def ours(run: str, tasks: str, names: list[str]) -> dict[str, Any]:
    """Seconds and log-probabilities by task, in this process."""
    import torch

    from corpusmill.train.evaluate.splits import newest_checkpoint
    from corpusmill.train.evaluate.tasks.read import find_task
    from corpusmill.train.evaluate.tasks.run import open_model, prepare, score, summary
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.run_folder import open_run

    torch.set_num_threads(THREADS)
    config, folder = open_run(run)
    model = open_model(config, folder, newest_checkpoint(folder), join(config))
    warm = prepare(find_task(f"{tasks}/{names[0]}.yaml"), {}, [], 8)
    score(warm, model)
    found = {}
    for name in names:
        began = time.monotonic()
        prepared = prepare(find_task(f"{tasks}/{name}.yaml"), {}, [])
        scored = score(prepared, model)
        summary(prepared, scored, "")
        found[name] = {"seconds": time.monotonic() - began, "sums": [item.logprobs for item in scored.items]}
    return found


def theirs(exported: str, tasks: str, names: list[str]) -> dict[str, Any]:
    """The same of the harness, with its best batch size."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    torch.set_num_threads(THREADS)
    model = HFLM(pretrained=exported, device="cpu", dtype="float32", batch_size=8)
    manager = TaskManager(include_path=tasks, include_defaults=False)

    def seconds(name: str, size: int, limit: int | None) -> tuple[float, Any]:
        model.batch_size_per_gpu = size
        began = time.monotonic()
        done = lm_eval.simple_evaluate(
            model=model, tasks=[name], task_manager=manager, bootstrap_iters=0, log_samples=True, limit=limit
        )
        return time.monotonic() - began, done

    found = {}
    for name in names:
        seconds(name, 8, 8)
        size = min((1, 8, 32), key=lambda size: seconds(name, size, 16)[0])
        spent, done = seconds(name, size, None)
        samples = sorted(done["samples"][name], key=lambda one: one["doc_id"])
        sums = [[float(pair[0]) for pair in one["filtered_resps"]] for one in samples]
        found[name] = {"seconds": spent, "sums": sums, "batch": size}
    return found


def alone(which: str, model: str, tasks: str, names: list[str], path: str = "") -> dict[str, Any]:
    """`ours` or `theirs` in a process of its own."""
    script = (
        "import sys, json; sys.path += sys.argv[1].split(':') if sys.argv[1] else []; from bench import scoring;"
        f" print(json.dumps(scoring.{which}(sys.argv[2], sys.argv[3], sys.argv[4:])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path, model, tasks, *names], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(folder: Path) -> list[str]:
    """A line of the table for each model and task."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.hugging_face import export

    shards = learning.made(str(folder))
    tasks = folder / "tasks"
    tasks.mkdir()
    counts = write_tasks(tasks)
    try:
        path, missing = str(packages(HARNESS.name, HARNESS.requirements)), ""
    except NotMeasured as reason:
        path, missing = "", str(reason)
    rows = []
    for shape in _models.SHAPES:
        run = _models.make(folder, shards, shape)
        exported = folder / f"{run.name}-exported"
        export(*open_run(str(run)), Folder(exported))
        found: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
        for _ in range(ROUNDS):
            found["ours"].append(alone("ours", str(run), str(tasks), list(counts)))
            if not missing:
                found["theirs"].append(alone("theirs", str(exported), str(tasks), list(counts), path))
        for name, count in counts.items():
            rows.append(line(shape, _models.parameters(run), name, count, found, missing))
    return rows


def line(
    shape: str, parameters: int, name: str, count: int, found: dict[str, list[dict[str, Any]]], missing: str
) -> str:
    own = count / statistics.median(one[name]["seconds"] for one in found["ours"])
    start = f"| {shape} ({parameters / 1e6:.1f} M) | {name} | {own:,.1f} |"
    if missing:
        return f"{start} {missing} | | |"
    peer = count / statistics.median(one[name]["seconds"] for one in found["theirs"])
    ratios = sorted(
        b[name]["seconds"] / a[name]["seconds"] for a, b in zip(found["ours"], found["theirs"], strict=True)
    )
    apart = max(
        abs(x - y)
        for a, b in zip(found["ours"][0][name]["sums"], found["theirs"][0][name]["sums"], strict=True)
        for x, y in zip(a, b, strict=True)
    )
    size = found["theirs"][0][name]["batch"]
    return (
        f"{start} {peer:,.1f} (batch {size}) | **{statistics.median(ratios):.1f}** ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        f" | {apart:.1e} |"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    print(f"{HARNESS.label}, {THREADS} threads, fp32, {ROUNDS} runs each; items a second.\n")
    print("| model | task | ours | the harness | ratio | largest difference of a log-probability |")
    print("|---|---|---:|---:|---:|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
