"""The first answer, in seconds: how well trigrams counted in an arm's text predict the held-out text. Counts have no initialisation, no
order and no learning rate; they want distinct text more than a network does, and see nothing that is far apart.

Each measurement counts a half of the documents, chosen by a hash of their ids and a number, so that arms share every document that both
have. Halves differ among themselves as much as another sample of all documents would (half-samples, McCarthy 1969; delete-d jackknife,
Shao and Wu 1989): their deviation is the standard error of the whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from corpusmill.ablate.pool import blocks_of
from corpusmill.train.evaluate.ngrams import Events, NGrams, events

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from corpusmill.train.data.shards import Shards, Source

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

MOST = 20_000_000  # tokens that a model counts: 0.8 GB while it is made


class Texts(NamedTuple):
    """Documents of a train split: `ids` of them, and of each of their tokens the document, int64 [n], beside its `events`."""

    ids: list[str]
    of: Ints
    events: Events
    vocab_size: int

    @property
    def sizes(self) -> Ints:
        """Tokens of each document."""
        return np.bincount(self.of, minlength=len(self.ids))


class HeldOut(NamedTuple):
    """Documents that are scored: the same columns, and the `bytes` and the source of each document."""

    texts: Texts
    bytes: Floats
    sources: list[str]


def texts_of(sources: Mapping[str, Source], vocab_size: int) -> Texts:
    """The tokens of splits."""
    places: dict[str, int] = {}
    of, columns = [], []
    for source in sources.values():
        for names, block in blocks_of(source):
            mine = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
            of.append(np.repeat(mine, np.diff(block.starts, append=len(block.tokens))))
            columns.append(events(block, source.index.eos_id))
    if not of:
        nothing = np.zeros(0, dtype=np.int64)
        return Texts([], nothing, Events(nothing, nothing, nothing), vocab_size)
    joined = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Texts(list(places), np.concatenate(of), Events(*joined), vocab_size)


def held_out_of(held: Mapping[str, Source], vocab_size: int) -> HeldOut:
    """The held-out documents with their bytes, as their tokens share those of the split."""
    parts = {name: texts_of({name: source}, vocab_size) for name, source in held.items()}
    sizes, names, ids, of = [], list[str](), list[str](), []
    for name, texts in parts.items():
        share = held[name].index.text_bytes / max(1, int(texts.sizes.sum()))
        sizes.append(texts.sizes * share)
        names += [name] * len(texts.ids)
        of.append(texts.of + len(ids))
        ids += texts.ids
    joined = (np.concatenate(column) for column in zip(*(p.events for p in parts.values()), strict=True))
    return HeldOut(Texts(ids, np.concatenate(of), Events(*joined), vocab_size), np.concatenate(sizes), names)


def half(texts: Texts, number: int, tokens: int) -> npt.NDArray[np.bool_]:
    """Which tokens are counted in measurement `number`: those of documents in the order of a hash of id and number, up to `tokens`."""
    keys = np.array(
        [xxhash.xxh3_64_intdigest(f"{number}:{name}".encode()) for name in texts.ids], dtype=np.uint64
    )
    order = np.argsort(keys, kind="stable")
    taken = np.zeros(len(order), dtype=bool)
    taken[order[texts.sizes[order].cumsum() <= tokens]] = True
    return taken[texts.of]


def bits(texts: Texts, held: HeldOut, number: int, tokens: int) -> Floats:
    """Bits of each held-out document under the trigrams of so many tokens, float64 [documents]."""
    chosen = half(texts, number, tokens)
    counted = Events(*(column[chosen] for column in texts.events))
    model = NGrams([counted], max(1, len(counted.token)), texts.vocab_size)
    _, trigram = model.probabilities(held.texts.events)
    found: Floats = np.bincount(held.texts.of, -np.log(trigram), minlength=len(held.bytes)) / math.log(2)
    return found


class Measured(NamedTuple):
    """`bits` of each arm, float64 [measurements, documents]; `bytes` and `sources` of the documents; `totals`: tokens of each arm, of which every
    measurement counts `tokens`."""

    bits: dict[str, Floats]
    bytes: Floats
    sources: list[str]
    totals: dict[str, int]
    tokens: int

    def rate(self, arm: str, chosen: npt.NDArray[np.bool_]) -> float:
        """Bits per byte of some documents, mean over the measurements."""
        return float(self.bits[arm][:, chosen].mean(0).sum() / self.bytes[chosen].sum())


def measure(
    arms: Mapping[str, Shards], held: Mapping[str, Source], measurements: int, offsets: Mapping[str, int]
) -> Measured:
    """All arms count as many tokens: half of what the smallest has. `offsets`: of an arm whose measurements are other samples (the
    control)."""
    size = next(iter(arms.values())).set.vocab_size
    scored = held_out_of(held, size)
    totals = {
        name: sum(source.index.ntokens for source in shards.train.values()) for name, shards in arms.items()
    }
    tokens = min(min(totals.values()) // 2, MOST)
    found: dict[str, Floats] = {}
    last: Shards | None = None  # the control's are the whole recipe's, which come before it
    for name, shards in arms.items():
        if shards is not last:
            texts, last = texts_of(shards.train, size), shards
        first = offsets.get(name, 0)
        found[name] = np.stack([bits(texts, scored, first + n, tokens) for n in range(measurements)])
    return Measured(found, scored.bytes, scored.sources, totals, tokens)
