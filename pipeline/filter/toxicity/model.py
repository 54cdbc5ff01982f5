"""The model's file (safetensors, no pickle), and the probabilities of its labels for ranges of tokens.

One logistic regression a label over the features of `features.py`, weights rounded to 16 bits. A label's probability is
calibrated (Platt 1999) on labelled sets that its weights were not fitted on; `tools/train_toxicity.py` says on which.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers.calibration import logistic
from corpusmill.pipeline.filter.classifiers.fasttext_model import check
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity.features import KNOWN, Lexicon, lexicon, looked_up
from corpusmill.pipeline.filter.toxicity.sums import LABELS, Rows, summed
from corpusmill.pipeline.filter.toxicity.tokens import Tokens

FILE: Final = "toxicity.safetensors"
NAMES: Final = ("toxic", "insult", "hate", "threat", "sexual")
FORMAT: Final = "corpusmill toxicity 1"


class Weights(NamedTuple):
    """What a file holds. A label's score is scale * (sum of its weights' values) + bias."""

    weights: Array  # int16[buckets, LABELS]
    scale: Array  # float64[LABELS]
    bias: Array  # float64[LABELS]
    hashes: Array  # uint64: tokens known to training or with a class, ascending
    values: Array  # uint8: KNOWN, the class, or both, of each


class ToxicityModel(NamedTuple):
    """A loaded model."""

    weights: Weights
    table: Lexicon
    rows: Rows  # the weights as `summed` reads them

    @property
    def labels(self) -> list[str]:
        """The labels, in the order of their columns."""
        return list(NAMES)

    def probabilities(self, found: Tokens, *parts: Array) -> tuple[list[Array], Array]:
        """(for each array of ranges float32[R, LABELS], bool[tokens] which words the model knows)."""
        values = looked_up(found, self.table)
        sums = summed(found, parts, values, self.rows)
        scores = [one * self.weights.scale + self.weights.bias for one in sums]
        return [logistic(one).astype(np.float32) for one in scores], (values & KNOWN) != 0


def from_weights(weights: Weights) -> ToxicityModel:
    """The model of these weights, ready to score."""
    return ToxicityModel(weights, lexicon(weights.hashes, weights.values), Rows(weights.weights))


def to_bytes(weights: Weights) -> bytes:
    """The file's bytes."""
    arrays = {name: np.ascontiguousarray(value) for name, value in weights._asdict().items()}
    # One entry: safetensors writes several in an order of chance.
    return bytes(save(arrays, {"corpusmill": json.dumps({"format": FORMAT, "labels": NAMES})}))


@lru_cache(maxsize=2)
def load(path: str, xxh3: str) -> ToxicityModel:
    """The model of a file, read once per process. Raises `UserError` if it is none, `WorkError` if its bytes are not those of
    the checksum."""
    check(path, xxh3)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: Any = json.loads((file.metadata() or {}).get("corpusmill", "{}"))
            if metadata != {"format": FORMAT, "labels": list(NAMES)}:
                raise UserError(f"{path}: no toxicity model of this version ({FORMAT})")
            weights = Weights(*(file.get_tensor(name) for name in Weights._fields))
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a toxicity model: {error}") from None
    buckets = len(weights.weights)
    if (
        weights.weights.shape != (buckets, LABELS)
        or buckets & (buckets - 1)
        or len(weights.hashes) != len(weights.values)
    ):
        raise UserError(f"{path}: its arrays do not fit each other; fetch or train it again")
    return from_weights(weights)


def is_model(path: str) -> bool:
    """Whether a file is named as these models are; fastText's end in .bin or .ftz."""
    return Path(path).suffix == Path(FILE).suffix
