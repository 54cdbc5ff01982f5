"""How often the words of the user's lists occur in a text: a signal a list, `<list>.listed_words`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.lists.automaton import Automaton, automaton, occurrences
from corpusmill.pipeline.filter.lists.keys import small
from corpusmill.pipeline.filter.lists.list_files import read_entries, state
from corpusmill.pipeline.filter.rules.sets import LISTED
from corpusmill.pipeline.filter.text.view import TextView
from corpusmill.schemas.documents import SignalSpec
from corpusmill.schemas.filter import WordList


class WordLists:
    """The lists of a recipe, loaded. Raises `UserError` for a file that cannot be read, and a list left empty."""

    def __init__(self, lists: Mapping[str, WordList]) -> None:
        self.machines = {}
        for name, given in lists.items():
            where = f"filter.word_lists.{name}"
            states = state(where, given.files), state(f"{where}.allow", given.allow)
            self.machines[name] = _machine(where, tuple(given.files), tuple(given.allow), states)
        self.specs = [
            SignalSpec(
                name=f"{name}.{LISTED}",
                dtype="int",
                unit=f"occurrences of words of the list {name}",
                origin="tensorflow_datasets, c4_utils.py (C4's badwords filter)",
            )
            for name in lists
        ]

    def measure(self, view: TextView) -> dict[str, npt.NDArray[np.int64]]:
        """int64[D] by signal."""
        return {
            f"{name}.{LISTED}": occurrences(machine, view.data, view.offsets)
            for name, machine in self.machines.items()
        }


@lru_cache(maxsize=8)
def _machine(where: str, files: tuple[str, ...], allow: tuple[str, ...], states: object) -> Automaton:
    """The machine of a list, built once per process for files in these `states`."""
    allowed = set(read_entries(f"{where}.allow", allow, _normal))
    entries = [entry for entry in read_entries(where, files, _normal) if entry not in allowed]
    if not entries:
        raise UserError(f"{where}: every entry is also in the files of `allow`; nothing would be found")
    return automaton(entries)


def _normal(entry: str) -> str:
    """Small letters, and one space between words."""
    return small(" ".join(entry.split()))
