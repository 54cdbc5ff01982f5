"""All kinds of bad input in one command: it does not stop, nothing is lost, everything has a reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.e2e.cli import EXAMPLES, corpusmill

GOOD = "".join(
    json.dumps({"id": f"good-{i}", "text": f"document number {i} is a good one"}) + "\n" for i in range(400)
)


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mess")
    (folder / "empty.jsonl").write_bytes(b"")
    packed = gzip.compress(GOOD.encode(), mtime=0)
    (folder / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    squeezed = zstandard.compress((GOOD * 40).encode())
    (folder / "cut.jsonl.zst").write_bytes(squeezed[: len(squeezed) - 30])
    warc = (EXAMPLES / "docs/docs.warc.gz").read_bytes()
    (folder / "cut.warc.gz").write_bytes(warc[:150_000])
    (folder / "garbage.jsonl").write_bytes(bytes(range(256)) * 4000)
    pq.write_table(pa.table({"txet": ["a", "b"]}), folder / "schema.parquet")
    (folder / "utf8.jsonl").write_bytes(
        b'{"id": "fine", "text": "fine"}\n{"id": "bad", "text": "\xff\xfe\x81\xff"}\n'
    )
    (folder / "long.jsonl").write_bytes(
        b'{"id": "huge", "text": "'
        + b"x" * 50_000_000
        + b'"}\n{"id": "after", "text": "after the long line"}\n'
    )
    (folder / "utf8.txt").write_bytes(b"plain text with \xe9 in latin-1, and quite some more of it\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    return folder


def test_bad_input_is_quarantined_and_counted(mess: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = json.loads(corpusmill("ingest", mess, out, "--workers", "0", "--json").stdout)
    counts = result["stages"]["ingest"]["counts"]
    rows = [row for f in sorted((out / "ledger").glob("*.parquet")) for row in pq.read_table(f).to_pylist()]
    assert len(rows) == counts["docs_in"] == counts["kept"] + counts["removed"] + counts["quarantined"]
    bad: dict[str, set[str]] = {}
    for row in rows:
        if row["outcome"] == "quarantined":
            assert row["rule"].startswith("ingest.") and row["detail"], row
            bad.setdefault(row["locator"].split("#")[0].rsplit("/", 1)[-1], set()).add(row["rule"])
    assert {
        "empty.jsonl", "cut.jsonl.gz", "cut.jsonl.zst", "cut.warc.gz", "garbage.jsonl", "schema.parquet", "utf8.jsonl",
        "long.jsonl", "picture.png",
    } <= set(bad), bad  # fmt: skip
    kept = {row["source_id"] for row in rows if row["outcome"] == "kept"}
    assert {"fine", "after", "good-0", "good-10"} <= kept
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


def test_a_missing_path_names_it(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text(GOOD)
    result = corpusmill("ingest", tmp_path / "dosc.jsonl", tmp_path / "out", check=False)
    assert result.returncode == 2
    assert "dosc.jsonl" in result.stderr and "docs.jsonl" in result.stderr, "the nearest name is offered"
    assert not (tmp_path / "out").exists()
