"""A second look at single texts, after a cut: what is left, and whether that still holds an item."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate.index import Index, load
from corpusmill.pipeline.decontaminate.judge import judge
from corpusmill.pipeline.decontaminate.prepare import read_dropped
from corpusmill.pipeline.decontaminate.scan import find_hits
from corpusmill.pipeline.text.word_positions import place_words, room, rule
from corpusmill.schemas.decontaminate import DecontaminateParams


@dataclass(frozen=True)
class Again:
    """The index and the n-grams that count nowhere, read when they are first asked for."""

    folder: Folder
    key: str
    params: DecontaminateParams

    @cached_property
    def _index(self) -> Index:
        return load(self.folder, self.key, self.params)

    @cached_property
    def _dropped(self) -> npt.NDArray[np.bool_]:
        return read_dropped(self.folder, "", len(self._index.table.keys))

    def clean(self, text: str) -> bool:
        """Whether nothing in the text counts."""
        hits = find_hits(pa.array([text], pa.large_string()), self._index.table)
        return not judge(hits, self._index, self.params, self._dropped)["acts"].any()

    def words(self, text: str) -> int:
        """How many words the text has."""
        data = np.frombuffer(text.encode(), np.uint8)
        most = room(len(data))
        return int(
            place_words(
                data, 0, len(data), rule(), np.empty(most, np.uint64), np.empty(most, np.int64),
                np.empty(most, np.int64), np.empty(most, np.int32),
            )
        )  # fmt: skip
