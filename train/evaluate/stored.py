"""What a run's folder has of its evaluation on tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import ITEMS, RESULTS, EvaluationResults, Item
from corpusmill.train.evaluate.statistics import linearised

if TYPE_CHECKING:
    import numpy.typing as npt

BITS_PER_BYTE = "bits_per_byte"  # of tasks of whole texts


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


def item_values(items: Sequence[Item], metric: str) -> npt.NDArray[np.float64]:
    """Of a metric one value an item, whose mean is the figure of the task: of the bits per byte of texts the ratio of all together."""
    values = np.array([item.metrics[metric] for item in items], dtype=np.float64)
    if metric != BITS_PER_BYTE or not items:
        return values
    sizes = np.array([len(item.choices[0].encode()) for item in items], dtype=np.float64)
    return linearised(values * sizes, sizes)
