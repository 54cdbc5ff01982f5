"""What weighed most in a stored `quality_signals.score`: recomputed from the signals of the run and the model that it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import stage_params
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.calibration import logistic
from corpusmill.pipeline.filter.quality_signals.inputs import QUALITY, WORDS
from corpusmill.pipeline.filter.quality_signals.model import SignalModel, load, strongest
from corpusmill.pipeline.filter.quality_signals.scores import SCORE, SECTION, reads_quality
from corpusmill.schemas.filter import ClassifierParams, SignalModelParams

SHOWN: Final = 3  # signals


class Weighing:
    """Explains the scores of one run; `missing` says why it cannot, where the model is not there or is another one by now."""

    def __init__(self, run: Folder) -> None:
        self.model: SignalModel | None = None
        self.reads_quality = False
        self.missing = "the filter's manifest is not there, which names the model"
        params = stage_params(run, "filter")
        if params is not None:
            try:
                self._find(params)
            except (AttributeError, KeyError, TypeError, ValidationError):
                self.missing = "the filter's manifest does not name the model"

    def _find(self, params: Mapping[str, Any]) -> None:
        section, wanted = SignalModelParams.model_validate(params[SECTION]), params["models"][SECTION]
        try:
            shipped = fasttext_model.SHIPPED[SECTION]
            file = (
                fasttext_model.shipped(shipped)
                if section.model is None
                else fasttext_model.find(section.model)
            )
            if file.xxh3 != wanted:
                self.missing = f"{section.model or file.path} is another model than the run's (xxh3 {wanted})"
                return
            self.model = load(file.path, file.xxh3)
        except (UserError, WorkError) as error:
            self.missing = str(error)
            return
        prose = ClassifierParams.model_validate(params["quality"]) if params.get("quality") else None
        self.reads_quality = reads_quality(self.model, prose, params["models"].get("quality"))

    def of(self, signals: Mapping[str, Any]) -> dict[str, Any] | None:
        """`score`, `log_odds` and the `strongest` signals of a document, each with value, contribution in log-odds and words; or
        `score` and the `note` why they cannot be given. None where no score is stored."""
        if signals.get(SCORE) is None:
            return None
        if self.model is None:
            return {"score": signals[SCORE], "note": self.missing}
        columns = {
            curve.signal: np.array(
                [np.nan if signals.get(curve.signal) is None else signals[curve.signal]], np.float64
            )
            for curve in self.model.curves
            if curve.signal != QUALITY or self.reads_quality
        }
        parts = self.model.contributions(columns)
        odds = self.model.log_odds(parts)
        if logistic(odds).astype(np.float32)[0] != np.float32(signals[SCORE]):
            return {
                "score": signals[SCORE],
                "note": "the stored signals do not give this score; run `corpusmill verify`",
            }
        return {
            "score": signals[SCORE],
            "log_odds": float(odds[0]),
            "strongest": [
                {
                    "signal": (name := self.model.curves[place].signal), "value": signals[name],
                    "contribution": float(parts[0, place]), "words": WORDS.get(name, ""),
                }
                for place in strongest(parts[0].tolist(), SHOWN)
            ],
        }  # fmt: skip


def lines_of(weighed: Mapping[str, Any]) -> list[str]:
    """What `Weighing.of` found, in words for a terminal."""
    if "note" in weighed:
        return [f"  weighed     unknown what in {SCORE} = {weighed['score']:.6g}: {weighed['note']}"]
    lines = [f"  weighed     most in {SCORE} = {weighed['score']:.6g} (log-odds {weighed['log_odds']:+.2f}):"]
    for one in weighed["strongest"]:
        side = "for it" if one["contribution"] > 0 else "against"
        words = f"{one['words']}: " if one["words"] else ""
        lines.append(f"    {side:<9} {one['contribution']:+.2f}  {words}{one['signal']} = {one['value']:.6g}")
    return lines
