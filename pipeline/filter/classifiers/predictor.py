"""A model's predictions, by the kernels, or by the fastText library for models that they do not support."""

from __future__ import annotations

import logging
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import fasttext_model, inference, model_file
from corpusmill.pipeline.filter.classifiers.language_kernel import Kept
from corpusmill.pipeline.filter.classifiers.model_file import Arrays, NotUnderstood, locked, read_model
from corpusmill.pipeline.filter.classifiers.model_words import Words
from corpusmill.pipeline.filter.quality_signals.model import SignalModel, is_signal_model
from corpusmill.pipeline.filter.quality_signals.model import load as signal_model
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity.model import ToxicityModel, is_model
from corpusmill.pipeline.filter.toxicity.model import load as toxicity_model


class Predictor:
    """Predictions for ranges of `Words`, equal to those of fastText for the same words on a line.

    `labels` are the model's, without the prefix, by the numbers that `best` returns.
    """

    def __init__(self, arrays: Arrays | None, labels: list[str], library: Any = None) -> None:
        self.labels = [fasttext_model.plain_label(label) for label in labels]
        # Vectors of words between calls of `language.identify`, of each thread its own.
        self.kept: list[Kept] = []
        self._arrays = arrays
        self._library = library

    @property
    def arrays(self) -> Arrays:
        """The model's arrays. Raises `TypeError` if the library runs it."""
        if self._arrays is None:
            raise TypeError("the model is run by the fastText library: it has no arrays")
        return self._arrays

    def known(self, words: Words) -> Array:
        """int32[words]: their numbers in the dictionary, to give to several predictions over the same words."""
        ids = np.empty(len(words.starts), np.int32)
        if self._arrays is not None:
            inference.known(self._arrays, words, ids)
        return ids

    def best(self, words: Words, ranges: Array) -> tuple[Array, Array]:
        """(int32[R] number of the most probable label, float32[R] its probability) of the words
        [ranges[r, 0], ranges[r, 1]); (-1, 0) where the model has no row for them."""
        label, probability, _ = self._predict(words, ranges, self.known(words), -1, False)
        return label, probability

    def probability(self, words: Words, ranges: Array, label: str, known: Array | None = None) -> Array:
        """float32[R]: the probability of one label. Raises `ValueError` if the model lacks it."""
        known = self.known(words) if known is None else known
        found: Array = self._predict(words, ranges, known, self.labels.index(label), False)[1]
        return found

    def probabilities(self, words: Words, ranges: Array) -> Array:
        """float32[R, labels]: of all labels."""
        return self._predict(words, ranges, self.known(words), -1, True)[2]

    def _predict(
        self, words: Words, ranges: Array, known: Array, wanted: int, all_labels: bool
    ) -> tuple[Array, Array, Array]:
        label, probability = np.empty(len(ranges), np.int32), np.empty(len(ranges), np.float32)
        every = np.zeros((len(ranges) if all_labels else 0, len(self.labels)), np.float32)
        if self._arrays is None:
            self._ask_library(words, ranges, wanted, label, probability, every)
        else:
            inference.predict(
                self._arrays, words, known, ranges, _sigmoid(), wanted, label, probability, every
            )
        return label, probability, every

    def _ask_library(
        self, words: Words, ranges: Array, wanted: int, label: Array, probability: Array, every: Array
    ) -> None:
        numbers = {name: number for number, name in enumerate(self.labels)}
        for row, (first, last) in enumerate(ranges.tolist()):
            own = zip(words.starts[first:last].tolist(), words.ends[first:last].tolist(), strict=True)
            line = b" ".join(words.data[a:b].tobytes() for a, b in own).decode("utf-8", "replace")
            found = fasttext_model.predict(self._library, line, 1 if wanted < 0 and not len(every) else -1)
            known = {numbers[name]: value for value, name in found}
            label[row] = max(known, key=lambda number: known[number], default=-1) if wanted < 0 else wanted
            probability[row] = known.get(int(label[row]), 0.0)
            if len(every):
                every[row, list(known)] = list(known.values())


AnyModel = Predictor | ToxicityModel | SignalModel


@lru_cache(maxsize=8)
def load(path: str, xxh3: str) -> AnyModel:
    """The model, read once per process.

    Raises `UserError` if it is neither a fastText model nor, by its name, a toxicity model or one over signals, `WorkError` if its bytes are not
    those of the checksum.
    """
    if is_model(path):
        return toxicity_model(path, xxh3)
    if is_signal_model(path):
        return signal_model(path, xxh3)
    fasttext_model.check(path, xxh3)
    try:
        arrays, labels = read_model(Path(path))
    except NotUnderstood as error:
        # The library supports more kinds, and raises for those that it does not.
        library = fasttext_model.load(path, xxh3)
        logging.getLogger(__name__).info("%s: read by the fastText library: %s", path, error)
        return Predictor(None, library.get_labels(), library)
    return Predictor(_summed(arrays), labels)


def load_bytes(binary: bytes) -> Predictor:
    """The model of these bytes, by way of a file that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        path = Path(folder) / "model.ftz"
        path.write_bytes(binary)
        found = load.__wrapped__(str(path), checksum(binary))
        assert isinstance(found, Predictor)
        return found


def _summed(arrays: Arrays) -> Arrays:
    """With the n-grams of each known word added up once, where the model is small and rounding does no harm.

    Binary losses take a sigmoid from a table of steps, where another order of the sum may fall into another step.
    """
    small = 0 < len(arrays.rows) * arrays.rows.shape[1] * 4 <= model_file.EXPANDED
    if (
        not small
        or arrays.numbers.max_n <= 0
        or arrays.numbers.loss not in (model_file.HIERARCHICAL, model_file.SOFTMAX)
    ):
        return arrays
    rows, weights = arrays.rows.copy(), np.empty(arrays.numbers.words, np.int32)
    inference.sum_words(arrays, rows, weights)
    return locked(arrays._replace(rows=rows, weights=weights, numbers=arrays.numbers._replace(summed=1)))


@lru_cache(maxsize=1)
def _sigmoid() -> Array:
    """float32[513]: fastText's table of the logistic function over [-8, 8]."""
    x = (np.arange(513, dtype=np.float32) * np.float32(16) / np.float32(512) - np.float32(8)).astype(
        np.float32
    )
    table: Array = (1.0 / (1.0 + np.exp(-x).astype(np.float64))).astype(np.float32)
    table.flags.writeable = False
    return table
