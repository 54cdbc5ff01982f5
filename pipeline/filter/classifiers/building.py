"""Train, judge, write: a model file and its card, in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter.classifiers import predictor
from corpusmill.pipeline.filter.classifiers.card import model_card
from corpusmill.pipeline.filter.classifiers.identity import IdentityReport, identity_report
from corpusmill.pipeline.filter.classifiers.training import (
    Evaluation,
    Labelled,
    Training,
    choose_threshold,
    concatenated,
    evaluate_classifier,
    rounded,
    score_texts,
    train_classifier,
)


@dataclass(frozen=True)
class Made:
    """What `build` wrote."""

    size: int
    xxh3: str
    threshold: float
    card: str
    held_out: Evaluation  # on all held-out texts
    identity: IdentityReport | None


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
    identity: Labelled | None = None,
    notes: Sequence[str] = (),
) -> Made:
    """Train on `data`, write the model at `model` and the card beside it as `.md`.

    The threshold of the card is the one given, else chosen on the held-out part by `precision` or `kept`,
    else 0.5. `identity` are phrases that name identities, for their false positives; `notes` go under the sets
    that the model has not seen. Raises `UserError` for data that cannot be trained on, `WorkError` where nothing
    can be written.
    """
    if model.is_dir():
        raise UserError(f"{model}: is a folder; name the model's file, such as {model / 'mine.ftz'}")
    card_path = model.with_suffix(".md")
    if model == card_path:
        raise UserError(f"{model}: is where the card goes; name the model's file, such as {model.stem}.ftz")
    trained = train_classifier(data, training)
    xxh3 = checksum(trained.binary)
    loaded = predictor.load_bytes(trained.binary)
    whole = concatenated("all held-out texts", trained.held_out)
    if threshold is None and (precision is not None or kept is not None):
        if not len(whole):
            raise UserError(
                "no text was held out to choose a threshold by: give more texts, or a larger --held-out"
            )
        found = score_texts(loaded, training.label, whole.texts, training.pool)
        threshold = rounded(
            choose_threshold(found, np.asarray(whole.positive, np.bool_), precision, kept), found
        )
    threshold = 0.5 if threshold is None else threshold
    steps = sorted({*thresholds, threshold})

    def judged(part: Labelled) -> Evaluation:
        return evaluate_classifier(loaded, training.label, part, training.pool, steps)

    bias = None
    if identity is not None:
        found = score_texts(loaded, training.label, identity.texts, training.pool)
        bias = identity_report(identity, found, threshold)
    seen, new = [judged(part) for part in [whole, *trained.held_out]], [judged(part) for part in unseen]
    card = model_card(
        title, intent, data, seen, new, training, threshold, len(trained.binary), xxh3, limits, bias,
        trained.copies, notes,
    )  # fmt: skip
    try:
        (Folder(model.parent) / model.name).write(trained.binary)
        (Folder(model.parent) / card_path.name).write(card.encode())
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise WorkError(f"{model}: cannot be written: {error}") from None
    return Made(len(trained.binary), xxh3, threshold, str(card_path), seen[0], bias)
