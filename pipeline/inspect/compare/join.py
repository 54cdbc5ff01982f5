"""The documents of two runs paired by id. Ids are hashes: each of equal ranges of them is read from both ledgers, sorted and
paired, and counted by what became of its documents on either side. A range holds a bounded number of rows."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.shuffle import in_range, starts_of, words
from corpusmill.pipeline.report.survey import UNNAMED, read_columns
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.schemas.tables import KEPT

COLUMNS: Final = ["doc_id", "source", "text_bytes", "outcome", "stage", "rule"]
ABSENT: Final = "absent"
Place = tuple[int, int]  # number of a partition, row in its file of the ledger


class Fate(NamedTuple):
    """What became of a document. `outcome`: kept, removed, quarantined, or absent: it is not in the run. `stage` and `rule`
    took it; both are empty for one that was kept."""

    outcome: str
    stage: str = ""
    rule: str = ""


class Move(NamedTuple):
    """The fates of a document in both runs. `rewritten`: kept in both, with another text in the end."""

    a: Fate
    b: Fate
    rewritten: bool = False


class Side(NamedTuple):
    """The tables of one run."""

    ledger: Folder
    documents: Folder | None  # of the last stage that passes documents on; None if they are no longer there
    partitions: Sequence[str]


class Example(NamedTuple):
    """A document by its id, and where it stands in either ledger; None where it does not."""

    doc_id: str
    a: Place | None
    b: Place | None


@dataclass
class Tally:
    """Counts over one range of ids, or over all of them."""

    documents: Counter[tuple[Move, str]] = field(default_factory=Counter)  # (move, source) -> documents
    text_a: Counter[tuple[Move, str]] = field(default_factory=Counter)  # the same -> bytes as A ingested them
    text_b: Counter[tuple[Move, str]] = field(default_factory=Counter)
    examples: dict[Move, list[Example]] = field(default_factory=dict)  # of moves that change something
    repeated: int = 0  # rows of either ledger whose id came before in it

    def add(self, other: Tally, most: int) -> None:
        """Merge another range's counts into these; `most` examples of each move stay."""
        self.documents.update(other.documents)
        self.text_a.update(other.text_a)
        self.text_b.update(other.text_b)
        self.repeated += other.repeated
        for move, found in other.examples.items():
            self.examples[move] = _first(most, [*self.examples.get(move, []), *found])


# The rows of one ledger in a range: the halves of the id, codes of fate and source, bytes as ingested, what tells the text
# that was kept from another one (0: not known), and the place of the row. 48 bytes.
ROW: Final = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("fate", "<i4"), ("source", "<i4"), ("size", "<i8"), ("text", "<u8"),
     ("partition", "<i4"), ("row", "<i4")]
)  # fmt: skip
Rows = npt.NDArray[Any]


