"""A curriculum as a part of the plan: each source's sequences by difficulty, and the pool that its draws come from.

A sequence is as hard as its documents, each weighted by the labels that the sequence has of it. Up to step `over`, draw number k of a
source comes from the easiest part c(k) of its sequences (the competence of Platanios et al. 2019, arXiv 1903.09848; pacing functions of
Bengio et al. 2009), at random among those that the epoch has not drawn yet. Platanios et al. draw with replacement; without it every
sequence still comes once an epoch and before any comes again. Where a source is so small that the part would be used up, it grows as it
must: with `over` the steps of one epoch, `linear` and a small `start`, an epoch is read from the easiest to the hardest. A full sort in every epoch would
show runs of less than an epoch nothing but easy text. After `over`, epochs are shuffled as they are without a curriculum.

So the order is a function of the source's draw number alone: weights, batches, processes and restarts are those of any plan. The price
is that sequences are read one by one from all over a source (8 bytes for each, three times, and its blocks many times, unless
`fetch.memory_mb` or `fetch.cache` holds them: `corpusmill plan` says how often).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.curriculum import LENGTH, CurriculumConfig
from corpusmill.schemas.data import DataConfig
from corpusmill.train.data.folds import Listed, block_documents
from corpusmill.train.data.pack import best_fit
from corpusmill.train.data.sequences import Sequences
from corpusmill.train.data.shards import Shards
from corpusmill.train.data.shuffle import key_of, permute

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
EPOCHS = 2  # whose order is kept


@dataclass(frozen=True, eq=False)
class Curriculum(Sequences):
    """The sequences of a source, chunks of one each, with their order: `values[i]` is how hard sequence i is (NaN: not known, which
    comes last), `draws` how many draws of the source it takes until all of them may be drawn."""

    ordered: ClassVar[bool] = True
    values: Floats
    draws: int
    config: CurriculumConfig
    _orders: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    _lock: threading.Lock = field(
        default_factory=threading.Lock
    )  # batches and the cache ask in threads of their own

    def competence(self, draw: npt.ArrayLike) -> Floats:
        """Which part of the sequences, the easiest ones, may be drawn at each draw of the source; 1 from `draws` on.

        Only additions, products and roots, which are the same on every machine.
        """
        of = np.asarray(draw, dtype=np.float64)
        done = np.minimum(of / self.draws, 1.0) if self.draws else np.ones_like(of)
        start = self.config.start
        if self.config.pacing == "linear":
            return start + (1 - start) * done
        return np.sqrt(start * start + (1 - start * start) * done)

    @cached_property
    def ranks(self) -> Ints:
        """The sequences from the easiest to the hardest; equal ones in random order, not in that of the data."""
        ties = permute(np.arange(self.total), self.total, key_of(self.seed, self.name, "ties"))
        ascending = self.config.order == "ascending"
        return np.lexsort((ties, self.values if ascending else -self.values))

    def difficulty(self, block: Ints, sequence: Ints) -> Floats:
        """The value of each sequence, by its block and its number there."""
        found: Floats = self.values[self._firsts[block] + sequence]
        return found

    @cached_property
    def _firsts(self) -> Ints:
        """The number of each block's first sequence among all."""
        per_block = np.repeat(self.sequences, self.counts)
        firsts: Ints = np.cumsum(per_block) - per_block
        return firsts

    def about(self) -> dict[str, Any]:
        """What the plan's hash covers."""
        named = self.config.model_dump(exclude={"signals", "over"})
        ranks = checksum(self.ranks.astype("<i8").data)
        return {"curriculum": {**named, "draws": self.draws, "ranks_xxh3": ranks}}

    def permuted(self, epoch: Ints, chunk: Ints) -> Ints:
        found = super().permuted(epoch, chunk)
        for one in np.unique(epoch).tolist():
            if self.orders(one):
                mine = epoch == one
                found[mine] = self._order(one)[0][chunk[mine]]
        return found

    def unpermuted(self, epoch: int, chunk: Ints) -> Ints:
        return self._order(epoch)[1][chunk] if self.orders(epoch) else super().unpermuted(epoch, chunk)

    def orders(self, epoch: int) -> bool:
        """Whether an epoch begins before all sequences may be drawn."""
        return epoch * self.total < self.draws

    def _order(self, epoch: int) -> tuple[Ints, Ints]:
        """(sequence of each draw, draw of each sequence) of an epoch that begins before the curriculum ends."""
        with self._lock:
            if epoch not in self._orders:
                while len(self._orders) >= EPOCHS:
                    self._orders.pop(min(self._orders))
                self._orders[epoch] = self._drawn(epoch)
            return self._orders[epoch]

    def _drawn(self, epoch: int) -> tuple[Ints, Ints]:
        from corpusmill.train.data.drawing import draw_growing

        places = np.arange(self.total)
        part = np.ceil(self.competence(epoch * self.total + places) * self.total).astype(np.int64)
        pool = np.minimum(np.maximum(part, places + 1), self.total)
        drawn = np.empty(self.total, dtype=np.int64)
        key = np.array([key_of(self.seed, self.name, "curriculum", epoch)], dtype=np.uint64)
        draw_growing(pool, key, drawn)
        order = self.ranks[drawn]
        inverse = np.empty_like(order)
        inverse[order] = places
        return order, inverse


