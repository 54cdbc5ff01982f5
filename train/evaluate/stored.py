"""What a run's folder has of its evaluation on tasks."""

from __future__ import annotations

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import ITEMS, RESULTS, EvaluationResults, Item


def read_results(run: Folder) -> EvaluationResults | None:
    """The results, if there are any. Raises `UserError` if the file is damaged."""
    try:
        return EvaluationResults.from_json((run / RESULTS).read(), run / RESULTS, UserError)
    except FileNotFoundError:
        return None


def read_items(run: Folder, task: str) -> dict[str, Item]:
    """The items of a task by id, in their order. Raises `UserError` for a missing or damaged file, or an id that occurs twice."""
    file = run / ITEMS / f"{task}.jsonl"
    try:
        lines = file.read().splitlines()
    except FileNotFoundError:
        raise UserError(f"{file}: missing, though {RESULTS} has the task; evaluate the run again") from None
    found: dict[str, Item] = {}
    for number, line in enumerate(lines, 1):
        item = Item.from_json(line, f"{file}: line {number}", UserError)
        if item.id in found:
            raise UserError(f"{file}: line {number}: the id {item.id} occurs twice")
        found[item.id] = item
    return found
