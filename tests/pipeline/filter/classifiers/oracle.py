"""What the kernels must equal, written plainly: fastText's own library, and windows and cleaning a text at a time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.fasttext_model import fit
from corpusmill.pipeline.filter.classifiers.model_words import Words, as_it_stands
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.text.view import text_buffers

# Addresses, mentions, entities and punctuation, as one pattern of RE2.
NOISE = r"(?:https?://\S+|[@&][\w#]*;?|'*[^\p{L}\p{N}\p{M}'@&]+'*)+"

Options = dict[str, Any]


def train(folder: Path, jobs: dict[str, tuple[Options, Options | None]], lines: str) -> dict[str, Path]:
    """Name -> model file, each trained on the same lines with fastText's own (train, quantize) options."""
    source = folder / "train.txt"
    source.write_text(lines, encoding="utf-8")
    paths = {name: folder / f"{name}.bin" for name in jobs}
    for name, (options, quantize) in jobs.items():
        fit(source, paths[name], options, quantize)
    return paths


def words_of(texts: list[str]) -> Words:
    """Each text as one piece, as it stands."""
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    return as_it_stands(data, offsets[:-1], offsets[1:])


def compare(model: Predictor, library: Any, texts: list[str], within: float = 1e-5) -> None:
    """The kernels' best label and every probability are fastText's own."""
    words = words_of(texts)
    label, probability = model.best(words, words.bounds)
    every = model.probabilities(words, words.bounds)
    for row, text in enumerate(texts):
        line = text.replace("\n", " ")
        best = fasttext_model.predict(library, line, 1)
        if not best:
            assert label[row] == -1 and probability[row] == 0 and not every[row].any()
            continue
        wanted = {name: value for value, name in fasttext_model.predict(library, line, -1)}
        found = dict(zip(model.labels, every[row].tolist(), strict=True))
        assert all(abs(value - wanted.get(name, 0.0)) <= within for name, value in found.items()), text
        # Of labels that are as good as equal, rounding may choose another.
        own = model.labels[label[row]]
        assert own == best[0][1] or abs(wanted[own] - best[0][0]) <= within
        assert abs(probability[row] - best[0][0]) <= within


def edge(text: str, place: int) -> int:
    """The next white space at or after `place`, near it."""
    if place <= 0 or place >= len(text):
        return min(max(place, 0), len(text))
    for i in range(place, min(place + 40, len(text))):
        if text[i].isspace():
            return i
    return place


def windows(text: str, chars: int, most: int) -> list[str]:
    """A text cut into windows."""
    if len(text) <= chars:
        return [text]
    count = min(most, -(-len(text) // chars))
    step = len(text) / count
    edges = [edge(text, round(i * step)) for i in range(count + 1)]
    if step <= chars:
        return [text[a:b] for a, b in pairwise(edges)]
    return [text[a : max(a, edge(text, min(a + chars, b)))] for a, b in pairwise(edges)]


def clean(texts: list[str]) -> list[str]:
    """Lower case, words parted by one space, nothing else."""
    lower = pc.utf8_lower(pa.array(texts, pa.string()))
    found: list[str] = pc.utf8_trim(pc.replace_substring_regex(lower, NOISE, " "), " '").to_pylist()
    return found


def pooled(scores: list[float], part: float) -> float:
    """The mean of the highest part of the scores, of one at least."""
    own = sorted(scores, reverse=True)
    return float(np.mean(own[: int(np.ceil(len(own) * part))])) if own else 0.0
