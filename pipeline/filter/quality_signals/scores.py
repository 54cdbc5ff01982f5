"""The stage's signal `quality_signals.score`: the model's probability over the columns of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.filter.classifiers.fasttext_model import ModelFile
from corpusmill.pipeline.filter.quality_signals.inputs import QUALITY
from corpusmill.pipeline.filter.quality_signals.model import SignalModel, fits, load
from corpusmill.schemas.filter import ClassifierParams, FilterParams
from corpusmill.schemas.tables import SignalSpec

SECTION: Final = "quality_signals"
FASTTEXT_LABEL: Final = "prose"  # of the shipped model of `filter.quality`
SCORE: Final = f"{SECTION}.score"
SPECS: Final = (
    SignalSpec(
        name=SCORE, dtype="float", unit="probability", range=(0.0, 1.0), version="1",
        origin="model card of the shipped model: an additive model over the signals of the text and quality.score",
    ),
)  # fmt: skip


class SignalScores:
    """Holds the loaded model. `measured` are the specs of the other columns of the batches to come.

    Raises `UserError` for a file that is no such model, and for one that reads a signal which is not measured, or was trained on
    another version of one.
    """

    def __init__(
        self, params: FilterParams, models: Mapping[str, ModelFile], measured: Sequence[SignalSpec]
    ) -> None:
        self.model: SignalModel | None = None
        file = models.get(SECTION)
        if file is None:
            return
        self.model = load(file.path, file.xxh3)
        section = params.quality_signals
        assert section is not None
        numbers = {spec.name: spec.version for spec in measured if spec.dtype != "string"}
        fits(self.model, numbers, f"filter.{SECTION}.model: {section.model or file.path}")
        prose = models.get("quality")
        reads = reads_quality(self.model, params.quality, None if prose is None else prose.xxh3)
        self.withheld = set() if reads else {QUALITY}

    def columns(self, columns: Mapping[str, pa.Array], wanted: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
        """`quality_signals.score` of documents, of which `columns` are the other signals as stored; null without a model, where a document
        is not `wanted` (bool[D]), and in a language that the model is not made for. Where no language was measured, every text is
        scored."""
        if self.model is None:
            return {SCORE: pa.nulls(len(wanted), pa.float32())}
        given = {name: column for name, column in columns.items() if name not in self.withheld}
        found = pa.array(self.model.probability(given))
        if self.model.languages:
            known = pa.array([*self.model.languages, None], pa.string())
            fitting = pc.is_in(columns["language.code"], value_set=known)
            found = pc.if_else(fitting, found, pa.scalar(None, pa.float32()))
        return {SCORE: pc.if_else(pa.array(wanted), found, pa.scalar(None, pa.float32()))}


def reads_quality(model: SignalModel, section: ClassifierParams | None, xxh3: str | None) -> bool:
    """Whether a run's `quality.score` is that which the model has learnt from: of the same fastText model, label and input.
    `section` is `filter.quality` of the run, `xxh3` of its model's bytes."""
    return (
        section is not None
        and xxh3 == model.fasttext
        and section.input == "windows"
        and section.label in (None, FASTTEXT_LABEL)
    )
