"""A run's folder: config.json, data.json, plan.json, tokenizer.json, metrics.jsonl, checkpoints/, result.json, evaluation.json."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.config import load, override, validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.data import DataConfig
from corpusmill.schemas.training import RunData, TrainConfig, changed

CONFIG, PLAN, TOKENIZER, RESULT = "config.json", "plan.json", "tokenizer.json", "result.json"
DATA = "data.json"


def open_run(target: str | Path, settings: Sequence[str] | None = None) -> tuple[TrainConfig, Folder]:
    """The config and folder of a run, by its YAML config or by its folder (any URL).

    By its folder a run is opened from any directory, and after it was moved, its shards with it: the config has them where they
    are now.
    """
    target, changes = str(target), list(settings or ())
    if target.endswith((".yaml", ".yml")) or Path(target).is_file():
        config = load(TrainConfig, target, changes)
        folder = Folder(config.output_url)
        if config.precision == "auto" and (precision := begun_with(folder)):
            config = config.model_copy(update={"precision": precision})
        return config, folder
    folder = Folder(target)
    try:
        dumped = json.loads((folder / CONFIG).read())
    except FileNotFoundError:
        raise UserError(
            f"{target}: neither a config (.yaml) nor the folder of a run (it has no {CONFIG})"
        ) from None
    given = {setting.partition("=")[0].strip() for setting in changes}
    config = validate(TrainConfig, override(dumped, changes), str(folder / CONFIG))
    if "output" not in given:
        config = config.model_copy(update={"output": folder.url})
    kept = read_run_data(folder)
    data = config.data
    if kept and "data.shards" not in given and (place := _now(kept.shards, folder)):
        data = data.model_copy(update={"shards": place})
    if kept and kept.replay and data.replay and (place := _now(kept.replay, folder)):
        data = data.model_copy(update={"replay": data.replay.model_copy(update={"run": place})})
    return config.model_copy(update={"data": data}), folder


def begun_with(run: Folder) -> str | None:
    """The precision of the run in this folder; None before one begins."""
    try:
        return str(json.loads((run / CONFIG).read())["precision"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{run / CONFIG}: is damaged, and precision is auto: set precision to what the run began with"
        ) from None


def run_data(data: DataConfig, run: Folder, vocab_size: int, eos_id: int) -> RunData:
    """What to keep of a run's shard set, and of the run whose data it replays."""
    replay = None if data.replay is None else relative_to(run, Folder(data.replay.run), data.replay.run)
    shards = relative_to(run, Folder(data.shards), data.shards)
    return RunData(shards=shards, vocab_size=vocab_size, eos_id=eos_id, replay=replay)


def relative_to(run: Folder, place: Folder, otherwise: str) -> str:
    """Where `place` is as seen from a run's folder, if both are local; `otherwise`."""
    if place.local and run.local:
        return os.path.relpath(os.path.realpath(place.url), os.path.realpath(run.url))
    return otherwise


def read_run_data(run: Folder) -> RunData | None:
    """What was kept of a run's shard set; None for a run of a version that kept nothing. Raises `UserError` for another file."""
    try:
        data = json.loads((run / DATA).read())
    except FileNotFoundError:
        return None
    except ValueError:
        raise UserError(f"{run / DATA}: not JSON; train again, or restore the file") from None
    return validate(RunData, data, str(run / DATA))


def _now(kept: str, run: Folder) -> str | None:
    """Where something is now whose place relative to a run's folder was kept; None if it is not there."""
    if "://" in kept or not run.local:
        return None
    place = os.path.normpath(f"{os.path.realpath(run.url)}/{kept}")
    return place if Path(place).exists() else None


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


def write_reading(run: Folder, tokenizer: bytes, template: bytes | None) -> None:
    """What a run's texts are read with: its tokenizer, and the chat template if it has one."""
    (run / TOKENIZER).write(tokenizer)
    if template is not None:
        (run / TEMPLATE).write(template)


def write_json(file: Folder, value: Any) -> None:
    file.write(json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def read_json(file: Folder) -> dict[str, Any]:
    """The object that a file holds; empty if there is no such file. Raises `UserError` if it is damaged."""
    try:
        return dict(json.loads(file.read()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError):
        raise UserError(f"{file}: is damaged; delete it and run the command again") from None
