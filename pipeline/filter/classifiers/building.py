"""Train, evaluate, write: a model file and its card (data, licences, options, results on held-out text), in one step.

The card of a toxicity model can show how often the mere naming of an identity scores as toxic, after Dixon et al. 2018,
"Measuring and Mitigating Unintended Bias in Text Classification", whose template set (phrases that name an identity, harmless
or not by their adjective alone) can be given as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter.classifiers import predictor
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, concatenated
from corpusmill.pipeline.filter.classifiers.pooling import MAX_WINDOWS, WINDOW_CHARS, WORST
from corpusmill.pipeline.filter.classifiers.training import (
    Evaluation,
    Training,
    choose_threshold,
    evaluate_classifier,
    pseudo_labelled,
    rounded,
    score_texts,
    train_classifier,
)

TERMS_TEXT = """\
muslim christian jewish hindu buddhist sikh catholic protestant atheist black white asian african
american arab latino latina hispanic latinx mexican chinese japanese indian european canadian gay lesbian bisexual
queer lgbt lgbtq transgender trans straight heterosexual homosexual male female nonbinary deaf blind paralyzed
disabled autistic elderly old young teenage middle-aged older younger millenial"""
TERMS: Final = tuple(TERMS_TEXT.split())
SHOWN: Final = 8  # terms in a table: those with the most false positives


@dataclass(frozen=True)
class IdentityReport:
    """Harmless phrases that name an identity, and how many of them score above the threshold."""

    name: str
    threshold: float
    phrases: int
    above: int
    terms: list[tuple[str, int, int]]  # (term, harmless phrases with it, of them above), the worst first

    @property
    def rate(self) -> float:
        """The false-positive rate over all harmless phrases."""
        return self.above / max(self.phrases, 1)


def identity_report(data: Labelled, scores: npt.NDArray[np.float32], threshold: float) -> IdentityReport:
    """False positives of the harmless phrases of a set, over all and by term."""
    harmless = ~np.asarray(data.positive, np.bool_)
    above = (scores > np.float32(threshold)) & harmless
    words = [set(re.findall(r"[\w-]+", text.lower())) for text in data.texts]
    terms = []
    for term in TERMS:
        named = np.array([term in own for own in words], np.bool_) & harmless
        if named.any():
            terms.append((term, int(named.sum()), int((named & above).sum())))
    terms.sort(key=lambda row: (-row[2] / row[1], row[0]))
    return IdentityReport(data.name, threshold, int(harmless.sum()), int(above.sum()), terms)


def model_card(
    title: str,
    intent: str,
    data: Sequence[Labelled],
    held_out: Sequence[Evaluation],
    unseen: Sequence[Evaluation],
    training: Training,
    threshold: float,
    size: int,
    xxh3: str,
    limits: Sequence[str] = (),
    identity: IdentityReport | None = None,
    copies: int = 0,
    notes: Sequence[str] = (),
) -> str:
    """The card as Markdown; `held_out` are sets that training took another part of, `unseen` it never saw."""
    options = ", ".join(
        f"{key} {value}" for key, value in asdict(training).items() if key not in ("label", "pool")
    )
    worst = f"the mean of the worst {WORST:.0%} of them, one at least"
    pooled = worst if training.pool == "worst" else "their mean"
    unknown = "None was given: nothing is known of how it generalises."
    parts = [
        f"# {title}",
        intent,
        "Written by the training command; do not edit. fastText supervised, quantised; "
        f"{size:,} bytes, xxh3_128 `{xxh3}`. Label `{training.label}`; threshold {threshold}.",
        f"**Input.** Lower case; letters, digits and apostrophes only; windows of about {WINDOW_CHARS}"
        f" characters, at most {MAX_WINDOWS}, evenly spread over the text. The score of a document is"
        f" {pooled}.",
        f"**Training.** {options}. One thread and a fixed seed: the same texts give the same bytes.",
        "## Data it was trained on",
        table(
            ["set", "texts", f"`{training.label}`", "licence", "note"],
            [[part.name, len(part), sum(map(bool, part.positive)), part.licence, part.note] for part in data],
        ),
        f"About {training.held_out:.0%} of each set was held out, chosen by the seed and the words of the text, so that"
        f" near copies are mostly on one side; {copies:,} texts of which more than half of the runs of four words stand"
        " in the training part are in neither.",
        "## On the held-out part",
        evaluations_table(held_out, threshold),
        by_threshold(held_out),
        "## On sets it has never seen",
        evaluations_table(unseen, threshold) if unseen else unknown,
        *([by_threshold(unseen[:1])] if unseen and unseen[0].auc is not None else []),
        *notes,
        *(identity_section(identity) if identity is not None else []),
    ]
    if limits:
        parts += ["## What it cannot do", "\n".join(f"- {line}" for line in limits)]
    return "\n\n".join(parts) + "\n"


def identity_section(report: IdentityReport) -> list[str]:
    """The part on harmless phrases that name an identity."""
    rows = [[term, phrases, above / phrases] for term, phrases, above in report.terms[:SHOWN]]
    return [
        "## Identity terms",
        f"Of {report.phrases:,} harmless phrases of {report.name} that name an identity, {report.above:,}"
        f" ({report.rate:.1%}) score above {report.threshold}. The terms with the highest rate:",
        table(["term", "harmless phrases", f"false positives above {report.threshold}"], rows),
    ]


def pseudo_section(without: Evaluation, with_them: Evaluation, threshold: float) -> list[str]:
    """The part on what pseudo-labels changed."""
    rows: list[list[Any]] = []
    for name, one in (("labels alone", without), ("with pseudo-labels", with_them)):
        at = one.at(threshold)
        rows.append([name, one.auc, at["precision"], at["recall"], at["false_positive_rate"]])
    head = [
        "trained on",
        "AUC",
        *(f"{what} above {threshold}" for what in ("precision", "recall", "false positives")),
    ]
    return [
        "## Pseudo-labels",
        f"Both models on the same {without.documents:,} held-out texts:",
        table(head, rows),
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_shown(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def thresholds_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of an evaluation; a threshold of more than three decimals is shown as it is."""
    cells = [
        [threshold if threshold == round(threshold, 3) else str(threshold), *rest]
        for threshold, *rest in (row.values() for row in rows)
    ]
    return table([key.replace("_", " ") for key in rows[0]], cells)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def evaluations_table(evaluations: Sequence[Evaluation], threshold: float) -> str:
    """Each set's AUC, and what is right and wrong above the threshold."""
    rows: list[list[Any]] = []
    for one in evaluations:
        at = one.at(threshold)
        precision = at["precision"] if one.positives else None
        judged = [precision, at["recall"], at["false_positive_rate"]]
        rows.append([one.name, one.documents, one.positives, one.auc, *judged])
    head = ["set", "texts", "positive", "AUC"]
    at_head = [f"{what} above {threshold}" for what in ("precision", "recall", "false positives")]
    return table([*head, *at_head], rows)


