"""What is published is whole, and every reader loads it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer

from tests.operations.publications import (
    final_documents,
    publication,
)


def split_of_shards(run: Path) -> dict[str, str]:
    """doc_id -> its split, by the shards."""
    found = {}
    for split in ("train", "validation"):
        for file in (run / "shards").glob(f"*/{split}/*.tar"):
            with tarfile.open(file) as tar:
                for member in tar:
                    if member.name.endswith(".json"):
                        for doc_id in json.loads(tar.extractfile(member).read())["doc_ids"]:  # type: ignore[union-attr]
                            found[doc_id] = split
    return found


def test_documents_are_the_final_ones_by_split(finished: Path, published: Path) -> None:
    wanted, splits = final_documents(finished), split_of_shards(finished)
    seen = {}
    for file in sorted(published.glob("data/*/*.parquet")):
        for row in pq.read_table(file).to_pylist():
            assert row["text"] == wanted[row["doc_id"]]["text"]
            assert row["source"] == wanted[row["doc_id"]]["source"] == file.parent.name
            assert file.name.startswith(f"{splits[row['doc_id']]}-")
            seen[row["doc_id"]] = row
    assert seen.keys() == wanted.keys() == splits.keys()
    stated = publication(published)
    assert stated.documents and sum(one.documents for one in stated.documents.sets) == len(wanted)
    assert sum(one.text_bytes for one in stated.documents.sets) == sum(
        len(row["text"].encode()) for row in wanted.values()
    )
    assert not {"source_id", "locator"} & set(stated.documents.columns)
    assert stated.ledger and stated.ledger.rows == 957 and stated.searched and stated.redacted
    ledger = pq.read_table(published / stated.ledger.files[0])
    kept = {row["doc_id"] for row in ledger.to_pylist() if row["outcome"] == "kept"}
    assert kept == set(wanted)


def test_json_lines_hold_the_same(published: Path, json_lines: Path) -> None:
    for file in sorted(published.glob("data/*/*.parquet")):
        other = json_lines / file.relative_to(published).with_suffix(".jsonl.zst")
        text = zstandard.ZstdDecompressor().stream_reader(other.read_bytes()).read().decode()
        assert [json.loads(line) for line in text.split("\n")[:-1]] == pq.read_table(file).to_pylist()
    assert not (json_lines / "shards").exists() and not (json_lines / "ledger").exists()


def test_readers(published: Path, json_lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets, duckdb, pandas, polars, webdataset = map(
        pytest.importorskip, ("datasets", "duckdb", "pandas", "polars", "webdataset")
    )
    stated = publication(published)
    assert stated.documents and stated.shards
    by_split: dict[str, int] = {}
    for one in stated.documents.sets:
        by_split[one.split] = by_split.get(one.split, 0) + one.documents
    for split, count in by_split.items():
        pattern = f"{published}/data/*/{split}-*.parquet"
        assert duckdb.sql(f"select count(*) from '{pattern}'").fetchall() == [(count,)]
        assert len(polars.read_parquet(pattern)) == count
        assert (
            sum(len(pandas.read_parquet(file)) for file in published.glob(f"data/*/{split}-*.parquet"))
            == count
        )
    texts = None
    for folder in (published, json_lines):  # by the head of the card
        loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert {split: len(rows) for split, rows in loaded.items()} == by_split
        assert texts in (None, loaded["validation"]["text"][:])
        texts = loaded["validation"]["text"][:]
        books = datasets.load_dataset(str(folder), "books", split="train", streaming=True)
        assert {row["source"] for row in books} == {"books"}
    tokenizer = Tokenizer.from_file(str(published / stated.tokenizer))
    assert tokenizer.decode(tokenizer.encode("The whale").ids) == "The whale"
    tars = sorted(str(file) for file in published.glob("shards/*/*/*.tar"))
    blocks = webdataset.WebDataset(tars, shardshuffle=False, empty_check=False).decode()
    assert sum(len(block["tokens.npy"]) for block in blocks) == sum(one.tokens for one in stated.shards.sets)


def test_croissant(published: Path, json_lines: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    data_set = croissant.Dataset(str(published / "croissant.json"))
    assert not data_set.metadata.issues.errors and not data_set.metadata.issues.warnings
    assert data_set.metadata.name == "A small corpus" and data_set.metadata.license == ["CC-BY-4.0"]
    for split in ("train", "validation"):
        wanted = [
            (row["doc_id"], row["text"])
            for file in sorted(published.glob(f"data/*/{split}-*.parquet"))
            for row in pq.read_table(file, columns=["doc_id", "text"]).to_pylist()
        ]
        found = [
            (row[f"{split}/doc_id"].decode(), row[f"{split}/text"].decode())
            for row in data_set.records(split)
        ]
        assert sorted(found) == sorted(wanted)
    described = {
        one["@id"]: one["sha256"]
        for one in json.loads((published / "croissant.json").read_bytes())["distribution"]
        if one["@type"] == "cr:FileObject"
    }
    sums = dict(reversed(line.split("  ", 1)) for line in (published / "SHA256SUMS").read_text().splitlines())
    assert described == {path: digest for path, digest in sums.items() if path != "croissant.json"}
    assert not croissant.Dataset(str(json_lines / "croissant.json")).metadata.issues.errors
