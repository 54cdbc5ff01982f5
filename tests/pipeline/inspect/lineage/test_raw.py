"""Characters as bytes of their source, in every format and encoding: each span holds its character and nothing else."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.lineage.edits import Piece
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.raw import Raw, edges_in, read_raw
from corpusmill.pipeline.inspect.lineage.run import Row, RunPlaces
from corpusmill.pipeline.inspect.lineage.shards import Shards
from corpusmill.pipeline.inspect.lineage.show import found_in_words
from tests.command_line import CliRunner
from tests.pipeline.inspect.lineage.source import content

TEXT = "Die Straße ist schön – und länger als “andere” Straßen in der Nähe, sagen viele Leute hier.\nÉté à la plage.\n"
WIDE = TEXT + "日本語 😀 привет\n"
ENCODED = {
    "plain.txt": WIDE.encode(), "bom.txt": WIDE.encode("utf-8-sig"), "sixteen.txt": WIDE.encode("utf-16"),
    "big.txt": b"\xfe\xff" + WIDE.encode("utf-16-be"), "windows.txt": TEXT.encode("cp1252"), "notes.md": WIDE.encode(),
    "lines.txt": WIDE.replace("\n", "\r\n").encode(), "controls.txt": WIDE.replace(" ", " \x07", 3).encode(),
    "packed.txt.gz": gzip.compress(WIDE.encode(), mtime=0),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunPlaces:
    folder = tmp_path_factory.mktemp("raw")
    source = folder / "in"
    source.mkdir()
    for name, data in ENCODED.items():
        (source / name).write_bytes(data)
    (source / "mended.txt").write_bytes(
        "First line.\nhier ist es schÃ¶n und gut, Ã¼berall\nlast line\n".encode()
    )
    records: list[Any] = [{"id": i, "text": f"{i} {WIDE}", "n": [1, {"text": "x"}]} for i in range(4)]
    escaped = [json.dumps(record, ensure_ascii=i % 2 == 0) for i, record in enumerate(records)]
    (source / "a.jsonl").write_bytes(
        b"\xef\xbb\xbf" + f"{escaped[0]}\n\n  {escaped[1]}\nnot json\n{escaped[2]}".encode()
    )
    (source / "b.jsonl").write_bytes("\n".join(escaped[2:]).encode("utf-16"))
    (source / "c.jsonl").write_bytes(escaped[1].encode("cp1252", "replace"))
    table = pa.table({"text": ["one", None, WIDE, "x" * 9], "id": ["a", "b", "c", "d"]})
    pq.write_table(table, source / "d.parquet", row_group_size=2)
    (source / "f.csv").write_text(f'id,text\n1,"{TEXT.replace(chr(34), chr(34) * 2)}"\n')
    (source / "g.json").write_text(json.dumps(records, indent=1))
    pyarrow.feather.write_feather(table.select(["text"]), source / "h.arrow")
    http = f"HTTP/1.1 200 OK\nContent-Type: text/plain\n\n{TEXT}".encode()
    (source / "i.arc").write_bytes(
        b"http://x/ 10.0.0.1 20080430204825 text/plain %d\n%s\n" % (len(http), http)
    )
    (source / "e.html").write_text(f"<html><body><main><p>{TEXT * 9}</p></main></body></html>")
    result = CliRunner().invoke(
        build(), ["ingest", str(source), str(folder / "out"), "--workers", "0", "-q"], catch_exceptions=False
    )
    assert result.exit_code == 0
    return RunPlaces(str(folder / "out"), lambda line: None)


def raw_of(run: RunPlaces, locator: str) -> tuple[Row, str, Raw]:
    (row,) = run.rows(locator)
    text = run.text("ingest", row)
    assert text is not None
    return row, text, read_raw(run, row)


@pytest.mark.parametrize("name", ENCODED)
def test_files_of_text(run: RunPlaces, name: str) -> None:
    _, text, raw = raw_of(run, f"{name}#0")
    encoding = raw.note.split(" ")[0].rstrip(";")
    data = content(raw.file)
    assert raw.state == "equal" and text in (TEXT, WIDE)
    assert ("gzip undone" in raw.note) == name.endswith(".gz")
    for i, char in enumerate(text):
        (span,) = raw.spans([Piece(i, i + 1, i, i + 1)])
        part = data[span.start : span.end].decode(encoding)
        assert (span.exact and part == char) or (
            char == "\n" and part in ("\n", "\r\n") and name == "lines.txt"
        )
    whole = raw.spans([Piece(0, len(text), 0, len(text))])
    kept = b"".join(data[span.start : span.end] for span in whole).decode(encoding)
    assert kept == text
    assert [span.start for span in whole] == sorted(span.start for span in whole)


def test_mojibake_is_reported_and_the_rest_is_exact(run: RunPlaces) -> None:
    _, text, raw = raw_of(run, "mended.txt#0")
    assert raw.state == "equal" and "schön und gut, überall" in text
    assert raw.mended is not None and [edit.kinds for edit in raw.mended.edits] == [("mojibake",)]
    data, exact = content(raw.file), 0
    for i, char in enumerate(text):
        (span,) = raw.spans([Piece(i, i + 1, i, i + 1)])
        exact += span.exact
        assert not span.exact or data[span.start : span.end].decode() == char
    assert len(text) > exact > len(text) - 20


@pytest.mark.parametrize(("locator", "line"), [("a.jsonl#0", 0), ("a.jsonl#1", 2), ("a.jsonl#3", 4)])
def test_lines_of_json(run: RunPlaces, locator: str, line: int) -> None:
    _, text, raw = raw_of(run, locator)
    data = content(raw.file)
    assert f"(line {line + 1}, field 'text')" in raw.unit
    start = sum(len(part) + 1 for part in data.split(b"\n")[:line])
    for i, char in enumerate(text):
        (span,) = raw.spans([Piece(i, i + 1, i, i + 1)])
        assert span.exact and span.start > start
        assert json.loads(b'"' + data[span.start : span.end] + b'"') == char


@pytest.mark.parametrize(
    ("locator", "message"),
    [
        ("b.jsonl#0", "mended"),
        ("c.jsonl#0", "mended"),
        ("e.html#0", "main_text"),
        ("f.csv#0", "quotes"),
        ("g.json#2", "escapes"),
        ("i.arc#0", "payload"),
    ],
)
def test_records_without_bytes_to_tell(run: RunPlaces, locator: str, message: str) -> None:
    _, text, raw = raw_of(run, locator)
    assert (
        raw.state == "equal" and message in raw.note and raw.spans([Piece(0, len(text), 0, len(text))]) == []
    )


@pytest.mark.parametrize("name", ["d.parquet", "h.arrow"])
@pytest.mark.parametrize(("row", "text"), [(0, "one"), (2, WIDE), (3, "x" * 9)])
def test_rows_of_tables(run: RunPlaces, name: str, row: int, text: str) -> None:
    _, found, raw = raw_of(run, f"{name}#{row}")
    assert found == text and f"row {row}, column 'text'" in raw.unit
    for i, char in enumerate(text):
        (span,) = raw.spans([Piece(i, i + 1, i, i + 1)])
        assert span.exact and text.encode()[span.start : span.end].decode() == char


def test_rows_by_all_that_names_them(run: RunPlaces) -> None:
    (row,) = run.rows("plain.txt#0")
    assert run.rows(row.doc_id.hex()) == [row] and run.row(row.doc_id) == row
    assert {found.values["locator"] for found in run.rows("2")} == {"a.jsonl#3", "b.jsonl#0", "g.json#2"}
    (quarantined,) = run.rows("a.jsonl#2")
    assert quarantined.values["outcome"] == "quarantined" and run.text("ingest", quarantined) is None
    assert run.rows("nobody") == [] and run.row(b"\x00" * 16) is None
    with pytest.raises(UserError, match="no shards there: its stages are ingest"):
        _ = run.shards


def test_few_tables_are_held(run: RunPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.inspect.lineage.run._HELD", 2)
    monkeypatch.setattr(run, "_tables", {})
    for locator in ("plain.txt#0", "d.parquet#0"):
        raw_of(run, locator)  # the ledger, the texts, their hashes
        assert len(run._tables) == 2


def test_a_document_that_was_not_kept_has_no_tokens(run: RunPlaces) -> None:
    """The reason is given, and no shard is read."""
    (found,) = Finder(Shards(Folder("no/shards")), run).find("a.jsonl#2")
    output = found_in_words(found)
    assert (
        found.places == []
        and "no tokens   quarantined at ingest by ingest." in output
        and "a.jsonl#2" in output
    )


def test_encodings_that_do_not_give_the_bytes_back() -> None:
    assert edges_in("é", "utf-8", "é".encode()) is not None
    assert edges_in("é", "utf-8", b"e") is None and edges_in("日", "cp1252", b"x") is None
    assert edges_in("日", "no such", b"x") is None
    found = edges_in("a日b", "shift_jis", "a日b".encode("shift_jis"))
    assert found is not None and found.tolist() == [0, 1, 3, 4]
