"""What `import corpusmill` offers of the trainer: train, evaluate, generate. torch is imported when one is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.config import load, validate
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.run_folder import open_run

Config = str | Path | Mapping[str, Any] | TrainConfig


def train(
    config: Config, settings: Sequence[str] = (), *, on_row: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Train to the last step, from the newest valid checkpoint if there is one; returns what result.json holds.

    `config`: a YAML file, a mapping or a `TrainConfig`; `settings`: `key.key=value`, of a file. `on_row` gets each row of
    metrics.jsonl. Raises `UserError` for a config that cannot run here, `WorkError` for data or a store that fails.
    """
    from corpusmill.train.trainer import train as run

    if isinstance(config, TrainConfig):
        checked = config
    elif isinstance(config, Mapping):
        checked = validate(TrainConfig, dict(config), "config")
    else:
        checked = load(TrainConfig, config, list(settings))
    return run(checked, on_row=on_row)


def evaluate(
    run: str | Path, settings: Sequence[str] = (), *, ngram_tokens: int | None = None, stride: int | None = None,
    tasks: Sequence[str] = (),    data: Mapping[str, str | Sequence[str]] | None = None, limit: int | None = None, num_fewshot: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Loss and bits per byte by source of the newest checkpoint, beside n-gram models; or with `tasks`, what
    evaluation/results.json holds of them.

    `run`: a config's path, or a run's folder or URL; `settings`: `key.key=value`; `ngram_tokens`: that an n-gram model counts
    at most (None: 10 million, 0: no such models); `stride`: tokens from one row to the next (None: rows do not overlap). `tasks`: names or YAML files; `data`: the files of each one's rows by its name;
    `limit`: items of each at most; `num_fewshot`: examples in each prompt. Raises `UserError` without a checkpoint, and for tasks
    or data that cannot be read.
    """
    if tasks:
        from corpusmill.train.evaluate.tasks.run import evaluate_tasks

        given = {
            name: [files] if isinstance(files, str) else list(files) for name, files in (data or {}).items()
        }
        results, _ = evaluate_tasks(
            *open_run(run, settings), tasks, given=given, limit=limit, fewshot=num_fewshot
        )
        return results.model_dump(mode="json")
    from corpusmill.train.evaluate.baselines import NGRAM_TOKENS
    from corpusmill.train.evaluate.splits import evaluate as work

    return work(*open_run(run, settings), NGRAM_TOKENS if ngram_tokens is None else ngram_tokens, stride)


def generate(
    run: str | Path, prompt: str = "", *, settings: Sequence[str] = (), **sampling: Any
) -> Iterator[str]:
    """Pieces of text that continue `prompt`, by the newest checkpoint.

    `sampling`: `max_tokens` (100), `temperature` (0.8; 0: the likeliest token), `top_k` (50), `top_p` (0.95), `min_p`,
    `typical_p`, `repetition_penalty`, `presence_penalty`, `frequency_penalty`, `stop` (texts), `seed`. Raises `UserError` for
    values out of range and without a checkpoint.
    """
    from corpusmill.train.generate.generate import checked
    from corpusmill.train.generate.generate import generate as work

    return work(*open_run(run, settings), prompt, checked(**sampling))
