"""The profile of a model for languages: the scripts of its labels, and temperatures by length.

Temperatures are those under which the right answers are likeliest (Guo et al. 2017), by length of text, on texts of which
the model has seen neither the sources nor the like: pieces of the Universal Declaration, for a model trained without it.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.filter.classifiers.language import SCRIPT_SHARE, UNKNOWN
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.classifiers.scripts import SCRIPTS, letters_by_script
from corpusmill.pipeline.filter.text.view import text_buffers
from tools import language_codes
from tools.language_figures import load
from tools.language_judged import Judged, declaration

LENGTHS: Final = (10, 20, 40, 80, 160, 400)  # letters: a temperature each for texts of fewer, one for longer
TEMPERATURES: Final = np.round(np.geomspace(0.5, 4.0, 43), 2)
LEAST_SHARE: Final = 0.02  # of a label's texts: a script of fewer is not its own
UNKNOWN_BELOW: Final = 0.25


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


def temperatures(model: Predictor, scripts: dict[str, list[str]], judged: Judged) -> list[dict[str, Any]]:
    """A temperature for each length, fitted on pieces of the judged texts of about that length."""
    rng = random.Random(1)
    bits = np.array([[name in scripts.get(label, SCRIPTS) for name in SCRIPTS] for label in model.labels])
    numbers = {label: n for n, label in enumerate(model.labels)}
    rows = []
    for low, high in zip((0, *LENGTHS), (*LENGTHS, 1 << 40), strict=True):
        texts, wanted = [], []
        for text, label in zip(judged.texts, judged.labels, strict=True):
            aim = rng.randint(max(low, 3), min(high, 2 * max(low, 3) + 200) - 1)
            texts.append(_piece(rng, text, aim))
            wanted.append(numbers[label])
        data, offsets = text_buffers(pa.array(texts, pa.large_string()))
        counts = letters_by_script(data, offsets[:-1], offsets[1:], np.arange(len(offsets)))
        size = counts.sum(axis=1)
        words = cleaned(data, offsets[:-1], offsets[1:])[0]
        every = model.probabilities(words, words.bounds)
        present = (counts > 0) & (counts >= SCRIPT_SHARE * np.maximum(size, 1)[:, None])
        logs = np.where(
            present.astype(int) @ bits.T.astype(int) > 0, np.log(np.maximum(every, 1e-6)), -np.inf
        )
        use = (size >= low) & (size < high) & np.isfinite(logs[np.arange(len(logs)), wanted])
        losses = [_loss(logs[use] / t, np.array(wanted)[use]) for t in TEMPERATURES]
        rows.append(
            {
                "letters": high,
                "temperature": float(TEMPERATURES[int(np.argmin(losses))]),
                "texts": int(use.sum()),
            }
        )
    return rows


def _piece(rng: random.Random, text: str, letters: int) -> str:
    words = text.split()
    first = rng.randrange(len(words))
    out = ""
    for word in words[first:] + words[:first]:
        if out and len(out) + len(word) > letters * 1.15:
            break
        out += word + " "
    return out if len(words) > 3 else text[: int(letters * 1.15)]


def _loss(logits: np.ndarray, wanted: np.ndarray) -> float:
    high = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - high).sum(axis=1)) + high[:, 0]
    return float(np.mean(total - logits[np.arange(len(wanted)), wanted]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_profile", description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model", type=Path, help="the one that ships")
    parser.add_argument("without", type=Path, help="the same, trained without the Declaration")
    parser.add_argument("profile", type=Path)
    given = parser.parse_args()
    table = pq.read_table(given.texts, columns=["label", "text"])
    model, without = load(given.model), load(given.without)
    scripts = scripts_of(table, sorted({*model.labels, *without.labels}))
    rows = temperatures(without, scripts, declaration().among(without.labels))
    known = {
        "scripts": {label: scripts[label] for label in sorted(model.labels) if label != UNKNOWN},
        "temperatures": rows, "unknown": UNKNOWN_BELOW,
    }  # fmt: skip
    given.profile.write_text(json.dumps(known, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(rows)


if __name__ == "__main__":
    main()
