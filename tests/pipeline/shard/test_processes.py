"""`corpusmill shard` in processes of its own: the same sha256 of every shard for any number of workers, killed or not."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from tests.e2e.cli import corpusmill
from tests.e2e.killing import CUT, Killing, Unbroken, finished, made_up, points, write_lines

pytestmark = pytest.mark.slow


def sums(out: Path) -> dict[str, str]:
    """sha256 of every tar, from the indexes."""
    found = {}
    for file in sorted(out.rglob("index.json")):
        for shard in json.loads(file.read_bytes()).get("shardlist", []):
            found[shard["url"]] = shard["sha256"]
    return found


def test_workers_and_kills_change_no_byte(made: Path, tmp_path: Path) -> None:
    crawl = tmp_path / "crawl.jsonl"
    write_lines(crawl, made_up(3), 0)

    def command(out: Path, workers: int) -> list[str]:
        return [
            "shard", str(crawl), str(out), "--id-column", "id", "--tokenizer", str(made / "shards/tokenizer.json"),
            "--workers", str(workers), "--set", CUT, "--set", "shard.format=both", "--set", "shard.block_tokens=4096",
            "--set", "shard.shard_mb=0.1",
        ]  # fmt: skip

    first, second, killed = tmp_path / "one", tmp_path / "four", tmp_path / "killed"
    most = Unbroken(command(first, 1), str(first)).most
    wanted, files = sums(first), finished(first)
    assert len(wanted) > 20
    corpusmill(*command(second, 4))
    assert sums(second) == wanted and finished(second) == files

    killing = Killing(command(killed, 2), str(killed))
    whole = itertools.cycle((True, False))
    killing.at(points(random.Random(7), most, 3), lambda: next(whole))
    killing.finish()
    assert killing.kills
    assert sums(killed) == wanted and finished(killed) == files
