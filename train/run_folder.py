"""A run's folder: config.json, plan.json, tokenizer.json, metrics.jsonl, checkpoints/, result.json, evaluation.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.config import load, override, validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig, changed

CONFIG, PLAN, TOKENIZER, RESULT = "config.json", "plan.json", "tokenizer.json", "result.json"


def open_run(target: str | Path, settings: Sequence[str] | None = None) -> tuple[TrainConfig, Folder]:
    """The config and folder of a run, by its YAML config or by its folder (any URL)."""
    target, changes = str(target), list(settings or ())
    if target.endswith((".yaml", ".yml")) or Path(target).is_file():
        config = load(TrainConfig, target, changes)
        return config, Folder(config.output_url)
    folder = Folder(target)
    try:
        dumped = json.loads((folder / CONFIG).read())
    except FileNotFoundError:
        raise UserError(
            f"{target}: neither a config (.yaml) nor the folder of a run (it has no {CONFIG})"
        ) from None
    return validate(TrainConfig, override(dumped, changes), str(folder / CONFIG)), folder


def refuse_changes(before: dict[str, Any], config: TrainConfig, run: Folder) -> None:
    """Raise `UserError` naming each key that differs from the config `before` of the run, except those that may change."""
    lines = changed(validate(TrainConfig, before, f"{run}: config").model_dump(mode="json"), dumped(config))
    if lines:
        raise UserError(
            f"{run}: holds checkpoints of another config: {'; '.join(lines)}. Set it back, or give this run an output"
            f" of its own (--set output=...)"
        )


def dumped(config: TrainConfig) -> dict[str, Any]:
    return config.model_dump(mode="json")


def write_json(file: Folder, value: Any) -> None:
    file.write(json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")
