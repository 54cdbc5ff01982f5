"""`cross-validation.json`: k runs, each without one fold of the train documents, and their bits per byte on that fold."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

CROSS_VALIDATION = "cross-validation.json"


class FoldResult(Strict):
    """One run."""

    index: int = Field(description="the fold that was held out")
    run: str = Field(description="folder of the run, below that of the file")
    step: int
    documents: int = Field(description="held out and scored, or parts of them")
    bytes: int
    bits_per_byte: Estimate = Field(description="bootstrap over clusters of near-copies")
    sources: dict[str, Estimate]


class CrossValidation(Strict):
    """The whole file."""

    name: str
    of: int
    seed: int
    folds: list[FoldResult]
    bits_per_byte: Estimate = Field(
        description="mean of the folds, with Student's t on of - 1 degrees of freedom; runs share most of their data, so the interval is"
        " rather too narrow (Bengio & Grandvalet 2004)"
    )
    sources: dict[str, Estimate]
    without: dict[str, list[int]] = Field(
        default={}, description="sources without a mean, since these folds held out no document of them"
    )
