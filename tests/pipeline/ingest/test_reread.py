"""Records read once more are those that ingest reads, whatever lies before them in their file."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.ingest.readers import read_file
from corpusmill.pipeline.ingest.readers.archive_records import ArchiveRecord
from corpusmill.pipeline.ingest.readers.warc import response
from corpusmill.pipeline.ingest.records import Document, Reading, Rejected
from corpusmill.pipeline.ingest.reread import RawFile, find_file
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import one_by_one
from tests.pipeline.ingest.test_archives import record

LINES = [
    b' \t{"text": "first"}', b"", b"   ", b"not json", b'{"text": "' + b"long" * 300 + b'"}', b"[1]", b'{"text": 7}',
    b'{"text": "caf\xc3\xa9"}\r', b"{}", b'  {"other": 1, "text": "last"}',
]  # fmt: skip
PARAMS = IngestParams(max_record_mb=1000 / (1 << 20))


@pytest.mark.parametrize(
    "start", [b"", codecs.BOM_UTF8, b" " + codecs.BOM_UTF8 + b" ", codecs.BOM_UTF8 + b"\n"]
)
def test_a_line_is_the_record_of_its_number(tmp_path: Path, start: bytes) -> None:
    """Empty lines are not counted; lines that are too long, or not objects, are records."""
    data = start + b"\n".join(LINES)
    (tmp_path / "a.jsonl").write_bytes(data)
    source = Source(paths=[str(tmp_path)])
    (file,) = discover("s", source)
    records = [e for e in one_by_one(read_file(Reading(file, source, PARAMS))) if isinstance(e, Document)]
    assert [event.text for event in records] == ["first", "café", "last"]
    raw = RawFile(file, source, PARAMS)
    for event in records:
        line = raw.line(event.record)
        assert line is not None and line.value["text"] == event.text == raw.text(event.record)
        assert data[line.offset :].startswith(line.data) and line.data.startswith(b"{")
        assert data[: line.offset].count(b"\n") == line.number
    assert raw.line("99") is None and raw.text("99") is None


def test_of_a_web_archive_one_page_is_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.warc").write_bytes(b"".join(record(n) for n in (0, 1, 0, 2)))  # one id twice
    source = Source(paths=[str(tmp_path)])
    (file,) = discover("s", source)
    raw, asked = RawFile(file, source, PARAMS), list[str]()

    def counted(found: ArchiveRecord, reading: Reading) -> Document | Rejected:
        asked.append(found.name)
        return response(found, reading)

    texts = {
        e.record: e.text
        for e in one_by_one(read_file(Reading(file, source, PARAMS)))
        if isinstance(e, Document)
    }
    monkeypatch.setattr("corpusmill.pipeline.ingest.readers.warc.response", counted)
    assert list(texts) == ["id-0", "id-1", "id-0~2", "id-2"]
    assert {name: raw.text(name) for name in texts} == texts and asked == list(texts)
    assert raw.text("id-3") is None


def test_files_are_found_by_the_names_that_ingest_gave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders, files and globs; two files of one name differ by the folders above them."""
    for name in ("one/a.txt", "one/deep/b.txt", "two/a.txt", "three/a.txt", "three/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    source = Source(paths=[str(tmp_path / path) for path in ("one", "two/a.txt", "three/*.txt")])
    files = discover("s", source)
    assert [file.path for file in files] == ["a.txt", "deep/b.txt", "three/a.txt", "two/a.txt"]
    for file in files:
        assert find_file("s", source, file.path) == file
    for gone in ("c.md", "b.txt", "three", "no/a.txt"):
        assert find_file("s", source, gone) is None
    monkeypatch.delattr("corpusmill.pipeline.ingest.reread.find_inputs")  # of these no folder is listed
    for file in files[:2]:
        assert find_file("s", source, file.path) == file