class Documents(NamedTuple):
    """The document segments of a source in their order: `blocks[b]` is where block b's begin (one more: where the last ends), `ids` (16
    bytes each), and the token of the block at which each begins."""

    blocks: Ints
    ids: npt.NDArray[np.bytes_]
    starts: Ints


def with_difficulties(data: DataConfig, shards: Shards) -> Shards:
    """The shard set with how hard the sequences of its train splits are. Raises what `difficulties` raises."""
    found = difficulties({name: one for name, one in shards.train.items() if data.reads(name)}, data)
    train = {name: replace(one, difficulty=found.get(name)) for name, one in shards.train.items()}
    return replace(shards, train=train)


def difficulties(sources: Mapping[str, Listed], config: DataConfig) -> dict[str, Floats]:
    """Of each source, the value of each of its sequences of full length; NaN where no document of one has a value.

    Raises `UserError` for a signal that is not stored, or is no number, and for documents that the stored signals do not know;
    `WorkError` for damaged lists of documents.
    """
    assert config.curriculum is not None
    documents = {name: documents_of(source) for name, source in sources.items()}
    ids, of = np.unique(np.concatenate([one.ids for one in documents.values()]), return_inverse=True)
    sizes = {
        name: _sizes(one, [block.ntokens for _, block in sources[name].blocks])
        for name, one in documents.items()
    }
    if config.curriculum.signal == LENGTH:
        values: Floats = np.bincount(
            of, weights=np.concatenate(list(sizes.values())), minlength=len(ids)
        ).astype(np.float64)
    else:
        values = stored(Folder(config.curriculum.signals_of(config.shards)), config.curriculum.signal, ids)
    found, first = {}, 0
    for name, one in documents.items():
        mine = values[of[first : first + len(one.ids)]]
        first += len(one.ids)
        blocks = [
            _of_block(config, one.starts[low:high], mine[low:high], block.ntokens)
            for low, high, (_, block) in zip(
                one.blocks[:-1], one.blocks[1:], sources[name].blocks, strict=True
            )
        ]
        found[name] = np.concatenate([np.zeros(0), *blocks])
    return found


def documents_of(source: Listed) -> Documents:
    """Raises `WorkError` for a list that is not as published."""
    edges, ids, starts = [0], [b""], [np.zeros(0, dtype=np.int64)]
    for member in block_documents(source):
        edges.append(edges[-1] + len(member.doc_ids))
        ids.append(bytes.fromhex("".join(member.doc_ids)))
        starts.append(np.array(member.token_starts, dtype=np.int64))
    return Documents(np.array(edges), np.frombuffer(b"".join(ids), dtype="S16"), np.concatenate(starts))


def _sizes(documents: Documents, ntokens: list[int]) -> Ints:
    """Tokens of each segment."""
    ends = np.append(documents.starts[1:], 0)
    filled = np.diff(documents.blocks) > 0
    ends[documents.blocks[1:][filled] - 1] = np.array(ntokens)[filled]
    sizes: Ints = ends - documents.starts
    return sizes


