"""The profile of a model for languages: the scripts of its labels, and temperatures by length.

Temperatures are those under which the right answers are likeliest (Guo et al. 2017), by length of text, on half of lingua's
test texts, which nothing else was fitted to and which no figure is of.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.filter.classifiers.language import UNKNOWN, prior
from corpusmill.pipeline.filter.classifiers.language_kernel import SCRIPT_SHARE
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.classifiers.scripts import SCRIPTS, letters_by_script
from corpusmill.pipeline.filter.text.view import text_buffers
from tools import language_codes
from tools.language_figures import load
from tools.language_judged import Judged, lingua

LENGTHS: Final = (10, 20, 40, 80, 160, 400)  # letters: a temperature each for texts of fewer, one for longer
TEMPERATURES: Final = np.round(np.geomspace(0.5, 4.0, 43), 2)
LEAST_SHARE: Final = 0.02  # of a label's texts: a script of fewer is not its own
UNKNOWN_BELOW: Final = 0.1

# Languages of more than 0.1 % of the pages of Common Crawl by its published statistics, and of more than 0.001 %: each group is
# some fifty times rarer than the one before. Priors are this ratio's logarithm times a weight, which is fitted.
_COMMON_TEXT: Final = "en ru de ja zh es fr it pt nl pl vi tr id cs ko ar sv fa ro el uk hu da th fi no sk bg he ca sl hr lt et hi sr lv bn"
COMMON: Final = tuple(_COMMON_TEXT.split())
_SEEN_TEXT: Final = """
ta az ms ka sq mk ml kk te mr ur bs ne gl is eu hy be af mn si gu kn my uz km tl cy lo pa sw tg ky so am tt la eo yi ga ps nn
lb fo br fy oc jv gd ku ckb mt rw ug mg ht or as zu xh yo ha ig sn su ceb ba sd dv tk
"""
SEEN: Final = tuple(_SEEN_TEXT.split())
RARER: Final = 4.0
COST: Final = 0.0005  # of the answers: the half that it is fitted to has as many texts of rare languages as of common ones, unlike the web
WEIGHTS: Final = tuple(np.round(np.arange(0, 0.65, 0.05), 2).tolist())


def scripts_of(table: pa.Table, labels: list[str]) -> dict[str, list[str]]:
    """Label -> the scripts that its texts are in, commonest first."""
    found: dict[str, np.ndarray] = {}
    for batch in table.to_batches(max_chunksize=1 << 16):
        data, offsets = text_buffers(batch["text"].cast(pa.large_string()))
        counts = letters_by_script(data, offsets[:-1], offsets[1:], np.arange(len(offsets)))
        has = counts >= SCRIPT_SHARE * np.maximum(counts.sum(axis=1, keepdims=True), 1)
        own = np.array(batch["label"].to_pylist())
        for label in np.unique(own):
            found[label] = found.get(label, np.zeros(len(SCRIPTS), np.int64)) + has[own == label].sum(axis=0)
    out = {}
    for label in labels:
        if label == UNKNOWN:
            continue
        listed = language_codes.SCRIPTS.get(label)
        order = np.argsort(-found[label], kind="stable")
        least = max(LEAST_SHARE * found[label].sum(), 1)
        seen = [SCRIPTS[n] for n in order.tolist() if n and found[label][n] >= least]
        out[label] = sorted({*seen, *(listed or ())}) if listed else seen
    return out


class Evidence(NamedTuple):
    """What a model says of labelled texts."""

    logs: (
        np.ndarray
    )  # float64[texts, labels]: logarithms of probabilities, -inf where a text's scripts do not allow a label
    wanted: np.ndarray  # int64[texts]: the number of the right label
    letters: np.ndarray  # int64[texts]


def evidence(model: Predictor, scripts: dict[str, list[str]], judged: Sequence[Judged]) -> Evidence:
    """The same, of texts whose labels the model has."""
    bits = np.array([[name in scripts.get(label, SCRIPTS) for name in SCRIPTS] for label in model.labels])
    numbers = {label: n for n, label in enumerate(model.labels)}
    texts = [text for one in judged for text in one.texts]
    wanted = np.array([numbers[label] for one in judged for label in one.labels])
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    counts = letters_by_script(data, offsets[:-1], offsets[1:], np.arange(len(offsets)))
    size = counts.sum(axis=1)
    words = cleaned(data, offsets[:-1], offsets[1:])[0]
    every = model.probabilities(words, words.bounds)
    present = (counts > 0) & (counts >= SCRIPT_SHARE * np.maximum(size, 1)[:, None])
    allowed = present.astype(int) @ bits.T.astype(int) > 0
    return Evidence(np.where(allowed, np.log(np.maximum(every, 1e-6)), -np.inf), wanted, size)


def priors(weight: float) -> dict[str, Any]:
    """The profile's entry: `weight` times the logarithm of how much rarer a group of languages is than the common ones."""
    return {
        "common": {"weight": 0.0, "labels": " ".join(COMMON)},
        "seen": {"weight": -round(weight * RARER, 3), "labels": " ".join(SEEN)},
        "others": {"weight": -round(2 * weight * RARER, 3)},
    }


