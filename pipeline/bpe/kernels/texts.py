"""Which texts of a batch need the library: those that hold a given string, those that may not be composed."""

from __future__ import annotations

from typing import Any

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.bpe.kernels.characters import class_pointers, run
from corpusmill.pipeline.bpe.kernels.utf8 import pointer, same


@compiled
def mark_holding(data: Any, bounds: Any, needles: Any, starts: Any, leads: Any, marked: Any) -> int:
    """Set `marked[i]` where text i holds one of the strings `needles[starts[k]:starts[k + 1]]`; their number.

    leads: bool[256], the bytes that they begin with. marked: bool[texts].
    """
    count = 0
    for text in range(len(bounds) - 1):
        stop = bounds[text + 1]
        at = bounds[text]
        while at < stop and not marked[text]:
            if leads[data[at]]:
                for k in range(len(starts) - 1):
                    size = starts[k + 1] - starts[k]
                    if at + size <= stop and same(pointer(data), at, pointer(needles), starts[k], size):
                        marked[text] = True
                        break
            at += 1
        count += marked[text]
    return count


@compiled
def mark_other_than(data: Any, bounds: Any, classes: Any, marked: Any) -> int:
    """Set `marked[i]` where text i holds a character without the bit 1; their number."""
    count, known = 0, class_pointers(classes)
    for text in range(len(bounds) - 1):
        marked[text] = run(pointer(data), bounds[text], bounds[text + 1], known, 1) < bounds[text + 1]
        count += marked[text]
    return count