def by_threshold(evaluations: Sequence[Evaluation]) -> str:
    """The first set's figures by threshold."""
    if not evaluations:
        return ""
    whole = evaluations[0]
    return f"By threshold, {whole.name}:\n\n" + thresholds_table(whole.rows)


@dataclass(frozen=True)
class Made:
    """What `build` wrote."""

    size: int
    xxh3: str
    threshold: float
    card: str
    held_out: Evaluation  # on all held-out texts
    identity: IdentityReport | None
    without: Evaluation | None = None  # with pseudo-labels: the model that gave them, on the same texts


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
    unlabelled: Mapping[str, Sequence[str]] | None = None,
    confidence: float = 0.95,
) -> Made:
    """Train on `data`, write the model at `model` and the card beside it as `.md`.

    The threshold of the card is the one given, else chosen on the held-out part by `precision` or `kept`,
    else 0.5. `identity` are phrases that name identities, for their false positives; `notes` go under the sets
    that the model has not seen. Of `unlabelled` texts, by name, those that a first model is sure of (`confidence`) are
    trained on too, under its labels; both models are judged on the same held-out texts. Raises `UserError` for data that cannot be trained on, `WorkError` where nothing
    can be written.
    """
    card_path = card_of(model)
    trained, first = train_classifier(data, training), None
    if unlabelled:
        first = predictor.load_bytes(trained.binary)
        pseudo = [
            pseudo_labelled(first, name, texts, training, confidence) for name, texts in unlabelled.items()
        ]
        trained, data = train_classifier(data, training, pseudo), [*data, *pseudo]
    xxh3 = checksum(trained.binary)
    loaded = predictor.load_bytes(trained.binary)
    whole = concatenated("all held-out texts", trained.held_out)
    if threshold is None and (precision is not None or kept is not None):
        if not len(whole):
            raise UserError(
                "no text was held out to choose a threshold by: give more texts, or a larger --held-out"
            )
        found = score_texts(loaded, training.label, whole.texts, training.pool)
        chosen = choose_threshold(found, np.asarray(whole.positive, np.bool_), precision, kept)
        threshold = rounded(chosen, found)
    threshold = 0.5 if threshold is None else threshold
    steps = sorted({*thresholds, threshold})

    def judged(part: Labelled) -> Evaluation:
        return evaluate_classifier(loaded, training.label, part, training.pool, steps)

    bias = None
    if identity is not None:
        found = score_texts(loaded, training.label, identity.texts, training.pool)
        bias = identity_report(identity, found, threshold)
    seen, new = [judged(part) for part in [whole, *trained.held_out]], [judged(part) for part in unseen]
    without = None
    if first is not None:
        without = evaluate_classifier(first, training.label, whole, training.pool, steps)
        notes = [*notes, *pseudo_section(without, seen[0], threshold)]
    card = model_card(
        title, intent, data, seen, new, training, threshold, len(trained.binary), xxh3, limits, bias,
        trained.copies, notes,
    )  # fmt: skip
    write(model, trained.binary, card)
    return Made(len(trained.binary), xxh3, threshold, str(card_path), seen[0], bias, without)


def card_of(model: Path) -> Path:
    """Where the card of a model goes: beside it, as `.md`. Raises `UserError` for a folder and for the card's own name."""
    if model.is_dir():
        raise UserError(f"{model}: is a folder; name the model's file, such as {model / 'mine.ftz'}")
    card = model.with_suffix(".md")
    if model == card:
        raise UserError(f"{model}: is where the card goes; name the model's file, such as {model.stem}.ftz")
    return card


def write(model: Path, binary: bytes, card: str) -> None:
    """Write a model and its card; raises `WorkError` where nothing can be written."""
    try:
        (Folder(model.parent) / model.name).write(binary)
        (Folder(model.parent) / card_of(model).name).write(card.encode())
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise WorkError(f"{model}: cannot be written: {error}") from None
