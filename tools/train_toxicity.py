"""Train the shipped toxicity model and write its card: `python -m tools.train_toxicity DATA [OUT]`, DATA the folder of the sets.

Every labelled set is judged by a model that has learnt from none of its family (`toxicity_sets.FAMILIES`); the card's figures
and the calibration of the probabilities are of these. The model that ships learns from all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.building import identity_report, identity_section, table
from corpusmill.pipeline.filter.classifiers.calibration import calibration_error, logistic
from corpusmill.pipeline.filter.classifiers.labelled import Labelled
from corpusmill.pipeline.filter.classifiers.training import auc
from corpusmill.pipeline.filter.text.view import Array
from corpusmill.pipeline.filter.toxicity.model import (
    FILE,
    NAMES,
    ToxicityModel,
    Weights,
    from_weights,
    to_bytes,
)
from corpusmill.pipeline.filter.toxicity.scores import document_scores, measured
from corpusmill.pipeline.filter.toxicity.tokens import hash_of
from corpusmill.pipeline.filter.toxicity.training import (
    LabelledTexts,
    Prepared,
    calibrated,
    fitted,
    known_tokens,
    prepared,
    rounded,
)
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED
from tools import toxicity_sets
from tools.toxicity_sets import family
from tools.toxicity_words import classes
from tools.train_prose import record

FALSE_ALARMS: Final = 0.002  # of unseen prose: what a threshold lets through
STEPS: Final = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


class Trained(NamedTuple):
    """The weights, and what was found without each set."""

    weights: Weights
    held_out: dict[str, Array]  # set -> float64[texts, LABELS] probabilities by a model without its family


Sets = Sequence[LabelledTexts]


def train(judged: Sets, harmless: Sets) -> Trained:
    """Fit each label without each family in turn, calibrate it on what that gives, and fit it on everything."""
    own, hashes, values = _prepared([*judged, *harmless])
    whole, lines = [], []
    held_out = {one.name: np.empty(one.labels.shape) for one in judged}
    for label, name in enumerate(NAMES):
        raw = _without(judged, own, label)
        slope, offset = _calibration(judged, raw, label)
        for one in judged:
            held_out[one.name][:, label] = logistic(slope * raw[one.name] + offset)
        lines.append((slope, offset))
        whole.append(fitted(own, label))
        print(f"{name}: fitted", file=sys.stderr, flush=True)
    return Trained(rounded(whole, lines, hashes, values), held_out)


def scores_without(judged: Sets, harmless: Sets, label: int) -> dict[str, Array]:
    """Set -> float64[texts]: the scores of one label by a model that has learnt from no set of its family; uncalibrated."""
    return _without(judged, _prepared([*judged, *harmless])[0], label)


def _prepared(sets: Sets) -> tuple[list[Prepared], Array, Array]:
    """(features of the sets, known tokens, their values)."""
    numbers = {hash_of(word): number for word, number in classes()[0].items()}
    hashes, values = known_tokens(sets, numbers)
    return [prepared(one, hashes, values) for one in sets], hashes, values


def _without(judged: Sets, own: Sequence[Prepared], label: int) -> dict[str, Array]:
    matrices = {part.name: part.matrix for part in own}
    found = {}
    for name in dict.fromkeys(family(one.name) for one in judged):
        weights = fitted([part for part in own if family(part.name) != name], label)
        found.update({one.name: matrices[one.name] @ weights for one in judged if family(one.name) == name})
    return found


def _calibration(judged: Sets, raw: dict[str, Array], label: int) -> tuple[float, float]:
    """Platt's line over the scores that sets got from models without them, each set with the same weight."""
    scores, truths, weights = [], [], []
    for one in judged:
        have = ~np.isnan(one.labels[:, label])
        if have.any() and len(np.unique(one.labels[have, label])) == 2:
            scores.append(raw[one.name][have])
            truths.append(one.labels[have, label] > 0.5)
            weights.append(np.full(have.sum(), 1000 / have.sum()))
    return calibrated(np.concatenate(scores), np.concatenate(truths), np.concatenate(weights))


def threshold_of(scores: Array) -> float:
    """The lowest of 0.50, 0.51, ... 0.99 above which no more than `FALSE_ALARMS` of these harmless texts score."""
    steps = [step / 100 for step in range(50, 100)]
    return next((step for step in steps if np.mean(scores > step) <= FALSE_ALARMS), steps[-1])


