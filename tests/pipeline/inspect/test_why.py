"""`corpusmill why` for an id that many documents share."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from corpusmill.__main__ import build
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.inspect.why import SHOWN, explain_all, why
from corpusmill.schemas.manifest import MANIFEST, Counts, StageManifest
from corpusmill.schemas.tables import ID, LEDGER
from tests.command_line import CliRunner


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    """Two partitions of 12 documents with the id `a`, and one with the id `b`; a signal of each."""
    folder = Folder(tmp_path / "run")
    for part in range(2):
        rows = [
            {
                "doc_id": bytes([part, row]) * 8, "source": f"s{part}", "source_id": "b" if row == 12 else "a",
                "locator": f"f{part}.jsonl#{row}", "outcome": "kept", "stage": "ingest", "text_bytes": 5,
            }
            for row in range(13)
        ]  # fmt: skip
        publish_table(folder, f"ledger/{part}.parquet", pa.Table.from_pylist(rows, schema=LEDGER))
        signals = pa.table(
            {
                "doc_id": pa.array([row["doc_id"] for row in rows], ID),
                "words": list(range(13 * part, 13 * part + 13)),
            }
        )
        publish_table(folder, f"filter/signals/{part}.parquet", signals)
    return folder


def test_every_document_with_its_own_signals(run: Folder) -> None:
    rows = why(run, "a")
    assert [row["signals"]["words"] for row in rows] == [*range(12), *range(13, 25)]
    (one,) = why(run, "f1.jsonl#3")
    assert one["signals"] == {"words": 16} and why(run, one["doc_id"]) == [one]


def test_the_first_ten_are_shown_and_the_rest_counted(run: Folder) -> None:
    result = CliRunner().invoke(build(), ["why", "a", "--run", run.url])
    *_, last = lines = result.output.splitlines()
    assert sum(line.startswith("00") and "f0.jsonl#" in line for line in lines) == SHOWN == 10
    assert last == (
        "and 14 more documents with the id a, of s0, s1; give the doc_id or the locator (in the first line of each) for one"
        " of them, --json for all"
    )
    shown = CliRunner().invoke(build(), ["why", "b", "--run", run.url]).output
    assert "more documents" not in shown and shown.count("own id      b") == 2
    found = json.loads(CliRunner().invoke(build(), ["why", "a", "--run", run.url, "--json"]).output)
    assert len(found) == 24


def test_an_id_with_control_characters_is_spelled(run: Folder) -> None:
    assert "the id \\x1b[2J, of" in explain_all(why(run, "a"), "\x1b[2J")


@pytest.mark.parametrize(
    ("params", "compared"),
    [
        ({"preset": "code", "shingle": "word", "ngram": 8}, "runs of 8 tokens without comments"),
        ({"preset": "short", "shingle": "char", "ngram": 3}, "runs of 3 characters inside words"),
        ({"preset": "corpusmill", "shingle": "word", "ngram": 5}, "runs of 5 words"),
        (None, None),
    ],
)
def test_a_near_duplicate_says_what_was_compared(
    tmp_path: Path, params: dict[str, object] | None, compared: str | None
) -> None:
    folder = Folder(tmp_path / "run")
    row = {
        "doc_id": bytes(16), "source": "s", "locator": "f#0", "outcome": "removed", "stage": "dedup", "rule": "dedup.minhash",
        "duplicate_of": bytes([1]) * 16, "jaccard": 0.75, "text_bytes": 5,
    }  # fmt: skip
    publish_table(folder, "ledger/0.parquet", pa.Table.from_pylist([row], schema=LEDGER))
    if params is not None:
        counts = {"docs_in": 2, "kept": 1, "removed": 1}
        manifest = StageManifest(
            stage="dedup",
            version="1",
            key="k",
            params=params,
            inputs={},
            partitions=[],
            counts=Counts(**counts),
            files=[],
        )
        (folder / "dedup" / MANIFEST).write(manifest.model_dump_json().encode())
    (found,) = why(folder, "f#0")
    assert compared is None or found["compared"].startswith(compared)
    lines = [line for line in explain_all([found], "f#0").split("\n") if line.startswith("  compared    ")]
    assert lines == ([f"  compared    {found['compared']}"] if compared else [])
