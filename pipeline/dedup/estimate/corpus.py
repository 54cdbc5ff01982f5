"""What the estimator is given: a corpus in the few numbers that decide the cost of its deduplication, and the constants of
the machine and the code, measured by `python -m bench scale` and kept in `measured.json`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.schemas.dedup_results import Interval
from corpusmill.schemas.manifest import Strict

FILE = "measured.json"
BINS = 100  # of Jaccard similarity: 0 to 0.01, ... 0.99 to 1
F64 = npt.NDArray[np.float64]


class Measured(Strict):
    """Constants of the machine and the code."""

    machine: str
    seconds: dict[str, dict[str, float]] = Field(description="step -> unit -> CPU seconds for one of it")
    worker_bytes: float = Field(ge=0, description="of a worker that has done nothing yet")
    place_bytes: float = Field(ge=0, description="of a slice in the result of a task")
    slice_bytes: float = Field(
        ge=0, description="of a slice that the driver holds for the step that reads it"
    )
    routing_bytes: float = Field(ge=0, description="more, while slices are sorted and sent to that step")
    done_bytes: float = Field(
        ge=0, description="of the result of a task on the driver, its files not counted"
    )
    file_bytes: float = Field(ge=0, description="of each of its files")
    task_bytes: float = Field(ge=0, description="of a task in Dask's scheduler and client, until it is done")
    label_bytes: float = Field(ge=0, description="of a text in a verified pair, in union-find on the driver")
    dispatch_seconds: float = Field(ge=0, description="of the driver, for each task")
    background: tuple[float, ...] = Field(
        description="share of the pairs of documents of two sources that fall in each bin of Jaccard similarity"
    )
    siblings: tuple[float, ...] = Field(
        description="documents of its own source that a document has in each bin, below similarity 0.5"
    )


@lru_cache(maxsize=1)
def measured() -> Measured:
    """The constants in the package."""
    return Measured.model_validate_json((files("corpusmill.pipeline.dedup.estimate") / FILE).read_bytes())


def path() -> Path:
    """Where the bench writes them."""
    return Path(__file__).with_name(FILE)


class Corpus(Strict):
    """What the estimator knows of a corpus."""

    documents: int = Field(ge=0)
    text_bytes: int = Field(ge=0, description="UTF-8")
    stored_bytes: int = Field(ge=0, description="of the Parquet partitions")
    partitions: int = Field(ge=0)
    shingles: float = Field(ge=0, description="distinct shingles of a document, mean")
    copies: float = Field(ge=0, description="other documents with the same text that a document has, mean")
    pairs: tuple[float, ...] = Field(
        description=f"expected pairs of different texts by Jaccard similarity, in {BINS} bins",
        min_length=BINS,
        max_length=BINS,
    )
    similar: Interval | None = Field(default=None, description="pairs at the wanted similarity or above")
    looked_at: int = Field(default=0, ge=0, description="documents that a pilot compared with each other")

    @property
    def distinct(self) -> float:
        """Share of the documents that are the first with their text."""
        return left(self.copies)

    @property
    def texts(self) -> float:
        """Different texts."""
        return self.documents * self.distinct

    def expected(self, weight: F64) -> float:
        """Sum of the pairs, each bin times its weight."""
        return float(np.asarray(self.pairs) @ weight)


def left(degree: float) -> float:
    """The share that stays of documents with `degree` duplicates each, Poisson, if of neighbours the first in
    a random order stays: the mean of 1 / (1 + duplicates)."""
    return -math.expm1(-degree) / degree if degree > 1e-12 else 1.0


def degree_of(share: float) -> float:
    """The mean number of duplicates with which `left` gives this share; inverse of `left`, by bisection."""
    if share >= 1:
        return 0.0
    low, high = 0.0, 2 / max(share, 1e-9)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > share else (low, middle)
    return low


@lru_cache(maxsize=32)
def in_bins(banding: Banding) -> tuple[F64, F64]:
    """(probability that a pair becomes a candidate, number of bands that it shares), means over each bin."""
    x = (np.arange(BINS * 10) + 0.5) / (BINS * 10)
    hit = x**banding.rows
    found = -np.expm1(banding.bands * np.log1p(-hit))
    return found.reshape(BINS, 10).mean(axis=1), (banding.bands * hit).reshape(BINS, 10).mean(axis=1)


def at_least(similarity: float) -> F64:
    """Share of each bin that lies at or above a similarity."""
    low = np.arange(BINS) / BINS
    share: F64 = np.clip((low + 1 / BINS - similarity) * BINS, 0, 1)
    share[-1] = max(share[-1], 1.0)  # pairs of equal sets are in the last bin
    return share


def assumed(
    documents: int,
    bytes_per_document: float,
    partition_bytes: float,
    duplicates: float,
    copies: float,
    constants: Measured | None = None,
) -> Corpus:
    """A corpus of which nothing was measured.

    Each document has `copies` exact copies, `duplicates` others spread evenly over similarities 0.5 to 1, as
    many less similar ones as the documents of one source had where the constants were measured (`siblings`: a
    site's own templates, which do not grow with the corpus), and the `background` of all other documents, which
    does. Shingles: one in 6 bytes, as in English words; Parquet: half the text's bytes.
    """
    constants = constants or measured()
    pairs = np.zeros(BINS)
    pairs[BINS // 2 :] = documents * duplicates / 2 / (BINS - BINS // 2)
    pairs[: len(constants.siblings)] += documents / 2 * np.asarray(constants.siblings)
    pairs[: len(constants.background)] += documents / 2 * documents * np.asarray(constants.background)
    text = int(documents * bytes_per_document)
    return Corpus(
        documents=documents,
        text_bytes=text,
        stored_bytes=text // 2,
        partitions=max(1, math.ceil(text / partition_bytes)),
        shingles=max(1.0, bytes_per_document / 6),
        copies=copies,
        pairs=tuple(pairs.tolist()),
    )


def grown(
    corpus: Corpus, documents: float | None, bytes_per_document: float | None, partition_bytes: float | None
) -> Corpus:
    """More of the same: pairs grow with the square of the documents, copies of one document with their number."""
    count = corpus.documents if documents is None else int(documents)
    times = count / max(1, corpus.documents)
    longer = (
        bytes_per_document / (corpus.text_bytes / max(1, corpus.documents)) if bytes_per_document else 1.0
    )
    text = int(corpus.text_bytes * times * longer)
    if partition_bytes is None:
        partition_bytes = corpus.text_bytes / max(1, corpus.partitions)
    similar = corpus.similar
    if similar is not None:
        similar = Interval(**{name: value * times**2 for name, value in similar.model_dump().items()})
    return corpus.model_copy(
        update={
            "documents": count,
            "text_bytes": text,
            "stored_bytes": int(corpus.stored_bytes * times * longer),
            "partitions": max(1, math.ceil(text / max(1.0, partition_bytes))),
            "shingles": corpus.shingles * longer,
            "copies": corpus.copies * times,
            "pairs": tuple(pairs * times**2 for pairs in corpus.pairs),
            "similar": similar,
        }
    )