def fitted_weight(found: Evidence, labels: list[str]) -> tuple[float, list[tuple[float, float]]]:
    """The largest of `WEIGHTS` with which at most `COST` fewer answers are right than with the best; (weight, share right) of all."""
    rows = []
    for weight in WEIGHTS:
        own = priors(weight)
        logits = found.logs + np.array([prior(own, label) for label in labels])
        rows.append((weight, float(np.mean(logits.argmax(axis=1) == found.wanted))))
    most = max(share for _, share in rows)
    return max(weight for weight, share in rows if share >= most - COST), rows


def temperatures(found: Evidence, logits: np.ndarray) -> list[dict[str, Any]]:
    """A temperature for each length, under which the right answers to the judged texts of that length are likeliest."""
    rows = []
    for low, high in zip((0, *LENGTHS), (*LENGTHS, 1 << 40), strict=True):
        use = (found.letters >= low) & (found.letters < high)
        use &= np.isfinite(logits[np.arange(len(logits)), found.wanted])
        losses = [_loss(logits[use] / t, found.wanted[use]) for t in TEMPERATURES]
        best = float(TEMPERATURES[int(np.argmin(losses))])
        rows.append({"letters": high, "temperature": best, "texts": int(use.sum())})
    return rows


def joined(judged: Judged, count: int) -> Judged:
    """Documents of `count` texts in a row of one language."""
    by_label: dict[str, list[str]] = defaultdict(list)
    for text, label in zip(judged.texts, judged.labels, strict=True):
        by_label[label].append(text)
    rows = [
        (" ".join(own[at : at + count]), label)
        for label, own in by_label.items()
        for at in range(0, len(own) - count + 1, count)
    ]
    return Judged(
        f"{judged.name}, {count} together", [text for text, _ in rows], [label for _, label in rows]
    )


def _loss(logits: np.ndarray, wanted: np.ndarray) -> float:
    high = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - high).sum(axis=1)) + high[:, 0]
    return float(np.mean(total - logits[np.arange(len(wanted)), wanted]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_profile", description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("profile", type=Path)
    given = parser.parse_args()
    known, rows = fitted(pq.read_table(given.texts, columns=["label", "text"]), given.model)
    given.profile.write_text(json.dumps(known, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(known["temperatures"], rows)


def fitted(table: pa.Table, path: Path) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """(the profile of a model trained on the texts of a table, shares of right answers by the priors' weight)."""
    model = load(path)
    labels = [label for label in sorted(model.labels) if label != UNKNOWN]
    scripts = scripts_of(table, labels)
    sets = [lingua(kind, fitted=True).among(labels) for kind in ("single-words", "word-pairs", "sentences")]
    weight, rows = fitted_weight(evidence(model, scripts, sets), model.labels)
    found = evidence(model, scripts, [*sets, joined(sets[-1], 5)])
    own = priors(weight)
    logits = found.logs + np.array([prior(own, label) for label in model.labels])
    known = {
        "scripts": scripts, "temperatures": temperatures(found, logits), "priors": own, "unknown": UNKNOWN_BELOW,
    }  # fmt: skip
    return known, rows


if __name__ == "__main__":
    main()
