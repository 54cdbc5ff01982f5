"""Rows of two ledgers paired by id: as a plain loop would, whatever the ids, and however many ranges they are read in."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.inspect.compare.join import ABSENT, ROW, Fate, Join, Move, Side, Tally, paired
from corpusmill.schemas.tables import ID, KEPT, LEDGER, QUARANTINED, REMOVED

FEW = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12)  # ids that meet and repeat
TOP = (1 << 64) - 1


def rows(ids: list[tuple[int, int]]) -> np.ndarray:
    found = np.zeros(len(ids), ROW)
    for at, (high, low) in enumerate(ids):
        found[at]["high"], found[at]["low"] = (0, 1 << 63, TOP)[high], low
    return found


@given(FEW, FEW)
def test_pairs_are_those_of_a_plain_loop(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    pairs, repeated = paired(rows(a), rows(b))
    places: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, ids in enumerate((a, b)):
        for at, one in enumerate(ids):
            places[one][side].append(at)
    wanted = []
    for one in sorted(places):
        left, right = places[one]
        for nth in range(max(len(left), len(right))):
            wanted.append([own[nth] if nth < len(own) else -1 for own in (left, right)])
    assert pairs.tolist() == wanted
    assert repeated == len(a) + len(b) - len(set(a)) - len(set(b))


def ledger(count: int, start: int, kept: set[int]) -> pa.Table:
    """Documents `start` to `start + count`: every fifth is quarantined, those in `kept` stay, `r` takes the others."""
    found = []
    for number in range(start, start + count):
        outcome = QUARANTINED if number % 5 == 0 else KEPT if number in kept else REMOVED
        rule = None if outcome != REMOVED else "r"
        found.append(
            {
                "doc_id": bytes([number * 37 % 256]) + bytes([number]) * 15, "source": f"s{number % 2}",
                "locator": f"f#{number}", "text_bytes": number, "outcome": outcome,
                "stage": "filter", "rule": rule,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(found, schema=LEDGER)


def side(folder: Path, *tables: pa.Table) -> Side:
    """Ledgers, and documents of the kept ones: `text_hash` is the id but in partitions of an even number."""
    root = Folder(folder)
    for number, table in enumerate(tables):
        publish_table(root / "ledger", f"{number}.parquet", table)
        ids = table.filter(pa.compute.equal(table["outcome"], KEPT))["doc_id"]
        hashes = pa.array([bytes([number]) * 16] * len(ids), ID)
        publish_table(
            root / "last", f"documents/{number}.parquet", pa.table({"doc_id": ids, "text_hash": hashes})
        )
    return Side(root / "ledger", root / "last", [str(number) for number in range(len(tables))])


@pytest.mark.parametrize("ranges", [1, 7])
def test_counts_do_not_depend_on_ranges_or_partitions(tmp_path: Path, ranges: int) -> None:
    a = side(tmp_path / "a", ledger(30, 0, {1, 2, 3}), ledger(20, 30, {33}))
    b = side(tmp_path / "b", ledger(40, 10, {11, 33, 3}))
    tally = Tally()
    for number in range(ranges):
        tally.add(Join(a, b, ranges, 2)(number), 2)
    kept, gone, bad = Fate(KEPT), Fate(REMOVED, "filter", "r"), Fate(QUARANTINED, "filter", "unnamed")
    absent = Fate(ABSENT)
    found: dict[Move, int] = defaultdict(int)
    for (move, _), count in tally.documents.items():
        found[move] += count
    assert dict(found) == {
        Move(kept, absent): 3, Move(gone, absent): 5, Move(bad, absent): 2,  # 0 to 9
        Move(gone, kept): 1, Move(kept, kept, True): 1,  # 11; 33: kept in partition 1 of A and in 0 of B
        Move(gone, gone): 30, Move(bad, bad): 8,
    }  # fmt: skip
    assert tally.documents[Move(gone, kept), "s1"] == 1 and tally.text_b[Move(gone, kept), "s1"] == 11
    assert tally.text_a[Move(kept, absent), "s1"] == 1 + 3
    [one] = tally.examples[Move(gone, kept)]
    assert (one.doc_id, one.a, one.b) == ((bytes([11 * 37 % 256]) + bytes([11]) * 15).hex(), (0, 11), (0, 1))
    assert len(tally.examples[Move(kept, absent)]) == 2 and Move(gone, gone) not in tally.examples
    assert tally.repeated == 0


def test_texts_that_are_no_longer_there_are_not_compared(tmp_path: Path) -> None:
    a = side(tmp_path / "a", ledger(4, 1, set()), ledger(4, 1, {1}))
    b = side(tmp_path / "b", ledger(4, 1, {1}))._replace(documents=None)
    tally = Join(a, b, 1, 1)(0)
    assert not any(move.rewritten for move, _ in tally.documents)
    assert tally.repeated == 4  # both partitions of A hold the same documents


@pytest.mark.parametrize("file", ["ledger/0.parquet", "last/documents/0.parquet"])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, file: str) -> None:
    a = side(tmp_path / "a", ledger(4, 1, {1}))
    (tmp_path / "a" / file).write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(WorkError, match=f"{file}: missing or damaged .*corpusmill verify"):
        Join(a, a, 1, 1)(0)
    (tmp_path / "a" / file).unlink()
    with pytest.raises(WorkError, match=f"{file}: missing or damaged"):
        Join(a, a, 1, 1)(0)
