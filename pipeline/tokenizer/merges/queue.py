"""A queue of pairs: the highest count first, of equal counts the lower ids. Each pair is in it once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from corpusmill.common.kernel_cache import compiled

QUEUE_ROW: Final = 3  # of the queue: a count, a pair, its number


@compiled
def _before(queue: Any, i: Any, count: Any, pair: Any) -> Any:
    """Whether row i comes before a pair of this count."""
    if queue[QUEUE_ROW * i] != count:
        return queue[QUEUE_ROW * i] > count
    return queue[QUEUE_ROW * i + 1] < pair


@compiled
def _put(queue: Any, i: Any, count: Any, pair: Any, number: Any) -> None:
    queue[QUEUE_ROW * i] = count
    queue[QUEUE_ROW * i + 1] = pair
    queue[QUEUE_ROW * i + 2] = number


@compiled
def push(queue: Any, used: Any, count: Any, pair: Any, number: Any) -> None:
    """Put (count, pair, number) behind the `used` rows of a binary heap (a pointer to int64), and where it belongs."""
    i: Any = np.int64(used)
    while i > 0:
        above = (i - 1) >> 1
        if _before(queue, above, count, pair):
            break
        _put(queue, i, queue[QUEUE_ROW * above], queue[QUEUE_ROW * above + 1], queue[QUEUE_ROW * above + 2])
        i = above
    _put(queue, i, count, pair, number)


@compiled
def sink(queue: Any, used: Any, count: Any, pair: Any, number: Any) -> None:
    """Put (count, pair, number) in the place of the first of `used` rows, and where it belongs."""
    i: Any = np.int64(0)
    while 2 * i + 1 < used:
        child = 2 * i + 1
        other = QUEUE_ROW * (child + 1)
        if child + 1 < used and not _before(queue, child, queue[other], queue[other + 1]):
            child += 1
        if not _before(queue, child, count, pair):
            break
        _put(queue, i, queue[QUEUE_ROW * child], queue[QUEUE_ROW * child + 1], queue[QUEUE_ROW * child + 2])
        i = child
    _put(queue, i, count, pair, number)
