"""An index of `corpusmill dedup` that grows and shrinks, killed or not; the shards that a takedown names."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import shared
from tests.e2e.cli import corpusmill, difference
from tests.e2e.killing import (
    CUT,
    DOCUMENTS,
    Killing,
    Unbroken,
    arguments,
    finished,
    made_up,
    points,
    rows,
    write_lines,
)  # fmt: skip
from tests.e2e.test_dedup import crawl, unbroken  # noqa: F401 (fixtures)

# ruff: noqa: F811 (an argument with the name of a fixture that was imported)


class Crawls:
    """`a.jsonl` added to an index; what comes later starts from a copy of it."""

    def __init__(self, crawl: Path, folder: Path) -> None:
        self.crawl, self.folder = crawl, folder

    def make(self) -> None:
        corpusmill(*self.command("a", self.folder / "index", self.folder / "a", workers=0))
        both, out = self.copy(self.folder / "both"), self.folder / "b"
        most = Unbroken(self.command("b", both, out, workers=0), str(both), str(out)).most
        (self.folder / "most").write_text(str(most))

    def command(self, name: str, index: Path, out: Path, workers: int = 2) -> list[str]:
        return [
            "dedup", str(self.crawl / f"{name}.jsonl"), str(out), "--index", str(index), "--id-column", "id",
            "--set", CUT, "--workers", str(workers),
        ]  # fmt: skip

    def copy(self, target: Path, of: str = "index") -> Path:
        shutil.copytree(self.folder / of, target)
        return target


@pytest.fixture(scope="session")
def crawls(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Crawls:
    return Crawls(crawl, shared(tmp_path_factory, "crawls", lambda folder: Crawls(crawl, folder).make()))


def test_an_index_of_a_and_then_b_is_that_of_both(crawls: Crawls, unbroken: tuple[Path, int]) -> None:
    whole = unbroken[0] / "clusters.parquet"
    assert (crawls.folder / "b/clusters.parquet").read_bytes() == whole.read_bytes()
    kept = {row["doc_id"] for row in rows(unbroken[0] / "documents")}
    mine = {row["doc_id"] for row in rows(crawls.folder / "b/documents")}
    assert mine == kept & {row["doc_id"] for row in rows(crawls.folder / "b/before/ingest/documents")}
    before = {row["doc_id"] for row in rows(crawls.folder / "a/documents")}
    changes = pq.read_table(crawls.folder / "b/changes.parquet").to_pylist()
    assert {row["doc_id"] for row in changes if row["change"] == "removed"} == before - kept
    assert {row["doc_id"] for row in changes if row["change"] == "restored"} == (kept - mine) - before


@pytest.mark.slow
def test_an_addition_killed_at_random_moments(crawls: Crawls, tmp_path: Path) -> None:
    """The driver, alone and with its workers."""
    index, out = crawls.copy(tmp_path / "index"), tmp_path / "out"
    before, most = count_of_files(index), int((crawls.folder / "most").read_text())
    killing = Killing(crawls.command("b", index, out), str(index), str(out))
    whole = itertools.cycle((True, False))
    killing.at([before + n for n in points(random.Random(11), most - before, 3)], lambda: next(whole))
    assert len(killing.kills) >= 2 and len(set(killing.kills)) >= 2, killing.kills
    killing.finish()
    assert difference(finished(crawls.folder / "both"), finished(index)) == []
    assert difference(finished(crawls.folder / "b"), finished(out)) == []


def count_of_files(folder: Path) -> int:
    return sum(1 for file in folder.rglob("*") if file.is_file())


class Takedown:
    """Sixty documents named in every way, and the corpus without them."""

    def __init__(self, crawls: Crawls, folder: Path) -> None:
        generator = random.Random(12)
        self.numbers = frozenset(generator.sample(range(DOCUMENTS), 60))
        ingested = rows(crawls.folder / "a/before/ingest/documents")
        ingested += rows(crawls.folder / "b/before/ingest/documents")
        gone = [row for row in ingested if row["source_id"] in {f"n{number}" for number in self.numbers}]
        self.ids = {row["doc_id"] for row in gone}
        ways: list[Callable[[dict[str, Any]], str]] = [
            lambda row: row["doc_id"].hex(),
            lambda row: row["source_id"],
            lambda row: row["locator"],
        ]
        self.file = folder / "list"
        self.file.write_text("# to go\n" + "".join(f"{generator.choice(ways)(row)}\n" for row in gone))
        folder = folder / "left"
        folder.mkdir()
        texts = made_up(1)
        write_lines(folder / "a.jsonl", texts[:900], 0, self.numbers)
        write_lines(folder / "b.jsonl", texts[900:], 900, self.numbers)
        self.left = folder

    def command(self, index: Path, out: Path, *more: str, workers: int = 2) -> list[str]:
        return [
            "dedup", str(out), "--index", str(index), "--takedown", str(self.file), "--workers", str(workers), *more,
        ]  # fmt: skip


@pytest.fixture(scope="module")
def takedown(crawls: Crawls, tmp_path_factory: pytest.TempPathFactory) -> Takedown:
    return Takedown(crawls, tmp_path_factory.mktemp("takedown"))


def test_a_takedown_is_a_run_without_the_documents_and_names_their_shards(
    crawls: Crawls, takedown: Takedown, unbroken: tuple[Path, int], tmp_path: Path
) -> None:
    documents = unbroken[0] / "documents"
    corpusmill("tokenizer", documents, tmp_path / "tok", "--vocab-size", "300", "--workers", "0")
    corpusmill(
        "shard", documents, tmp_path / "shards", "--tokenizer", tmp_path / "tok/tokenizer.json", "--workers", "0",
        "--set", "shard.shard_mb=0.3", "--set", "shard.block_tokens=4096",
    )  # fmt: skip
    index, out = crawls.copy(tmp_path / "index", "both"), tmp_path / "out"
    result = json.loads(
        corpusmill(
            *takedown.command(index, out, "--shards", str(tmp_path / "shards"), "--json", workers=0)
        ).stdout
    )
    assert result["named"] == result["taken"] == 60
    corpusmill(*arguments(takedown.left, tmp_path / "left", workers=0))
    assert (out / "clusters.parquet").read_bytes() == (tmp_path / "left/clusters.parquet").read_bytes()
    assert {row["doc_id"] for row in rows(out) if "change" not in row} >= takedown.ids
    kept_before = {row["doc_id"] for row in rows(documents)}
    kept_after = {row["doc_id"] for row in rows(tmp_path / "left/documents")}
    changes = pq.read_table(out / "changes.parquet").to_pylist()
    assert {row["doc_id"] for row in changes if row["change"] == "restored"} == kept_after - kept_before
    # A document that one taken down had replaced may itself replace another.
    gone = {row["doc_id"] for row in changes if row["change"] == "removed"}
    assert gone == kept_before - kept_after - takedown.ids
    holding = shards_of(tmp_path / "shards")
    assert len(holding) > 3
    named = {shard for shard, held in holding.items() if held & takedown.ids}
    assert set(result["shards"]) == named and len(named) > 0
    listed = pq.read_table(out / "shards.parquet").to_pylist()
    assert {(row["shard"], row["doc_id"]) for row in listed} == {
        (shard, identity) for shard, held in holding.items() for identity in held & takedown.ids
    }


def shards_of(folder: Path) -> dict[str, set[bytes]]:
    """Shard -> the documents in it, read with nothing but `tarfile` and `json`."""
    found: dict[str, set[bytes]] = {}
    for file in sorted(folder.rglob("*.tar")):
        held = found.setdefault(str(file.relative_to(folder)), set())
        with tarfile.open(file) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    content = tar.extractfile(member)
                    assert content is not None
                    held |= {bytes.fromhex(identity) for identity in json.load(content)["doc_ids"]}
    return found


@pytest.mark.slow
def test_a_takedown_killed_at_random_moments(crawls: Crawls, takedown: Takedown, tmp_path: Path) -> None:
    unbroken, expected = crawls.copy(tmp_path / "unbroken", "both"), tmp_path / "expected"
    most = Unbroken(takedown.command(unbroken, expected, workers=0), str(unbroken), str(expected)).most
    index, out = crawls.copy(tmp_path / "index", "both"), tmp_path / "out"
    before = count_of_files(index)
    killing = Killing(takedown.command(index, out), str(index), str(out))
    whole = itertools.cycle((True, False))
    killing.at([before + n for n in points(random.Random(13), most - before, 3)], lambda: next(whole))
    assert len(killing.kills) >= 2 and len(set(killing.kills)) >= 2, killing.kills
    killing.finish()
    assert difference(finished(expected), finished(out)) == []
    assert difference(finished(unbroken), finished(index)) == []
