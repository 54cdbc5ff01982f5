"""The rows of metrics.jsonl as columns of numbers, and the few points of a column that a plot needs."""

from __future__ import annotations

import json
from array import array
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.log.metrics import flatten

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]


class History:
    """Columns by flattened name (`loss`, `loss_per_source/wiki`): 16 bytes a number, 0.8 GB for a million rows of 50."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}  # the last row
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._read, self._lines, self._tail = (
            0,
            0,
            b"",
        )  # bytes and lines that `read` took, and the last of them

    def add(self, row: dict[str, Any]) -> None:
        """Numbers that are not finite are left out; a row that goes back drops what lay ahead of it."""
        step = int(row["step"])
        if self.last and step <= self.last["step"]:
            for steps, values in self._columns.values():
                kept = int(np.searchsorted(np.asarray(steps), step))
                del steps[kept:], values[kept:]
        for name, value in flatten(row):
            if isfinite(value):
                column = self._columns.get(name)
                if column is None:
                    column = self._columns[name] = (array("q"), array("d"))
                column[0].append(step)
                column[1].append(value)
        self.last = row

    def read(self, run: Folder) -> History:
        """Add what metrics.jsonl has beyond what was read before, line by line: its rows may not fit
        into memory. A file that was replaced, since a run was resumed, is read from the start again. A last line that is
        not complete is left for the next time."""
        file = run / "metrics.jsonl"
        try:
            stream = file.open()
        except FileNotFoundError:
            return self
        with stream:
            stream.seek(self._read - len(self._tail))
            if stream.read(len(self._tail)) != self._tail:
                self.__init__()  # type: ignore[misc]
                stream.seek(0)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._read, self._lines, self._tail = self._read + len(line), self._lines + 1, line
                try:
                    self.add(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    raise WorkError(f"{file}:{self._lines}: not a row of metrics") from None
        return self

    @property
    def names(self) -> list[str]:
        return [name for name, (steps, _) in self._columns.items() if steps]

    def column(self, name: str) -> tuple[Steps, Floats]:
        """Steps, rising, and values; both empty for a name that no row has."""
        steps, values = self._columns.get(name, ((), ()))
        return np.array(steps, np.int64), np.array(values, np.float64)


def read_journal(run: Folder) -> list[dict[str, Any]]:
    """The guard's entries in journal.jsonl, each {entry, step, kind, why, ...}; none if there is no such file."""
    try:
        lines = (run / "journal.jsonl").read().splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "step": int(entry["step"]), "kind": str(entry["kind"])})
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                raise WorkError(f"{run / 'journal.jsonl'}:{number}: not an entry of the guard") from None
    return entries