def _of_block(config: DataConfig, starts: Ints, values: Floats, ntokens: int) -> Floats:
    """The value of each sequence of a block: the mean over its labels of their documents' values, without those that have none."""
    length = config.sequence_length
    count = max(ntokens - 1, 0) // length
    if not count:
        return np.zeros(0)
    edges = np.append(starts, ntokens)
    known = np.isfinite(values)
    if config.packing == "windows":
        at = np.arange(count + 1) * length + 1
        sums = [
            _upto(edges, weight, at) for weight in (np.where(known, values, 0.0), known.astype(np.float64))
        ]
        total, labels = np.diff(sums[0]), np.diff(sums[1])
    else:
        pieces = best_fit(starts, ntokens, length, count)
        rows = np.repeat(np.arange(count), [len(row) for row in pieces])
        begin, size = np.array([piece for row in pieces for piece in row], dtype=np.int64).reshape(-1, 2).T
        of = starts.searchsorted(begin, side="right") - 1  # a piece lies in one document
        total = np.bincount(rows, np.where(known, values, 0.0)[of] * size, count).astype(np.float64)
        labels = np.bincount(rows, known[of] * size.astype(np.float64), count).astype(np.float64)
    found: Floats = np.divide(total, labels, out=np.full(count, np.nan), where=labels > 0)
    return found


def _upto(edges: Ints, weights: Floats, at: Ints) -> Floats:
    """The sum over the tokens before each of `at` of their documents' weights; documents lie between `edges`."""
    before = np.concatenate([[0.0], np.cumsum(weights * np.diff(edges))])
    of = edges.searchsorted(at, side="right").clip(1, len(weights)) - 1
    sums: Floats = before[of] + weights[of] * (at - edges[of])
    return sums


def stored(folder: Folder, signal: str, ids: npt.NDArray[np.bytes_]) -> Floats:
    """A signal's values of documents, whose `ids` are sorted; NaN for none. Raises `UserError`: see `difficulties`."""
    files = [entry.path for entry in folder.list() if entry.path.endswith(".parquet")]
    if not files:
        raise UserError(
            f"data.curriculum.signals: {folder}: no *.parquet there; name the signals of the pipeline's run, such as"
            " runs/<recipe>/filter/signals"
        )
    values, missing = np.full(len(ids), np.nan), np.ones(len(ids), dtype=np.bool_)
    for file in files:
        data = pa.BufferReader((folder / file).read())
        schema = pq.read_schema(data)
        numbers = [one.name for one in schema if not pa.types.is_string(one.type) and one.name != "doc_id"]
        if signal not in numbers:
            what = (
                "is text, not a number"
                if signal in schema.names
                else f"is not stored{nearest(signal, numbers)}"
            )
            raise UserError(
                f"data.curriculum.signal: '{signal}' {what}; {folder / file} has: {', '.join([LENGTH, *numbers])}"
            )
        data.seek(0)
        table = pq.read_table(data, columns=["doc_id", signal])
        there = np.frombuffer(b"".join(table["doc_id"].to_pylist()), dtype="S16")
        at = ids.searchsorted(there).clip(max=max(len(ids) - 1, 0))
        mine = ids[at] == there if len(ids) else np.zeros(len(there), dtype=np.bool_)
        column = (
            table[signal].cast(pa.float64())
            if not pa.types.is_boolean(table[signal].type)
            else table[signal].cast(pa.int8()).cast(pa.float64())
        )
        values[at[mine]] = column.to_numpy()[mine]
        missing[at[mine]] = False
    if missing.any():
        lost = bytes(ids[missing.argmax()]).ljust(16, b"\0").hex()
        raise UserError(
            f"data.curriculum.signals: {folder}: has no row of document {lost} of the shards ({int(missing.sum())} are missing); they are"
            " the signals of another run, or texts that augment made: leave their sources out of data.weights, or order by length"
        )
    return values


def draws_until(stages: Sequence[tuple[int, int, int, int]], step: int) -> int:
    """How many sequences of a source are drawn up to `step`, without skips; `stages`: (first step, sequences of a batch, slots of the
    source, all slots) each."""
    total = 0
    for (first, batch, mine, slots), (after, *_) in pairwise([*stages, (step + 1, 0, 0, 0)]):
        steps = min(after, step + 1) - first
        total += -(-max(steps, 0) * batch * mine // slots)
    return total
