"""`stats.json`: how well a tokenizer fits, what its vocabulary holds, and where its merges come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.tokenizer import merge_origins, vocabulary
from corpusmill.pipeline.tokenizer.held_out import SUMS, Key, measure_held_out
from corpusmill.pipeline.tokenizer.sample import Drawn


def measure(
    context: Context, bpe: Bpe, eos_token: str, splits: dict[str, Any], drawn: Drawn
) -> dict[str, Any]:
    """By source and by language bytes per token, characters per token and fertility (tokens per white-space word: Rust et al.
    2021) on held-out documents (`held_out.py`), each decoded again; the same for the tokenizers of `compare`; what the vocabulary
    holds (`vocabulary.py`), and from what lines its merges come (`merge_origins.py`). Unused are tokens that occur neither in the
    held-out documents nor in those of the sample that were looked at.

    Raises `WorkError` if a document came back changed.
    """
    found = measure_held_out(context, bpe, eos_token, splits)
    came = merge_origins.measure_origin(context, bpe, eos_token, drawn)
    words = vocabulary.vocabulary(bpe)
    there = words.there
    compare = list(context.recipe.tokenizer.compare)
    sources = {
        source: {"split": found.splits[source], **row}
        for source, row in _rows(found.sums, 0, compare).items()
    }
    languages = _rows({key: sums for key, sums in found.sums.items() if key[1]}, 1, compare)
    return {
        "vocab_size": bpe.vocab_size,
        "eos_token": eos_token,
        "eos_id": bpe.eos_id,
        "sources": sources,
        "languages": languages,
        "round_trip": {"docs": sum(row["docs"] for row in sources.values()), "changed": 0},
        **vocabulary.describe(words, (found.counts > 0) | (came.counts[0] > 0)),
        "unused": {
            "held_out": int((there & (found.counts == 0)).sum()),
            "trained_on": int((there & (came.counts[0] == 0)).sum()),
        },
        "origins": merge_origins.describe(came, words.merged, words.texts),
    }


def _rows(
    sums: dict[Key, npt.NDArray[np.int64]], by: int, compare: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Figures by source (`by` 0) or by language (1)."""
    rows = {}
    for name in sorted({key[by] for key in sums}):
        total = np.sum([row for key, row in sums.items() if key[by] == name], axis=0)
        numbers: dict[str, Any] = {what: int(n) for what, n in zip(SUMS, total, strict=False)}
        counts = max(numbers["tokens"], 1)
        numbers["bytes_per_token"] = round(numbers["bytes"] / counts, 4)
        numbers["chars_per_token"] = round(numbers["chars"] / counts, 4)
        numbers["fertility"] = round(numbers["tokens"] / max(numbers["words"], 1), 4)
        if compare:
            others = zip(compare, total[len(SUMS) :].tolist(), strict=True)
            numbers["compare"] = {
                path: {"tokens": n, "bytes_per_token": round(numbers["bytes"] / max(n, 1), 4)}
                for path, n in others
            }
        rows[name] = numbers
    return rows
