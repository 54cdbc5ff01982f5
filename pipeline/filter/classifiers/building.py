"""Train, judge, write: a model file and its card, in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.filter.classifiers import fasttext_model
from pipeline.filter.classifiers.card import model_card
from pipeline.filter.classifiers.training import (
    Labelled,
    Training,
    choose_threshold,
    concatenated,
    evaluate_classifier,
    score_texts,
    train_classifier,
)
from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.storage import Folder


@dataclass(frozen=True)
class Made:
    """What `build` wrote."""

    size: int
    xxh3: str
    threshold: float
    card: str


def build(
    model: Path,
    title: str,
    intent: str,
    data: Sequence[Labelled],
    unseen: Sequence[Labelled],
    training: Training,
    thresholds: Sequence[float],
    threshold: float | None = None,
    precision: float | None = None,
    kept: float | None = None,
    limits: Sequence[str] = (),
) -> Made:
    """Train on `data`, write the model at `model` and the card beside it as `.md`.

    The threshold of the card is the one given, else chosen on the held-out part by `precision` or `kept`,
    else 0.5. Raises `UserError` for data that cannot be trained on, `WorkError` where nothing can be written.
    """
    binary, held_out = train_classifier(data, training)
    xxh3 = checksum(binary)
    loaded = fasttext_model.load_bytes(binary)
    whole = concatenated("all held-out texts", held_out)
    if threshold is None and (precision is not None or kept is not None):
        found = score_texts(loaded, training.label, whole.texts, training.pool)
        threshold = choose_threshold(found, np.asarray(whole.positive, np.bool_), precision, kept)
    threshold = 0.5 if threshold is None else round(threshold, 4)
    steps = sorted({*thresholds, threshold})
    seen = [
        evaluate_classifier(loaded, training.label, part, training.pool, steps) for part in [whole, *held_out]
    ]
    new = [evaluate_classifier(loaded, training.label, part, training.pool, steps) for part in unseen]
    card = model_card(title, intent, data, seen, new, training, threshold, len(binary), xxh3, limits)
    try:
        (Folder(model.parent) / model.name).write(binary)
        (Folder(model.parent) / f"{model.stem}.md").write(card.encode())
    except FileNotFoundError as error:
        raise WorkError(f"{model}: cannot be written: {error}") from None
    return Made(len(binary), xxh3, threshold, str(model.with_suffix(".md")))