class Codes(dict[Any, int]):
    """Value -> its number, in the order in which values come."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


@dataclass(frozen=True)
class Join:
    """Callable for the scheduler: number of a range -> its `Tally`."""

    a: Side = field(repr=False)
    b: Side = field(repr=False)
    ranges: int
    examples: int

    def __call__(self, number: int) -> Tally:
        fates, sources = Codes({Fate(ABSENT): 0}), Codes({"": 0})
        a, b = (
            np.concatenate(
                [np.zeros(0, ROW)]
                + [self._rows(side, place, number, fates, sources) for place in range(len(side.partitions))]
            )
            for side in (self.a, self.b)
        )
        pairs, repeated = paired(a, b)
        return _tally(a, b, pairs, list(fates), list(sources), self.examples, repeated)

    def _rows(self, side: Side, place: int, number: int, fates: Codes, sources: Codes) -> Rows:
        """The rows of one partition whose ids lie in the range."""
        name = side.partitions[place]
        table = read(side.ledger / f"{name}.parquet", COLUMNS)
        high, low = words(one_array(table["doc_id"]))
        inside = np.flatnonzero(in_range(high, self.ranges) == number)
        table = table.take(inside)
        rows = np.zeros(len(inside), ROW)
        rows["high"], rows["low"] = high[inside], low[inside]
        rows["partition"], rows["row"] = place, inside
        rows["size"] = pc.fill_null(table["text_bytes"], 0).to_numpy()
        rows["source"] = _coded(table["source"], lambda source: sources[source])
        kept = pc.equal(table["outcome"], KEPT)
        by = pc.binary_join_element_wise(
            table["outcome"], table["stage"], pc.fill_null(table["rule"], UNNAMED), "\0"
        )
        rows["fate"] = _coded(pc.if_else(kept, KEPT, by), lambda label: fates[Fate(*label.split("\0", 2))])
        if side.documents is not None and pc.any(kept).as_py():
            texts = read(side.documents / f"documents/{name}.parquet", ["doc_id", "text_hash"])
            where = pc.index_in(table["doc_id"], one_array(texts["doc_id"]))
            known = np.flatnonzero(np.asarray(where.is_valid()))
            hashes = words(one_array(texts["text_hash"].take(where.drop_null())))[0]
            rows["text"][known] = np.maximum(hashes, 1)  # 0 is for a text that is not known
        return rows


def read(file: Folder, columns: list[str]) -> pa.Table:
    """Columns of a published table; raises `WorkError` if it is not there, or no table."""
    try:
        table = read_columns(file, columns)
    except (FileNotFoundError, pa.ArrowException) as error:
        raise WorkError(f"{file}: missing or damaged ({error}); run `corpusmill verify`") from None
    if absent := set(columns) - set(table.column_names):
        raise WorkError(f"{file}: no column {min(absent)}; run `corpusmill verify`")
    return table


def _coded(column: pa.ChunkedArray, code: Callable[[str], int]) -> npt.NDArray[np.int32]:
    """The code of every value; each distinct one is looked up once."""
    coded = one_array(column).dictionary_encode()
    codes = np.array([code(value) for value in coded.dictionary.to_pylist()], np.int32)
    found: npt.NDArray[np.int32] = codes[coded.indices.to_numpy()] if len(codes) else np.zeros(0, np.int32)
    return found


def paired(a: Rows, b: Rows) -> tuple[npt.NDArray[np.int64], int]:
    """(int64[D, 2]: row of `a` and row of `b` of each document, -1 where it has none, by id; rows whose id came before in
    the same ledger). The k-th row of an id on one side is paired with the k-th on the other."""
    high, low = (np.concatenate([a[name], b[name]]) for name in ("high", "low"))
    side = np.repeat(np.array([0, 1], np.int8), [len(a), len(b)])
    order = np.lexsort((side, low, high))  # of one id: rows of `a`, then of `b`; both in their order
    starts = np.flatnonzero(starts_of(high[order], low[order]))
    sizes = np.diff(np.append(starts, len(order)))
    group = np.repeat(np.arange(len(starts)), sizes)
    in_b = side[order] == 1
    of_a = np.bincount(group[~in_b], minlength=len(starts))
    of_b = sizes - of_a
    nth = np.arange(len(order)) - starts[group] - np.where(in_b, of_a[group], 0)  # of its id on its side
    begin = np.cumsum(np.maximum(of_a, of_b)) - np.maximum(of_a, of_b)  # where the pairs of an id begin
    pairs = np.full((int(np.maximum(of_a, of_b).sum()), 2), -1, np.int64)
    pairs[(begin[group] + nth)[~in_b], 0] = order[~in_b]
    pairs[(begin[group] + nth)[in_b], 1] = order[in_b] - len(a)
    return pairs, int((nth > 0).sum())


def _tally(
    a: Rows, b: Rows, pairs: npt.NDArray[np.int64], fates: list[Fate], sources: list[str], most: int,
    repeated: int,
) -> Tally:  # fmt: skip
    """The pairs counted. Row -1, the last, is that of a document that is absent."""
    nothing = np.zeros(1, ROW)
    left, right = (np.append(rows, nothing)[pairs[:, i]] for i, rows in enumerate((a, b)))
    rewritten = (left["text"] != right["text"]) & (left["text"] != 0) & (right["text"] != 0)
    source = np.where(pairs[:, 0] >= 0, left["source"], right["source"])
    shape = (len(fates), len(fates), 2, len(sources))
    codes = np.ravel_multi_index((left["fate"], right["fate"], rewritten.astype(np.int64), source), shape)
    order = np.argsort(codes, kind="stable")  # of one code: by id
    starts = np.flatnonzero(starts_of(codes[order]))
    ends = np.append(starts, len(order))[1:]
    sizes = [
        np.add.reduceat(side["size"][order], starts).tolist() if len(starts) else [] for side in (left, right)
    ]
    tally = Tally(repeated=repeated)
    parts = (part.tolist() for part in np.unravel_index(codes[order[starts]], shape))
    for i, (start, end, x, y, changed, where) in enumerate(
        zip(starts.tolist(), ends.tolist(), *parts, strict=True)
    ):
        move = Move(fates[x], fates[y], bool(changed))
        key = move, sources[where]
        tally.documents[key] += end - start
        tally.text_a[key] += sizes[0][i]
        tally.text_b[key] += sizes[1][i]
        if move.a != move.b or move.rewritten:
            chosen = [
                _example(left[at], right[at], pairs[at])
                for at in order[start : min(end, start + most)].tolist()
            ]
            tally.examples[move] = _first(most, [*tally.examples.get(move, []), *chosen])
    return tally


def _first(most: int, examples: list[Example]) -> list[Example]:
    return heapq.nsmallest(most, examples, key=lambda one: one.doc_id)


def _example(left: Any, right: Any, pair: npt.NDArray[np.int64]) -> Example:
    there = left if pair[0] >= 0 else right
    doc_id = f"{int(there['high']):016x}{int(there['low']):016x}"
    places = [
        (int(row["partition"]), int(row["row"])) if at >= 0 else None
        for row, at in zip((left, right), pair.tolist(), strict=True)
    ]
    return Example(doc_id, *places)
