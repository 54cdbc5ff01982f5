"""Tokens beside the text that they should stand for."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True, nogil=True)
def come_back(
    data: Any, offsets: Any, ids: Any, starts: Any, pieces: Any, bounds: Any, same: Any
) -> None:  # fmt: skip
    """`same` (bool[K]): the bytes of a text's tokens, one after the other, are the text.

    Text k is `data[offsets[k]:offsets[k + 1]]` (uint8, int64[K + 1]), its tokens are `ids[starts[k]:starts[k + 1]]`; token i
    stands for the bytes `pieces[bounds[i]:bounds[i + 1]]`.
    """
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        equal = True
        for j in range(starts[k], starts[k + 1]):
            token = ids[j]
            for b in range(bounds[token], bounds[token + 1]):
                if at >= stop or data[at] != pieces[b]:
                    equal = False
                    break
                at += 1
            if not equal:
                break
        same[k] = equal and at == stop
