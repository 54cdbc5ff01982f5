"""Tasks by name or file: those that ship with the package, a user's own, and YAML files of lm-evaluation-harness."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from corpusmill.common.config import read_yaml, validate
from corpusmill.common.errors import UserError, nearest
from corpusmill.schemas.tasks import Task

SHIPPED = Path(__file__).parent / "shipped"
# Keys of lm-evaluation-harness that change no figure.
WITHOUT_EFFECT = (
    "tag", "group", "task_alias", "metadata", "should_decontaminate", "doc_to_decontamination_query", "training_split",
)  # fmt: skip
LOCAL = ("json", "csv", "text")  # `dataset_path` of files
INCLUDES = 8  # files that include each other


class Found(NamedTuple):
    """A task and the folder to which its files are relative; None for a shipped one."""

    task: Task
    folder: Path | None


def shipped() -> list[str]:
    """Names of the tasks of the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml"))


def find_task(name: str) -> Found:
    """A task by its name or by its YAML file. Raises `UserError` naming file and key."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        return Found(read_task(path), path.parent)
    path = SHIPPED / f"{name}.yaml"
    if not path.exists():
        known = shipped()
        raise UserError(
            f"--tasks {name}: no such task{nearest(name, known)} (allowed: a .yaml file, {', '.join(known)})"
        )
    return Found(read_task(path), None)


def read_task(path: Path) -> Task:
    """The task of a file. Raises `UserError`."""
    return validate(Task, translated(with_included(path), str(path)), str(path))


def with_included(path: Path, depth: int = 0) -> dict[str, Any]:
    """The keys of a file, on top of those of the file that its `include` names."""
    refuse_functions(path)
    config = read_yaml(path)
    other = config.pop("include", None)
    if other is None:
        return config
    if not isinstance(other, str):
        raise UserError(f"{path}: include: must be the name of a file")
    if depth == INCLUDES:
        raise UserError(f"{path}: include: more than {INCLUDES} files that include each other")
    return {**with_included(path.parent / other, depth + 1), **config}


def refuse_functions(path: Path) -> None:
    """Raise `UserError` for a file that names Python functions: a task is data, and runs nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # reading it as YAML says what is wrong
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[^#'\"]*:\s*!function\b", line):
            raise UserError(
                f"{path}:{number}: {line.partition(':')[0].strip()}: !function runs Python, which a task cannot; write it as a"
                " template, with `columns` for what is made of a row"
            )


def translated(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Our keys for those of lm-evaluation-harness that name data sets, without those that change no figure."""
    found = {key: value for key, value in config.items() if key not in WITHOUT_EFFECT}
    if found.pop("repeats", 1) != 1:
        raise UserError(f"{where}: repeats: only 1 is possible")
    path, name = found.pop("dataset_path", None), found.pop("dataset_name", None)
    options = found.pop("dataset_kwargs", None) or {}
    splits = [found.pop(key, None) for key in ("test_split", "validation_split")]
    split = next((one for one in splits if one and isinstance(one, str)), None)
    examples = found.pop("fewshot_split", None)
    given = found.get("fewshot_config")
    fewshot = dict(given) if isinstance(given, dict) else {}
    examples = fewshot.pop("split", None) or examples
    if not isinstance(examples, str | None):
        raise UserError(f"{where}: fewshot_split: must be the name of a split")
    if isinstance(path, str) and path in LOCAL:
        files = options.get("data_files") if isinstance(options, dict) else None
        found.setdefault("data", data_files(files, split, where))
        if examples and examples != split:
            fewshot.setdefault("data", data_files(files, examples, where))
    elif path is not None:
        if not isinstance(path, str) or not split:
            raise UserError(f"{where}: dataset_path: needs test_split or validation_split")
        hub = {"repo": path, "config": name or "default"}
        found.setdefault("hub", {**hub, "split": split})
        if examples and examples != split:
            fewshot.setdefault("hub", {**hub, "split": examples})
    if fewshot or isinstance(given, dict):
        found["fewshot_config"] = fewshot
    return found


def data_files(files: Any, split: str | None, where: str) -> Any:
    """Those of a split, of what `dataset_kwargs.data_files` has."""
    if isinstance(files, dict):
        if split not in files:
            raise UserError(f"{where}: dataset_kwargs.data_files: has no '{split}'")
        return files[split]
    if not files:
        raise UserError(f"{where}: dataset_kwargs.data_files: missing")
    return files
