"""What of a text is changed: drawn by seed, kind and key."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import xxhash

T = TypeVar("T")


def drawn_from(seed: int, kind: str, key: str) -> random.Random:
    """The same sequence of numbers for the same arguments, on any machine."""
    return random.Random(xxhash.xxh3_128_intdigest(f"{seed}\0{kind}\0{key}".encode("utf-8", "surrogatepass")))


def some(places: Sequence[T], of: int, rate: float, draw: random.Random) -> list[T]:
    """`rate` x `of` of the places, in their order, or all if there are not so many. What is left of a whole number decides by a draw, so
    that short texts have the rate on average."""
    exact = rate * of
    count = int(exact) + (draw.random() < exact - int(exact))
    if count >= len(places):
        return list(places)
    return [places[number] for number in sorted(draw.sample(range(len(places)), count))]
