"""In a process of its own: lm-evaluation-harness on tasks of a folder, with an exported model, and on some of them with the run
itself through our adaptor. Writes, by model and task, what was asked, answered and measured of each item.

    python -m tests.train.evaluate.tasks.harness PACKAGES TASKS EXPORTED RUN NAME,... NAME,...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def samples(model: Any, tasks: str, names: list[str]) -> dict[str, Any]:
    import lm_eval
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model=model, tasks=names, task_manager=TaskManager(include_path=tasks, include_defaults=False), bootstrap_iters=0,
        log_samples=True,
    )  # fmt: skip
    by_task: dict[str, Any] = {}
    for name in names:
        items: dict[int, Any] = {}
        for sample in found["samples"][name]:
            item = items.setdefault(
                sample["doc_id"],
                {
                    "doc": sample["doc"],
                    "asked": sample["arguments"],
                    "answered": sample["resps"],
                    "metrics": {},
                },
            )
            for metric in sample["metrics"]:
                item["metrics"][f"{metric},{sample['filter']}"] = sample[metric]
        by_task[name] = {
            "items": [items[number] for number in sorted(items)],
            "results": found["results"][name],
        }
    return by_task


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def main() -> None:
    import torch
    from lm_eval.models.huggingface import HFLM

    from corpusmill.train.evaluate.tasks.lm_eval import harness_model

    _, _, tasks, exported, run, names, native = sys.argv
    torch.set_num_threads(1)
    theirs = HFLM(pretrained=exported, device="cpu", dtype="float32", batch_size=8)
    answer = {
        "exported": samples(theirs, tasks, names.split(",")),
        "native": samples(harness_model(run), tasks, native.split(",")),
    }
    Path(tasks, "answer.json").write_text(json.dumps(answer, default=plain), encoding="utf-8")


if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    sys.path.append(sys.argv[1])
    main()
