"""Train, evaluate, write: a model over signals and its card, as `classifiers.building` makes those of fastText."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers.building import (
    Made,
    by_threshold,
    card_of,
    evaluations_table,
    table,
    write,
)
from corpusmill.pipeline.filter.classifiers.calibration import calibration_error
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, concatenated
from corpusmill.pipeline.filter.classifiers.training import choose_threshold, evaluation, rounded
from corpusmill.pipeline.filter.quality_signals.inputs import WORDS
from corpusmill.pipeline.filter.quality_signals.measure import columns_of, readable_by, score_of
from corpusmill.pipeline.filter.quality_signals.model import SignalModel, strongest, to_bytes
from corpusmill.pipeline.filter.quality_signals.training import SignalTraining, train_on_signals

SHOWN: Final = 100  # characters of a text in the card


def build_on_signals(
    path: Path,
    data: Sequence[Labelled],
    unseen: Sequence[Labelled],
    training: SignalTraining,
    thresholds: Sequence[float],
    precision: float | None = None,
    kept: float | None = None,
) -> Made:
    """Train on `data`, write the model at `path` and the card beside it as `.md`.

    The threshold is chosen on the held-out part by `precision` or `kept`, else 0.5. Raises `UserError` for data that cannot be
    trained on and for a path that is no .json, `WorkError` where nothing can be written.
    """
    card_path = card_of(path)
    if path.suffix != ".json":
        raise UserError(f"{path}: a model over signals is a .json; name it {path.with_suffix('.json')}")
    trained = train_on_signals(data, training)
    whole = concatenated("all held-out texts", trained.held_out)
    if not len(whole):
        raise UserError("no text was held out to judge the model by: give more texts, or a larger --held-out")
    found, truth = score_of(trained.model, whole.texts), np.asarray(whole.positive, np.bool_)
    threshold = 0.5
    if precision is not None or kept is not None:
        threshold = rounded(choose_threshold(found, truth, precision, kept), found)
    steps = sorted({*thresholds, threshold})
    seen = [evaluation(whole.name, found, truth, steps)]
    ends = np.cumsum([0, *map(len, trained.held_out)])
    for part, (first, last) in zip(trained.held_out, pairwise(ends), strict=True):
        seen.append(evaluation(part.name, found[first:last], truth[first:last], steps))
    new = [
        evaluation(part.name, score_of(trained.model, part.texts), np.asarray(part.positive, np.bool_), steps)
        for part in unseen
    ]
    binary = to_bytes(trained.model)
    xxh3 = checksum(binary)
    middle = int(np.abs(found - 0.5).argmin())
    examples = [whole.texts[int(found.argmax())], whole.texts[middle], whole.texts[int(found.argmin())]]
    card = "\n\n".join(
        [
            f"# {path.stem}",
            "A model over signals of the user's own.",
            written(len(binary), xxh3, training.label, threshold),
            *how(trained.model, training.options.ridge, training.options.free),
            "## Data it was trained on",
            sets_table(data, training.label),
            f"About {training.held_out:.0%} of each set was held out, chosen by the seed and the words of the text, so that near"
            f" copies are mostly on one side; {trained.copies:,} texts of which more than half of the runs of four words stand in"
            " the training part are in neither. Scaled and shifted to be probabilities (Platt 1999) by the scores of five models,"
            " each of texts that it had not learnt from.",
            "## On the held-out part",
            evaluations_table(seen, threshold),
            f"Expected calibration error: {calibration_error(found, truth):.3f}.",
            by_threshold(seen),
            "## On sets it has never seen",
            evaluations_table(new, threshold)
            if new
            else "None was given: nothing is known of how it generalises.",
            *shapes(trained.model),
            *worked(trained.model, examples),
        ]
    )
    write(path, binary, card + "\n")
    return Made(len(binary), xxh3, threshold, str(card_path), seen[0], None)


def written(size: int, xxh3: str, label: str, threshold: float) -> str:
    """The line on the file."""
    return (
        "Written by the training command; do not edit. A generalised additive model over the stored signals;"
        f" {size:,} bytes, xxh3_128 `{xxh3}`. Label `{label}`; threshold {threshold}."
    )


def how(model: SignalModel, ridge: float, free: bool) -> list[str]:
    """The paragraphs on what it reads and how it was fitted."""
    bound = "No direction was set." if free else "Curves marked up or down may go that way only."
    return [
        f"**Input.** {len(model.curves)} signals that `filter` stores by default. The log-odds are {model.bias:g} plus what each"
        " signal contributes, 0 for the average document of the training sets and for a value that was not measured.",
        f"**Training.** Weighted logistic loss, ridge {ridge:g} on the steps of the curves, L-BFGS-B. {bound} The same texts give"
        " the same bytes.",
    ]


def sets_table(data: Sequence[Labelled], label: str) -> str:
    """The training sets."""
    rows = [[part.name, len(part), sum(map(bool, part.positive)), part.licence, part.note] for part in data]
    return table(["set", "texts", f"`{label}`", "licence", "note"], rows)


def shapes(model: SignalModel) -> list[str]:
    """What each signal contributes at its knots, those that can weigh most first."""
    order = sorted(model.curves, key=lambda curve: (min(curve.values) - max(curve.values), curve.signal))
    rows: list[list[Any]] = []
    for curve in order:
        points = list(zip(curve.knots, curve.values, strict=True))
        some = [
            points[place]
            for place in sorted(
                {0, len(points) // 4, len(points) // 2, 3 * len(points) // 4, len(points) - 1}
            )
        ]
        shape = ", ".join(f"{x:.3g}: {y:+.2f}" for x, y in some)
        rows.append([f"`{curve.signal}`", WORDS.get(curve.signal, ""), curve.direction, shape])
    return [
        "## What each signal contributes",
        "In log-odds, at values from low to high (value: contribution), linear between them and constant beyond.",
        table(["signal", "of", "direction", "contributions"], rows),
    ]


def worked(model: SignalModel, texts: Sequence[str]) -> list[str]:
    """Scores of texts, each with the three signals that weigh most."""
    columns = readable_by(model, columns_of(texts))
    parts, scores = model.contributions(columns), model.probability(columns)
    rows: list[list[Any]] = []
    for row, text in enumerate(texts):
        weighed = "; ".join(
            f"{WORDS.get(model.curves[place].signal, model.curves[place].signal)}"
            f" {columns[model.curves[place].signal][row]:.3g}: {parts[row, place]:+.2f}"
            for place in strongest(parts[row].tolist())
        )
        short = " ".join(text.split()).replace("|", "¦")
        rows.append([short if len(short) <= SHOWN else f"{short[:SHOWN]}…", float(scores[row]), weighed])
    return ["## Examples", table(["text", "score", "weighed most: value, contribution"], rows)]
