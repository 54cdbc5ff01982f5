"""What Dolma's rules look at beside Gopher's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.signals.registry import signal
from corpusmill.pipeline.filter.text.view import TextView

DOLMA = "Soldaini et al. 2024 (Dolma), arXiv:2402.00159: "

MAX_PERIOD = 13  # of a sequence that repeats, as in Dolma's tagger


@signal(
    "dolma.repetitions",
    "times in a row",
    DOLMA + "tokenizer_repetitions_v2r2, on words",
    "int",
    on_demand=True,
)
def repetitions(view: TextView) -> npt.NDArray[Any]:
    """How often a sequence of up to 13 words stands in direct succession, at most; Dolma counts tokens of GPT-NeoX."""
    found: npt.NDArray[Any] = _repetitions(view.word_hash, view.word_offsets)
    return found


@compiled
def _repetitions(words: Any, offsets: Any) -> Any:
    most = np.zeros(len(offsets) - 1, np.int64)
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        if last > first:
            most[d] = 1
        for period in range(1, min(MAX_PERIOD, last - first) + 1):
            run = 0
            for i in range(first + period, last):
                run = run + 1 if words[i] == words[i - period] else 0
                most[d] = max(most[d], run // period + 1)
    return most
