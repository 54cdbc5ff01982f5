"""Boosted decision trees as flat arrays: what a model file holds, and their sums for many rows."""

from __future__ import annotations

import io
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.ids import checksum
from corpusmill.common.kernel_cache import compiled

MODEL = "model.npz"


class Trees(NamedTuple):
    """An ensemble: row -> probability. `roots`: int32[trees]; `column`: int16[nodes], -1 for a leaf; `threshold`: float32[nodes], of
    a leaf its value; `left`, `right`: int32[nodes], the nodes for values that are at most the threshold, and above."""

    roots: npt.NDArray[np.int32]
    column: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]

    def __call__(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The probability of each row, float32[rows]."""
        out = np.empty(len(rows), np.float32)
        _sums(rows, *self, out)
        return np.asarray(1 / (1 + np.exp(-out)), np.float32)


class Model(NamedTuple):
    """`first` sees each block alone, `second` also what `first` made of the blocks around; a block stays from `threshold` on."""

    first: Trees
    second: Trees
    threshold: float
    names: tuple[str, ...]  # of the columns that it was trained on


@compiled
def _sums(rows: Any, roots: Any, column: Any, threshold: Any, left: Any, right: Any, out: Any) -> None:
    for r in range(len(rows)):
        total = np.float32(0)
        for t in range(len(roots)):
            node = roots[t]
            while column[node] >= 0:
                node = left[node] if rows[r, column[node]] <= threshold[node] else right[node]
            total += threshold[node]
        out[r] = total


def dump(model: Model) -> bytes:
    """A model as a compressed `.npz` without pickled objects."""
    arrays: dict[str, Any] = {"threshold": np.float32(model.threshold), "names": np.array(model.names)}
    for name, trees in (("first", model.first), ("second", model.second)):
        arrays |= {f"{name}.{field}": getattr(trees, field) for field in Trees._fields}
    target = io.BytesIO()
    np.savez_compressed(target, **arrays)
    return target.getvalue()


def load_bytes(data: bytes) -> Model:
    """The model of a file that `dump` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        first, second = (
            Trees(*(arrays[f"{name}.{field}"] for field in Trees._fields)) for name in ("first", "second")
        )
        return Model(first, second, float(arrays["threshold"]), tuple(arrays["names"].tolist()))


@lru_cache(maxsize=1)
def load() -> Model:
    """The model that ships with the package."""
    return load_bytes(_shipped())


@lru_cache(maxsize=1)
def shipped_model() -> str:
    """The checksum of the model that ships with the package: another one gives other texts."""
    return checksum(_shipped())


def _shipped() -> bytes:
    return files(__package__).joinpath(MODEL).read_bytes()