def card(
    trained: Trained, judged: Sets, harmless: Sets, data: Path, binary: bytes
) -> tuple[str, dict[str, float]]:
    """(the card, the threshold of each label)."""
    model = from_weights(trained.weights)
    prose = toxicity_sets.prose(data)
    scored = {name: {kind: _scores(model, texts, name) for kind, texts in prose.items()} for name in NAMES}
    thresholds = {name: threshold_of(np.concatenate(list(scored[name].values()))) for name in NAMES}
    phrases = next(one for one in judged if one.name == "identity_templates")
    bias = identity_report(
        Labelled(phrases.name, phrases.texts, (phrases.labels[:, 0] > 0.5).tolist()),
        trained.held_out[phrases.name][:, 0].astype(np.float32), thresholds["toxic"],
    )  # fmt: skip
    parts = [
        "# Toxicity",
        "How likely a text is toxic, an insult, hate, a threat, or sexually explicit: five probabilities. English.",
        f"Written by `python -m tools.train_toxicity`; do not edit. {len(binary):,} bytes, xxh3_128 `{checksum(binary)}`. Five"
        " logistic regressions over words, pairs of words, character n-grams of 2 to 5, and classes of words near each other"
        " (`pipeline/filter/toxicity/features.py`), after letter swaps are undone (`tokens.py`).",
        "Thresholds, above which at most"
        f" {FALSE_ALARMS:.1%} of {sum(map(len, prose.values())):,} harmless texts of prose score: "
        + ", ".join(f"{name} {value:g}" for name, value in thresholds.items())
        + ".",
        "**Probabilities** are calibrated on the labelled sets, each judged by a model without its family and all with the"
        " same weight. There a third to a half of the texts are toxic: where toxicity is rare, fewer texts with a"
        " probability of 0.9 are toxic than nine in ten.",
        "## Data",
        "1, 0: how many texts have the label, and how many do not; the others are not judged by that label.",
        table(["set", "texts", *NAMES], [_counts(one) for one in [*judged, *harmless]]),
        "`sexual` is a weak label: an explicit word of a list (naughty-words, CC-BY 4.0, Shutterstock) in the comments and"
        " tweets. `contrasts` and `neutral sentences` are made by this project (`tools/made_contrasts.py`). Classes of words:"
        " cuss, AFINN, VADER, emoji-emotion (MIT) and lists of our own (`tools/toxicity_words.tsv`).",
        "## Judged on each set by a model without it",
        "Without its family, to be exact: tweets are not learnt from when tweets are judged. AUC by label; at the threshold,"
        " precision and recall of `toxic`; error of its calibration.",
        table(
            ["set", "texts", "toxic", *(f"AUC {name}" for name in NAMES), "precision", "recall", "calibration error"],
            [_judged(one, trained.held_out[one.name], thresholds["toxic"]) for one in judged],
        ),
        *(_by_threshold(one, trained.held_out[one.name], thresholds["toxic"]) for one in judged if one.name in _SHOWN),
        "## Harmless prose that nothing was learnt from",
        "Share of texts above the threshold, by the model that ships:",
        table(
            ["texts", "count", *NAMES],
            [
                [kind, len(texts), *(float(np.mean(scored[name][kind] > thresholds[name])) for name in NAMES)]
                for kind, texts in prose.items()
            ],
        ),
        "## Other languages",
        "`toxicity.known_words` is the share of the words that the model knows. Rules on toxicity are judged where it is"
        f" {TRUSTED:g} or more. Of sentences in these languages (lingua's tests) that is the share:",
        table(["language", "sentences", "judged"], _judged_sentences(model, data)),
        "Tweets in other languages, which nothing was learnt from:",
        table(["set", "texts", "AUC toxic"], _foreign(model, data)),
        *identity_section(bias),
        "## Dialect",
        _dialect(judged, trained, thresholds["toxic"]),
        "## What it cannot do",
        "\n".join(f"- {line}" for line in _LIMITS),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n", thresholds


_SHOWN: Final = ("forum_insults", "wikipedia_talk", "convabuse", "identity_templates")
_LIMITS: Final = (
    "It knows words, pairs of words and classes of words near each other; it does not understand. Hate in polite words, irony,"
    " and what only the context makes toxic are found badly: see `hatemoji_build`, whose texts were written to mislead models.",
    "`mlma_tweets` and `edos_sexism` have labels that other readers would set otherwise: an AUC of 0.6 to 0.7 says as much of"
    " them as of the model.",
    "Swearing that hurts nobody scores higher than the same text without it.",
    "`threat` and `sexual` rest on few or weak labels.",
)
# Words of African American English that are frequent in the tweets (Blodgett et al. 2016 describe the dialect).
_AAE: Final = frozenset(
    [
        "finna",
        "tryna",
        "ain't",
        "aint",
        "gon",
        "ima",
        "imma",
        "y'all",
        "yall",
        "yo",
        "dat",
        "dis",
        "dey",
        "wit",
        "bruh",
        "homie",
        "lil",
        "gotta",
        "wanna",
    ]
)


def _counts(one: LabelledTexts) -> list[object]:
    cells = [
        "–" if np.isnan(column).all() else f"{int((column == 1).sum()):,} / {int((column == 0).sum()):,}"
        for column in one.labels.T
    ]
    return [one.name, len(one.texts), *cells]


def _judged(one: LabelledTexts, found: Array, threshold: float) -> list[object]:
    areas: list[object] = []
    for label in range(len(NAMES)):
        have = ~np.isnan(one.labels[:, label])
        areas.append(auc(found[have, label], one.labels[have, label] > 0.5))
    truth, above = one.labels[:, 0] > 0.5, found[:, 0] > threshold
    right = int((truth & above).sum())
    return [
        one.name, len(one.texts), int(truth.sum()), *areas, right / max(int(above.sum()), 1), right / max(int(truth.sum()), 1),
        calibration_error(found[:, 0], truth),
    ]  # fmt: skip


def _by_threshold(one: LabelledTexts, found: Array, threshold: float) -> str:
    truth = one.labels[:, 0] > 0.5
    rows = []
    for step in sorted({*STEPS, threshold}):
        above = found[:, 0] > step
        right = int((above & truth).sum())
        rows.append([
            step, right / max(int(above.sum()), 1), right / int(truth.sum()),
            int((above & ~truth).sum()) / int((~truth).sum()), float(above.mean()),
        ])  # fmt: skip
    head = ["threshold", "precision", "recall", "false positive rate", "share above"]
    return f"By threshold, {one.name}:\n\n" + table(head, rows)


def _scores(model: ToxicityModel, texts: Sequence[str], name: str) -> Array:
    return document_scores(pa.array(texts, pa.large_string()), model, name, "worst")


def _foreign(model: ToxicityModel, data: Path) -> list[list[object]]:
    return [
        [one.name, len(one.texts), auc(_scores(model, one.texts, "toxic"), one.labels[:, 0] > 0.5)]
        for one in toxicity_sets.other_languages(data)
    ]


def _judged_sentences(model: ToxicityModel, data: Path) -> list[list[object]]:
    rows = []
    for code, texts in toxicity_sets.sentences_by_language(data).items():
        known = measured(pa.array(texts, pa.large_string()), model)[KNOWN_WORDS]
        rows.append([code, len(texts), float(np.mean(known >= TRUSTED))])
    return rows


def _dialect(judged: Sets, trained: Trained, threshold: float) -> str:
    (one,) = (part for part in judged if part.name == "davidson_tweets")
    spoken = np.array([bool(_AAE & set(text.lower().split())) for text in one.texts])
    harmless = one.labels[:, 0] == 0
    above = trained.held_out[one.name][:, 0] > threshold
    with_it, without = (float(above[harmless & part].mean()) for part in (spoken, ~spoken))
    return (
        f"Of the tweets that annotators found harmless, {int((harmless & spoken).sum()):,} hold a frequent word of African"
        f" American English: {with_it:.1%} of them score above {threshold:g}, of the others {without:.1%} (by the model"
        " without tweets). The annotators' own labels are known to be biased against the dialect (Davidson et al. 2019)."
    )


def main(arguments: Sequence[str]) -> None:
    """Train, write the model, its card and its entry in `models.json`."""
    data = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else fasttext_model.MODELS
    judged, harmless = toxicity_sets.judged(data), toxicity_sets.harmless(data)
    trained = train(judged, harmless)
    binary = to_bytes(trained.weights)
    text, thresholds = card(trained, judged, harmless, data, binary)
    (out / FILE).write_bytes(binary)
    (out / Path(FILE).with_suffix(".md")).write_text(text, encoding="utf-8")
    entry = {"label": NAMES[0], "thresholds": thresholds, "languages": ["en"], "licence": "see toxicity.md"}
    record(out, FILE, entry)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
