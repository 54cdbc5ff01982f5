"""Arithmetic as a task: sums, differences and products of whole numbers of so many digits, as a data set that anyone makes again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

SIGNS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "addition": ("+", lambda a, b: a + b),
    "subtraction": ("-", lambda a, b: a - b),
    "multiplication": ("*", lambda a, b: a * b),
}


def arithmetic_items(
    operations: Sequence[str], digits: Sequence[int], count: int, seed: int = 0
) -> Iterator[dict[str, str]]:
    """For each operation and number of digits `count` different questions, or all there are: rows with `id`, `question` ("48 + 76 ="),
    `answer` ("124"), `operation` and `digits`. Both numbers have that many digits; of one digit are 0 to 9. The rows depend on the
    arguments alone."""
    for operation in operations:
        sign, compute = SIGNS[operation]
        for size in digits:
            low, high = (0 if size == 1 else 10 ** (size - 1)), 10**size
            numbers = high - low
            rng = random.Random(f"{operation} {size} {seed}")
            for pair in distinct(rng, numbers**2, count):
                a, b = low + pair // numbers, low + pair % numbers
                yield {
                    "id": f"{operation}-{a}-{b}", "question": f"{a} {sign} {b} =", "answer": str(compute(a, b)),
                    "operation": operation, "digits": str(size),
                }  # fmt: skip


def distinct(rng: random.Random, total: int, count: int) -> list[int]:
    """`count` different numbers below `total`, in random order, or all of them."""
    if 2 * count >= total:
        return rng.sample(range(total), min(count, total))
    found: dict[int, None] = {}
    while len(found) < count:
        found[rng.randrange(total)] = None
    return list(found)
