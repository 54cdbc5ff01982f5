"""The index of ids: every id, own id and URL of a ledger leads to its rows, whatever the size of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.ids import doc_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.inspect.lineage import ids as module
from corpusmill.pipeline.inspect.lineage.ids import Ids, key_of_id, key_of_text, keys
from corpusmill.pipeline.inspect.lineage.shards import Requests
from corpusmill.schemas.tables import LEDGER


def ledger(folder: Folder, rows: list[dict[str, Any]], partitions: int) -> None:
    for number in range(partitions):
        mine = [{**dict.fromkeys(LEDGER.names), **row} for row in rows[number::partitions]]
        publish_table(folder / "ledger", f"{number:05d}-000.parquet", pa.Table.from_pylist(mine, LEDGER))
    (folder / "ledger/_manifest.json").write(str(len(rows)).encode())


def row(i: int, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id("s", str(i)),
        "source": "s",
        "locator": f"a#{i}",
        "outcome": "kept",
        "stage": "ingest",
        **more,
    }


@pytest.mark.parametrize("file_keys", [1, 100, 1 << 22])
def test_every_key_leads_to_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_keys: int) -> None:
    monkeypatch.setattr(module, "PAGE", 16)
    folder, logged = Folder(tmp_path), list[str]()
    rows = [
        row(i, source_id=f"own-{i % 90}" if i % 3 else None, url=f"https://é/{i // 4}" if i % 5 else None)
        for i in range(300)
    ]
    ledger(folder, rows, 7)
    for _ in range(2):  # made, then found
        requests = Requests()
        index = Ids(folder, folder / "ledger", requests, logged.append, file_keys)
        for i, wanted in enumerate(rows):
            assert (f"{i % 7:05d}-000", i // 7) in list(index.places([key_of_id(wanted["doc_id"])]))
        for name in ("source_id", "url"):
            for text in {r[name] for r in rows if r[name]}:
                places = {(f"{i % 7:05d}-000", i // 7) for i, r in enumerate(rows) if r[name] == text}
                assert places <= set(index.places([key_of_text(text)]))
        assert list(index.places([key_of_id(b"\x01" * 16), key_of_text("none"), 0, 2**64 - 1])) == []
    assert len(logged) == 1
    ledger(folder, rows[:50], 2)  # another ledger: the index is made again
    index = Ids(folder, folder / "ledger", Requests(), logged.append, file_keys)
    assert len(logged) == 2 and list(index.places([key_of_id(rows[99]["doc_id"])])) == []


@pytest.mark.parametrize("damage", ["gone", "cut short", "older"])
def test_an_index_that_is_not_whole_is_made_again(tmp_path: Path, damage: str) -> None:
    folder, logged = Folder(tmp_path), list[str]()
    ledger(folder, [row(i) for i in range(20)], 2)
    for _ in range(2):
        index = Ids(folder, folder / "ledger", Requests(), logged.append, 1)
        assert list(index.places([key_of_id(doc_id("s", "3"))])) == [("00001-000", 1)]
        file, listing = tmp_path / "lineage/ids-00001.bin", tmp_path / "lineage/ids.json"
        if damage == "gone":
            file.unlink()
        elif damage == "cut short":
            file.write_bytes(file.read_bytes()[:-16])
        else:
            listing.write_text(listing.read_text().replace("ids-v2", "ids-v1"))
    assert len(logged) == 2


def test_equal_keys_over_many_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 4)
    folder = Folder(tmp_path)
    ledger(folder, [row(i, url="https://one/" if i % 2 else "https://two/") for i in range(100)], 3)
    index = Ids(folder, folder / "ledger", Requests(), lambda line: None)
    assert len(list(index.places([key_of_text("https://one/")]))) == 50


def test_a_run_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusmill.common.errors import WorkError

    folder, logged = Folder(tmp_path), list[str]()
    ledger(folder, [row(i) for i in range(20)], 2)

    def refuse(*_: object) -> None:
        raise WorkError("read only")

    monkeypatch.setattr(module, "publish_bytes", refuse)
    index = Ids(folder, folder / "ledger", Requests(), logged.append)
    assert list(index.places([key_of_id(doc_id("s", "3"))])) == [("00001-000", 1)]
    assert "stays in memory" in logged[-1] and not (tmp_path / "lineage").exists()


@settings(max_examples=50)
@given(st.lists(st.none() | st.text(max_size=20), max_size=8))
def test_keys_are_the_same_one_by_one(texts: list[str | None]) -> None:
    column = pa.array(
        [None if t is None else t.encode("utf-8", "ignore").decode() for t in texts], pa.large_string()
    )
    import numpy as np

    offsets = np.frombuffer(column.buffers()[1] or bytes(8), np.int64)[: len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    found = keys(offsets, data, column.is_valid().to_numpy(zero_copy_only=False)) if len(column) else []
    assert [int(k) for k in found] == [0 if t is None else key_of_text(t) for t in column.to_pylist()]
