"""The documents that tokenizers are compared on: of each source some to train on and others to measure on, by a hash of their ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.engine.document_hash import hash_ids, purpose_seed
from corpusmill.pipeline.tokenizer.sample import parts
from corpusmill.schemas.tokenizer import ComparedSource, HeldOut

SHARE = 0.1  # of a source's text that is held out, where no split chose it
COLUMNS = ["doc_id", "source", "language", "text"]


class Batch(NamedTuple):
    """Documents (`COLUMNS`), and which of them a run's split took for validation; None without a split."""

    docs: pa.Table
    validation: npt.NDArray[np.bool_] | None


class Sample(NamedTuple):
    """`train`: texts. `held_out`: `source`, `language`, `text`. Both in the order of source and hash."""

    train: pa.ChunkedArray
    held_out: pa.Table
    sources: dict[str, ComparedSource]


@dataclass
class Pool:
    """Of the documents that it is given those first by hash, up to `limit` bytes of text, at least one; memory is bounded by
    twice that. `docs`, `bytes`: of all that it was given."""

    limit: int
    docs: int = 0
    bytes: int = 0
    _tables: list[pa.Table] = field(default_factory=list)
    _held: int = 0

    def add(self, table: pa.Table) -> None:
        """A table with the column `hash`."""
        size = pc.sum(pc.binary_length(table["text"])).as_py() or 0
        self._tables.append(table)
        self.docs, self.bytes, self._held = self.docs + len(table), self.bytes + size, self._held + size
        if self._held > 2 * self.limit:
            self._tables = [self.first()]
            self._held = pc.sum(pc.binary_length(self._tables[0]["text"])).as_py() or 0

    def first(self) -> pa.Table:
        """The documents in the order of their hash."""
        table = pa.concat_tables(self._tables)
        table = table.take(pa.array(np.argsort(table["hash"].to_numpy(), kind="stable")))
        return table.slice(0, max(1, whole(table, self.limit)))


def whole(table: pa.Table, size: int) -> int:
    """How many documents from the first on have at most `size` bytes of text together."""
    sizes = pc.binary_length(table["text"]).to_numpy().astype(np.int64)
    return int(np.searchsorted(np.cumsum(sizes), size, side="right"))


def draw(batches: Iterable[Batch], seed: int, sample_bytes: int, held_out_bytes: int) -> Sample:
    """At most `sample_bytes` of text to train on, of each source in proportion to what it has, and about `held_out_bytes` of each
    source to measure on: of a run's validation documents, or of a source without any the first tenth by hash. Which documents
    these are depends on their ids and the seed alone.

    Raises `WorkError` if there is no text to train on.
    """
    pools: dict[tuple[str, bool], Pool] = {}
    chosen = purpose_seed(seed, "tokenizer compare")
    for docs, validation in batches:
        table = docs.select(COLUMNS).append_column("hash", pa.array(hash_ids(docs["doc_id"], chosen)))
        held = np.zeros(len(table), np.bool_) if validation is None else validation
        for source in pc.unique(table["source"]).to_pylist():
            mine = pc.equal(table["source"], source).to_numpy()
            for side in (False, True):
                rows = mine & (held == side)
                if rows.any():
                    pool = pools.setdefault((source, side), Pool(sample_bytes + held_out_bytes))
                    pool.add(table.filter(pa.array(rows)))
    train: dict[str, pa.Table] = {}
    measured: dict[str, pa.Table] = {}
    how: dict[str, HeldOut] = {}
    sizes: dict[str, int] = {}
    for source in sorted({name for name, _ in pools}):
        rest, given = pools.get((source, False)), pools.get((source, True))
        if given is not None:
            how[source], measured[source] = "validation", _first(given.first(), held_out_bytes)
            if rest is not None:
                train[source], sizes[source] = rest.first(), rest.bytes
        elif rest is not None:
            table = rest.first()
            count = min(max(1, whole(table, int(min(held_out_bytes, SHARE * rest.bytes)))), len(table) - 1)
            how[source] = "hash" if count else "train"
            measured[source], train[source] = table.slice(0, max(count, 1)), table.slice(count)
            sizes[source] = max(rest.bytes - (_size(measured[source]) if count else 0), 0)
    limits = parts(sizes, sample_bytes, {})
    train = {source: _cut(table, limits[source]) for source, table in train.items()}
    texts = [chunk for table in train.values() for chunk in table["text"].chunks]
    if not sum(_size(table) for table in train.values()):
        raise WorkError(
            "tokenizer compare: there is no text to train on; every document is empty, or for validation"
        )
    sources = {
        source: ComparedSource(
            train_docs=len(train[source]) if source in train else 0,
            train_bytes=_size(train[source]) if source in train else 0,
            held_out_docs=len(table), held_out_bytes=_size(table), held_out=how[source],
        )
        for source, table in measured.items()
    }  # fmt: skip
    found = pa.concat_tables([table.select(["source", "language", "text"]) for table in measured.values()])
    return Sample(pa.chunked_array(texts, pa.large_string()), found, sources)


def _first(table: pa.Table, size: int) -> pa.Table:
    """Whole documents of about `size` bytes, at least one."""
    return table.slice(0, max(1, whole(table, size)))


def _cut(table: pa.Table, size: int) -> pa.Table:
    """The documents of the first `size` bytes, the last one cut at a character."""
    count = whole(table, size)
    taken = table.slice(0, count)
    rest = size - _size(taken)
    if count == len(table) or not rest:
        return taken
    one = table.slice(count, 1)
    text = one["text"][0].as_py().encode()[:rest].decode(errors="ignore")
    place = one.schema.get_field_index("text")
    cut = one.set_column(place, one.schema.field(place), pa.array([text], pa.large_string()))
    return pa.concat_tables([taken, cut])


def _size(table: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(table["text"])).as_py() or 0)
