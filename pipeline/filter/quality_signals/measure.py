"""The signals that a model over signals reads, measured on texts as the stage measures and stores them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor, scores
from corpusmill.pipeline.filter.classifiers.pooling import pooled
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.quality_signals.inputs import INPUTS, QUALITY
from corpusmill.pipeline.filter.quality_signals.model import SignalModel
from corpusmill.pipeline.filter.signals.catalogue import measure, text_specs
from corpusmill.pipeline.filter.text.view import Array, spans, text_buffers, view_of
from corpusmill.schemas.tables import ARROW_TYPES


def versions() -> dict[str, str]:
    """Signal -> its version now, of all that are measured by default and `quality.score`."""
    return {spec.name: spec.version for spec in (*text_specs(), *scores.SPECS)}


def columns_of(texts: Sequence[str]) -> dict[str, Array]:
    """Signal of `INPUTS` -> float64[texts], as stored: rounded to the type of its column; `quality.score` by the shipped model."""
    file = fasttext_model.shipped(fasttext_model.SHIPPED["quality"])
    prose = predictor.load(file.path, file.xxh3)
    assert isinstance(prose, Predictor) and file.label is not None
    types = {spec.name: ARROW_TYPES[spec.dtype] for spec in (*text_specs(), *scores.SPECS)}
    wanted = [one.signal for one in INPUTS]
    found: dict[str, list[Array]] = {name: [np.zeros(0)] for name in wanted}
    column = pa.chunked_array([pa.array(texts, pa.large_string())]).combine_chunks()
    for first, last in spans(column):
        part = column.slice(first, last - first)
        values = measure(view_of(*text_buffers(part)))
        read = scores.reading(part, "windows")
        values[QUALITY] = pooled(prose.probability(read.words, read.ranges, file.label), read.owner, "mean")
        for name in wanted:
            found[name].append(np.asarray(pa.array(values[name]).cast(types[name]), np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def readable_by(model: SignalModel, columns: dict[str, Array]) -> dict[str, Array]:
    """The columns without `quality.score` where the model has learnt from another fastText model's."""
    known = fasttext_model.shipped(fasttext_model.SHIPPED["quality"]).xxh3
    return {name: column for name, column in columns.items() if name != QUALITY or model.fasttext == known}


def score_of(model: SignalModel, texts: Sequence[str]) -> Array:
    """float32[texts]: what the stage would store of texts in a language that the model is made for."""
    return model.probability(readable_by(model, columns_of(texts)))
