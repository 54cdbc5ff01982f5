"""Training and judging a fastText classifier: labelled text in, a small quantised model and its card out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers import pooling, scores
from corpusmill.pipeline.filter.classifiers.fasttext_model import LABEL, fit
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, chosen, copies, held_out, runs_of
from corpusmill.pipeline.filter.classifiers.predictor import AnyModel
from corpusmill.pipeline.filter.quality_signals.measure import score_of
from corpusmill.pipeline.filter.quality_signals.model import SignalModel
from corpusmill.pipeline.filter.toxicity.model import ToxicityModel
from corpusmill.pipeline.filter.toxicity.scores import document_scores

OTHER = "other"  # the label of everything that is not `positive`


@dataclass(frozen=True)
class Training:
    """How a model is made. The same options and texts give the same bytes: one thread, a fixed seed."""

    label: str
    pool: pooling.Pool = "mean"
    dim: int = 16
    epochs: int = 10
    learning_rate: float = 0.4
    word_ngrams: int = 2
    min_count: int = 2
    buckets: int = 50_000
    features: int = 40_000
    seed: int = 0
    held_out: float = 0.2


@dataclass(frozen=True)
class Evaluation:
    """What a model does on one set. AUC and average are None where the set has one class only."""

    name: str
    documents: int
    positives: int
    auc: float | None
    rows: list[dict[str, float | None]] = field(default_factory=list)

    def at(self, threshold: float) -> dict[str, float | None]:
        """The row of that threshold."""
        return next(row for row in self.rows if row["threshold"] == threshold)


@dataclass(frozen=True)
class Trained:
    """The quantised .ftz model's bytes, the held-out part of each set, and how many texts neither learnt from nor
    held out, being near copies."""

    binary: bytes
    held_out: list[Labelled]
    copies: int


def train_classifier(
    data: Sequence[Labelled], training: Training, pseudo: Sequence[Labelled] = ()
) -> Trained:
    """Train and quantise a model, deterministically. `pseudo`: sets whose labels a model has given, of which nothing is held out.

    Texts are cut into the windows that scoring uses, each under its text's label. Which are held out goes by
    their words (`labelled.held_out`); one that is still a near copy of what was learnt from is in neither part.
    Raises `UserError` if a class has no text to train on, `WorkError` if fastText fails.
    """
    if any(char.isspace() for char in training.label) or training.label in ("", OTHER):
        raise UserError(f"label '{training.label}': one word is needed, other than '{OTHER}'")
    lines: list[str] = []
    parts: list[Labelled] = []
    learnt: list[str] = []
    classes: set[bool] = set()
    for part in [*data, *pseudo]:
        out = np.zeros(len(part), np.bool_)
        if len(parts) < len(data):
            out = held_out(part.texts, training.held_out, training.seed)
            parts.append(chosen(part, out))
        learn = chosen(part, ~out)
        learnt.extend(learn.texts)
        clean, offsets = scores.windows(learn.texts)
        for row, (a, b) in enumerate(pairwise(offsets)):
            label = training.label if learn.positive[row] else OTHER
            lines.extend(f"{LABEL}{label} {line}\n" for line in clean[a:b].to_pylist())
            classes.add(bool(learn.positive[row]))
    if classes != {True, False}:
        raise UserError(
            f"training needs texts with and without the label '{training.label}'; there are none"
            f" {'with' if True not in classes else 'without'} it"
        )
    # fastText reads the file in order: without mixing, it would end on the last class alone.
    order = np.random.default_rng(training.seed).permutation(len(lines))
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        source, target = Path(folder) / "train.txt", Path(folder) / "model.ftz"
        source.write_text("".join(lines[i] for i in order), encoding="utf-8")
        fit(
            source, target,
            train={
                "dim": training.dim, "epoch": training.epochs, "lr": training.learning_rate,
                "wordNgrams": training.word_ngrams, "minCount": training.min_count,
                "bucket": training.buckets, "seed": training.seed, "loss": "softmax",
            },
            quantize={
                "cutoff": training.features, "retrain": True, "qnorm": True, "epoch": training.epochs,
                "lr": training.learning_rate,
            },
        )  # fmt: skip
        binary = target.read_bytes()
    runs = np.sort(runs_of(learnt)[0])
    fresh = [chosen(part, ~copies(part.texts, runs)) for part in parts]
    return Trained(binary, fresh, sum(map(len, parts)) - sum(map(len, fresh)))


def pseudo_labelled(
    model: AnyModel, name: str, texts: Sequence[str], training: Training, confidence: float
) -> Labelled:
    """The texts that a model is sure of, under the label that it gives them (self-training, Scudder 1965, Yarowsky 1995): its score is at
    least `confidence`, or at most 1 - `confidence`."""
    found = score_texts(model, training.label, texts, training.pool)
    low, high = np.float32(1 - confidence), np.float32(confidence)
    sure = (found >= high) | (found <= low)
    every = Labelled(
        name, texts, (found >= high).tolist(),
        note=f"{int(sure.sum()):,} of {len(texts):,} texts, labelled by a first model at {confidence} or surer",
    )  # fmt: skip
    return chosen(every, sure)


def score_texts(
    model: AnyModel,
    label: str,
    texts: Sequence[str],
    pool: pooling.Pool,
    form: pooling.Form = "windows",
) -> npt.NDArray[np.float32]:
    """float32[texts]: the score that the stage would give each text; a model over signals has its own way of reading one."""
    if isinstance(model, SignalModel):
        return score_of(model, texts)
    out = [np.zeros(0, np.float32)]
    for batch in pa.table({"text": pa.array(texts, pa.large_string())}).to_batches(max_chunksize=4096):
        if isinstance(model, ToxicityModel):
            out.append(document_scores(batch["text"], model, label, pool, form))
            continue
        read = scores.reading(batch["text"], form)
        out.append(pooling.pooled(model.probability(read.words, read.ranges, label), read.owner, pool))
    return np.concatenate(out)


def evaluate_classifier(
    model: AnyModel,
    label: str,
    data: Labelled,
    pool: pooling.Pool,
    thresholds: Sequence[float],
    form: pooling.Form = "windows",
) -> Evaluation:
    """AUC, and at each threshold: precision, recall, false positive rate, share of the texts above it."""
    found = score_texts(model, label, data.texts, pool, form)
    return evaluation(data.name, found, np.asarray(data.positive, np.bool_), thresholds)


def evaluation(
    name: str, found: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_], thresholds: Sequence[float]
) -> Evaluation:
    """What scores are worth on texts of which `truth` are positive."""
    rows = []
    for threshold in thresholds:
        hit = found > np.float32(threshold)
        right, wrong = int((hit & truth).sum()), int((hit & ~truth).sum())
        rows.append(
            {
                "threshold": threshold,
                "precision": _ratio(right, right + wrong),
                "recall": _ratio(right, int(truth.sum())),
                "false_positive_rate": _ratio(wrong, int((~truth).sum())),
                "share_above": _ratio(right + wrong, len(truth)),
            }
        )
    return Evaluation(name, len(truth), int(truth.sum()), auc(found, truth), rows)


def auc(found: npt.NDArray[Any], truth: npt.NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a positive scores above a negative, ties counting half."""
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return None
    _, rank, count = np.unique(found, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2
    return float((middle[rank][truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def choose_threshold(
    found: npt.NDArray[Any],
    truth: npt.NDArray[np.bool_],
    precision: float | None = None,
    kept: float | None = None,
) -> float:
    """The lowest threshold whose precision above it is at least `precision`, or that leaves the share `kept`
    above.

    Exactly one is given. Raises `UserError` when no threshold reaches the precision.
    """
    if kept is not None and precision is None:
        return float(np.quantile(found, 1 - kept))
    if precision is None or kept is not None:
        raise UserError("give either a target precision or a kept share")
    order = np.argsort(-found, kind="stable")
    right = np.cumsum(truth[order])
    # Only between two different scores can a threshold lie; above the lowest lies everything else.
    ends = np.flatnonzero(np.diff(found[order]) != 0)
    reached = right[ends] / (ends + 1)
    good = ends[reached >= precision]
    if len(good) == 0:
        best = (
            f"the best on the held-out texts is {reached.max():.3f}"
            if len(ends)
            else "all of them score the same"
        )
        reason = f"no threshold reaches a precision of {precision}; {best}"
        raise UserError(f"{reason}; give more texts, or ask for less")
    return float(found[order][good[-1] + 1])


def rounded(threshold: float, found: npt.NDArray[np.float32]) -> float:
    """The threshold in as few decimals, four at least, as leave the same of the scores above it."""
    above = found > np.float32(threshold)
    for digits in range(4, 17):
        short = round(threshold, digits)
        if ((found > np.float32(short)) == above).all():
            return short
    return threshold


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
