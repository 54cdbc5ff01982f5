"""Reproduce the shipped models of quality: `python -m tools.train_quality DATA PACKAGES [OUT]`.

DATA holds the sets that the cards name, PACKAGES the packages of `python -m tools.quality_packages PACKAGES`, OUT (default: the
folder of the shipped models in the checkout) gets the models, their cards and their entries in `models.json`: the fastText
classifier of edited prose (`tools.train_prose`), then the model over signals that reads its score.

A family of sets is judged by a model that has learnt from no set of it (`without`): those are the figures of the card.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.building import table, write
from corpusmill.pipeline.filter.classifiers.calibration import calibration_error
from corpusmill.pipeline.filter.classifiers.labelled import Labelled
from corpusmill.pipeline.filter.classifiers.training import auc
from corpusmill.pipeline.filter.quality_signals import building
from corpusmill.pipeline.filter.quality_signals.fitting import RIDGE, calibrated, fit
from corpusmill.pipeline.filter.quality_signals.inputs import INPUTS, QUALITY
from corpusmill.pipeline.filter.quality_signals.measure import columns_of, score_of, versions
from corpusmill.pipeline.filter.quality_signals.model import FILE, Curve, SignalModel, to_bytes
from corpusmill.pipeline.filter.quality_signals.training import with_fasttext
from tools import labelled_sources, train_prose
from tools.labelled_sources import json_lines, without_tags
from tools.quality_sets import Part, parts
from tools.train_prose import record

Floats = npt.NDArray[np.float64]
LABEL: Final = "prose"
THRESHOLD: Final = 0.5
EXAMPLES: Final = (
    "The river rises in the hills to the north of the town and flows through a wide valley. In spring it floods the meadows that"
    " lie on both of its banks. Farmers have kept cattle there for hundreds of years, and they know the signs of high water well.",
    "Home\nAbout us\nContact\nLog in\nSign up\nCart (0)\nRead more...\nPrivacy policy\nTerms of use\n© 2024 All rights reserved",
    "Best cheap watches buy watches online cheap replica watches best price watches free shipping buy cheap watches best deal",
)


class Measured(NamedTuple):
    """Sets with the signals of their texts, float64[texts] each; in `columns` `quality.score` is NaN where fastText has learnt from
    the set, in `prose` it is what it is."""

    sets: list[Part]
    columns: list[dict[str, Floats]]
    prose: list[Floats]


def measured(sets: Sequence[Part]) -> Measured:
    """The signals of all texts of the sets."""
    found = [columns_of(part.data.texts) for part in sets]
    prose = [columns[QUALITY] for columns in found]
    for part, columns in zip(sets, found, strict=True):
        if part.known:
            columns[QUALITY] = np.full(len(part.data), np.nan)
    return Measured(list(sets), found, prose)


def stacked(data: Measured, places: Sequence[int]) -> tuple[dict[str, Floats], npt.NDArray[np.bool_], Floats]:
    """(columns, truth, weights) of some sets. Each class weighs a half; inside it a set weighs as the root of its size, so that
    large ones do not decide alone."""
    columns = {one.signal: np.concatenate([data.columns[i][one.signal] for i in places]) for one in INPUTS}
    truth = np.concatenate([np.asarray(data.sets[i].data.positive, np.bool_) for i in places])
    own = np.concatenate([np.full(len(data.sets[i].data), i) for i in places])
    weights = np.zeros(len(truth))
    for label in (True, False):
        for i in places:
            some = (own == i) & (truth == label)
            if some.any():
                weights[some] = some.sum() ** -0.5
        weights[truth == label] *= 0.5 / weights[truth == label].sum()
    return columns, truth, weights


def learnt(data: Measured, places: Sequence[int]) -> SignalModel:
    """The model of some sets, not yet calibrated."""
    columns, truth, weights = stacked(data, places)
    return with_fasttext(fit(columns, truth, INPUTS, versions(), LABEL, weights=weights))._replace(
        languages=("en",)
    )


def families(data: Measured) -> list[str]:
    """The families, in the order of their sets."""
    return list(dict.fromkeys(part.family for part in data.sets))


def without(data: Measured, family: str) -> tuple[SignalModel, list[int]]:
    """(the model of all other families, the places of this one's sets)."""
    own = [i for i, part in enumerate(data.sets) if part.family == family]
    return learnt(data, [i for i in range(len(data.sets)) if i not in own]), own


def left_out(data: Measured) -> list[Floats]:
    """Of each set, float64[texts]: the log-odds by a model that has learnt from no set of its family."""
    odds: list[Floats] = [np.zeros(0)] * len(data.sets)
    for family in families(data):
        model, own = without(data, family)
        for i in own:
            odds[i] = model.log_odds(model.contributions(data.columns[i]))
    return odds


def _scaled(odds: Sequence[Floats], data: Measured, places: Sequence[int]) -> SignalModel:
    """An empty model whose `bias` and single curve are the shift and scale (Platt) by the sets of these places."""
    _, truth, weights = stacked(data, places)
    unit = SignalModel(LABEL, 0.0, (Curve("log_odds", "1", "up", (-60.0, 60.0), (-60.0, 60.0)),))
    return calibrated(unit, np.concatenate([odds[i] for i in places]), truth, weights)


def figures(data: Measured, odds: Sequence[Floats]) -> list[str]:
    """The card's part on sets that a model has not learnt from, and on calibration, which leaves the family out as well."""
    rows: list[list[Any]] = []
    every: list[tuple[Floats, npt.NDArray[np.bool_]]] = []
    for family in families(data):
        own = [i for i, part in enumerate(data.sets) if part.family == family]
        scale = _scaled(odds, data, [i for i in range(len(data.sets)) if i not in own])
        found = [scale.probability({"log_odds": odds[i]}).astype(np.float64) for i in own]
        truth = [np.asarray(data.sets[i].data.positive, np.bool_) for i in own]
        every += zip(found, truth, strict=True)
        both = auc(np.concatenate(found), np.concatenate(truth))
        rows.append(
            [f"**{family}**", sum(map(len, truth)), int(sum(t.sum() for t in truth)), both, None, None]
        )
        for i, one, label in zip(own, found, truth, strict=True):
            above = one > THRESHOLD
            rows.append(
                [data.sets[i].data.name, len(label), int(label.sum()), auc(one, label),
                 float(above[label].mean()) if label.any() else None, float(above[~label].mean()) if (~label).any() else None]
            )  # fmt: skip
    _, truth_all, weights = stacked(data, range(len(data.sets)))
    error = calibration_error(np.concatenate([one for one, _ in every]), truth_all, weights)
    return [
        "## On families that it has not learnt from",
        "Each family of sets by a model trained on the others; the shipped one has learnt from all. Families in bold; above the"
        f" threshold of {THRESHOLD}: of the positive texts should be much, of the others little.",
        table(["set", "texts", "`prose`", "AUC", "positive above", "others above"], rows),
        f"Expected calibration error, each family scaled by the others too, every class and set weighted as in training: {error:.3f}."
        " A score is a probability where good and bad texts are as many as here, one to one, which a corpus need not have.",
    ]


def weak_labels(data: Path, model: SignalModel) -> list[str]:
    """Sets whose labels are not of quality, for what they say all the same: votes, private messages."""
    scores = {
        (row["site"], row["id"]): row["score"]
        for row in json_lines(data / "quality/stackexchange_scores/scores.jsonl")
    }
    texts, votes = [], []
    for path in sorted((data / "natural/qa_stackexchange").glob("*.jsonl.gz")):
        site = path.name.split(".")[0]
        for row in json_lines(path):
            if (site, row["Id"]) in scores:
                texts.append(
                    "\n".join(
                        " ".join(part.split())
                        for part in without_tags(row["Body"]).split("\n")
                        if part.strip()
                    )
                )
                votes.append(scores[site, row["Id"]])
    marked = np.array([vote >= 5 or vote <= 0 for vote in votes])
    found = score_of(model, texts)[marked]
    good = np.array(votes)[marked] >= 5
    sms = labelled_sources.short_messages(data)
    short = score_of(model, sms.texts)
    spam = np.asarray(sms.positive, np.bool_)
    return [
        "## Sets whose labels say something else",
        f"Votes: posts of Stack Exchange with 5 votes and more against those with none, AUC {auc(found, good):.3f} over {len(good):,}"
        " (answers are among the training sets): it does not know what is right or useful."
        f" Text messages: {float((short[~spam] > THRESHOLD).mean()):.0%} of the private ones and {float((short[spam] > THRESHOLD).mean()):.0%}"
        " of the spam, which it has learnt from, are above the threshold.",
    ]


def main(arguments: Sequence[str]) -> None:
    """Train both models."""
    data, packages = Path(arguments[0]), Path(arguments[1])
    out = Path(arguments[2]) if len(arguments) > 2 else fasttext_model.MODELS
    train_prose.main([str(data), str(out)])
    over_signals(data, packages, out)


def over_signals(data: Path, packages: Path, out: Path) -> None:
    """`quality_signals.json` and its card, on top of the fastText model that ships."""
    sets = measured(parts(data, packages))
    every = range(len(sets.sets))
    odds = left_out(sets)
    _, truth, weights = stacked(sets, every)
    model = calibrated(learnt(sets, every), np.concatenate(odds), truth, weights)
    binary = to_bytes(model)
    card = "\n\n".join(
        [
            "# Quality, by signals",
            "How much a text is like what people wrote to be read, and not like what stands around it: menus, lists, notices, listings.",
            building.written(len(binary), checksum(binary), LABEL, THRESHOLD),
            *building.how(model, RIDGE, free=False),
            "**Calibration.** Scaled and shifted (Platt 1999) by the scores of each family by a model of the others.",
            "## Data it was trained on",
            building.sets_table([_in_family(part) for part in sets.sets], LABEL),
            "Texts of 100 to 50,000 characters: whole ones, then runs of their lines. Where fastText has learnt from a set its score"
            " is left out, since it is too sure there. `tools/quality_sets.py` makes the sets; packages are public ones"
            " (`tools/quality_packages.py`). The ridge was chosen on the families other than `web`.",
            *figures(sets, odds),
            *weak_labels(data, model),
            *building.shapes(model),
            *building.worked(model, EXAMPLES),
            "## What it cannot do",
            "\n".join(
                f"- {line}"
                for line in (
                    "English only, as its fastText input and its counts of English words. Text that `filter` found to be in another"
                    " language is not scored.",
                    "Edited is neither true nor useful. It judges form: verse, code, tables and dialogue in short lines score low.",
                    "Kinds of bad text that it has not seen can look like prose: without change logs, licences and spam among its"
                    " training sets it takes much of them for prose (above).",
                    "Pages of news sites and crawls were split by an extractor and not by people; some of their rest is prose.",
                    "The recipe measures it and removes nothing by it unless asked to.",
                )
            ),
        ]
    )  # fmt: skip
    write(out / FILE, binary, card + "\n")
    record(out, FILE, {"label": LABEL, "languages": ["en"], "licence": "see quality_signals.md"})
    print(f"{FILE}: {len(binary):,} bytes")


def _in_family(part: Part) -> Labelled:
    data = part.data
    note = f"family {part.family}" + (f"; {data.note}" if data.note else "")
    return Labelled(
        data.name,
        data.texts,
        data.positive,
        data.licence,
        note + ("; known to fastText" if part.known else ""),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
