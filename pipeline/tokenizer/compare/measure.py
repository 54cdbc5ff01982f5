"""Tokenizers trained on a sample and measured on its held-out documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.bpe.texts import View, views
from corpusmill.pipeline.text.word_hashes import most_words, place_words
from corpusmill.pipeline.text.word_rule import rule
from corpusmill.pipeline.tokenizer.compare.draw import Sample
from corpusmill.pipeline.tokenizer.compare.kinds import I64, MAKE, Ids, Trained
from corpusmill.schemas.tokenizer import Compared, Fit, Kind, SmallModel, TokenizerComparison

Models = Callable[[Sample, dict[Kind, bytes]], dict[Kind, SmallModel]]
RUNS = 3  # of encoding, of which the median counts
# Rows of the figures of each document.
DOCS, BYTES, WORDS, TOKENS, WHOLE, UNKNOWN, LOST = range(7)


class Places(NamedTuple):
    """Some documents, and their words by the word rule: where each begins and ends in the view's bytes, and how many each has."""

    view: View
    starts: I64
    ends: I64
    counts: I64


def places_of(texts: pa.ChunkedArray) -> list[Places]:
    """The words of all texts, a view at a time."""
    return [_places(view.alone()) for view in views(texts)]


def _places(view: View) -> Places:
    table, starts, ends = rule(), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    counts = np.zeros(len(view.texts), np.int64)
    for row, (begin, stop) in enumerate(
        zip(view.bounds[:-1].tolist(), view.bounds[1:].tolist(), strict=True)
    ):
        most = most_words(stop - begin)
        hashes, first, last = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.int64)
        counts[row] = number = place_words(
            view.data, begin, stop, table, hashes, first, last, np.empty(most, np.int32)
        )
        starts.append(first[:number])
        ends.append(last[:number])
    return Places(view, np.concatenate(starts), np.concatenate(ends), counts)


def compare(
    sample: Sample,
    kinds: Sequence[Kind],
    size: int,
    seed: int,
    work: Callable[[str], AbstractContextManager[object]] = nullcontext,
    models: Models | None = None,
) -> TokenizerComparison:
    """Train each kind, with a vocabulary of `size` tokens at most, and measure it. `work(label)`: around each. `models`: trains a
    model with each tokenizer that has a `tokenizer.json`."""
    held = sample.held_out
    with work("words of the held-out documents"):
        places = places_of(held["text"])
    found, files = [], {}
    for kind in kinds:
        with work(kind):
            begun = time.perf_counter()
            tokenizer = MAKE[kind](sample.train, size)
            seconds = time.perf_counter() - begun
            found.append(measured(kind, tokenizer, seconds, held, places))
            if models is not None and (data := tokenizer.file()) is not None:
                files[kind] = data
    if models is not None:
        trained = models(sample, files)
        found = [one.model_copy(update={"model": trained.get(one.kind)}) for one in found]
    return TokenizerComparison(vocab_size=size, seed=seed, sources=sample.sources, kinds=found)


def measured(
    kind: Kind, tokenizer: Trained, seconds: float, held: pa.Table, places: Sequence[Places]
) -> Compared:
    """The figures of one tokenizer; `seconds`: that it took to train. `places`: the words of the held-out texts."""
    rows, used, reversible = (
        [np.zeros((LOST + 1, 0), np.int64)],
        np.zeros(tokenizer.vocab_size, np.bool_),
        True,
    )
    for one in places:
        ids = tokenizer.encode(one.view)
        used[ids] = True
        reversible &= tokenizer.reversible(one.view, ids)
        rows.append(_figures(tokenizer, one, ids))
    figures = np.concatenate(rows, axis=1)
    return Compared(
        kind=kind, vocab_size=tokenizer.vocab_size, used=int(used.sum()), reversible=reversible,
        train_seconds=round(seconds, 3), encode_mb_per_second=round(_speed(tokenizer, places), 3),
        whole=_fit(figures), sources=_by(held["source"], figures), languages=_by(held["language"], figures),
    )  # fmt: skip


def _figures(tokenizer: Trained, places: Places, ids: Ids) -> I64:
    """int64[figures, documents]."""
    bounds = places.view.bounds
    lengths = tokenizer.lengths(places.view, ids)
    begins = np.cumsum(lengths) - lengths
    edges = begins.searchsorted(bounds)
    first = begins.searchsorted(places.starts, side="right") - 1
    last = begins.searchsorted(places.ends) - 1
    lost = np.zeros(len(ids), np.bool_) if tokenizer.unknown is None else ids == tokenizer.unknown
    words = np.concatenate([[0], np.cumsum(places.counts)])
    figures = np.empty((LOST + 1, len(places.counts)), np.int64)
    figures[DOCS], figures[BYTES], figures[WORDS] = 1, np.diff(bounds), places.counts
    figures[TOKENS] = np.diff(edges)
    figures[WHOLE] = _sums((first == last) & ~lost[first], words)
    figures[UNKNOWN] = _sums(lost, edges)
    figures[LOST] = _sums(np.where(lost, lengths, 0), edges)
    return figures


def _sums(values: npt.NDArray[np.generic], edges: I64) -> I64:
    """Sums of the values from each edge to the next."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return np.diff(total[edges])


def _by(names: pa.ChunkedArray, figures: I64) -> dict[str, Fit]:
    """The figures by a column, nulls left out."""
    found = {}
    for name in sorted(pc.unique(names.drop_null()).to_pylist()):
        mine = pc.fill_null(pc.equal(names, name), False).to_numpy()
        found[name] = _fit(figures[:, mine])
    return found


def _fit(figures: I64) -> Fit:
    docs, size, words, tokens, whole, unknown, lost = figures.sum(axis=1).tolist()
    return Fit(
        docs=docs, bytes=size, words=words, tokens=tokens, bytes_per_token=round(size / max(tokens, 1), 4),
        fertility=round(tokens / max(words, 1), 4), whole_words=round(whole / max(words, 1), 4),
        unknown_tokens=unknown, unknown_bytes=lost,
    )  # fmt: skip


def _speed(tokenizer: Trained, places: Sequence[Places]) -> float:
    """MB of text a second: the median of `RUNS` times, each as if the tokenizer had just been loaded."""
    times = []
    for _ in range(RUNS):
        tokenizer.forget()
        begun = time.perf_counter()
        for one in places:
            tokenizer.encode(one.view)
        times.append(time.perf_counter() - begun)
    size = sum(int(one.view.bounds[-1]) for one in places)
    return size / max(median(times), 1e-9) / 1e6
