"""Any bytes under any name: no exception, every record accounted for, the same twice."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench import _fuzz_check, _fuzz_mutants
from bench._fuzz_formats import FORMATS
from tests.pipeline.ingest.helpers import ingest

WARC = (
    b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Target-URI: http://x/\r\n"
    b"Content-Type: application/http\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
)
HTTP = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Some text that is long enough.</p>"
)
PAGE = WARC % (len(HTTP), HTTP)
WIKI = (
    b"<mediawiki><siteinfo><base>http://w/Main</base></siteinfo><page><title>A</title><ns>0</ns><id>1</id><revision>"
    b"<text>'''Bold''' [[link|text]] {{template}}</text></revision></page></mediawiki>"
)
SEEDS = [
    PAGE + PAGE,
    WIKI,
    b'{"text": "a"}\n{"text": "b"}\n',
    b"<html><body><p>text</p></body></html>",
    b"plain \xe9t\xe9",
]
NAMES = [
    "jsonl",
    "txt",
    "html",
    "warc",
    "wet",
    "xml",
    "xml.bz2",
    "jsonl.gz",
    "parquet",
    "md",
    "jsonl.zst",
    "warc.gz",
    "bin",
]


@st.composite
def broken_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """Noise, or something real with pieces cut out, doubled, flipped, perhaps compressed and broken again."""
    data = draw(st.one_of(st.binary(max_size=400), st.sampled_from(SEEDS)))
    pack = draw(st.sampled_from([bytes, gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress]))
    for stage in range(2):
        for _ in range(draw(st.integers(0, 3))):
            if not data:
                break
            at = draw(st.integers(0, len(data) - 1))
            kind = draw(st.sampled_from(["cut", "drop", "double", "flip", "insert"]))
            if kind == "cut":
                data = data[:at]
            elif kind == "drop":
                data = data[:at] + data[at + draw(st.integers(1, 30)) :]
            elif kind == "double":
                data = data[:at] + data[max(0, at - 20) : at] * draw(st.integers(1, 4)) + data[at:]
            elif kind == "flip":
                data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
            else:
                data = data[:at] + draw(st.binary(max_size=20)) + data[at:]
        if not stage:
            data = pack(data)
    return draw(st.sampled_from(NAMES)), data


@settings(max_examples=400)
@given(broken_files())
@example(("xml.bz2", bz2.compress(WIKI)[:-7]))
@example(("warc", PAGE[:-20]))
@example(("warc", PAGE + PAGE.replace(b"uuid:1", b"uuid:1~0") + PAGE[:-60]))
@example(("warc", b"WARC/1.0\r\nContent-Length: 99999999999999999999999\r\n\r\n"))
@example(("warc", b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: -5\r\n\r\nabc"))
@example(("html", b'<meta charset="utf-7">+ADw-p+AD4-\xff'))
@example(("html", b'<meta charset="zlib_codec">x'))
@example(("xml", b'<!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><mediawiki>&b;</mediawiki>'))
@example(("txt", b"\xff\xfea\x00b"))
@example(("txt", b"\x00" * 50))
@example(("jsonl", '{"text": "UTF-16"}\n'.encode("utf-16")))
@example(("jsonl", b"\xff\xfe{\x00"))
@example(("parquet", b"PAR1\x00\x00\x00\x00PAR1"))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]) -> None:
    name, data = file
    path = tmp_path_factory.getbasetemp() / f"fuzz.{name}"
    path.write_bytes(data)
    result = ingest(path)  # checks conservation, schemas, ids
    again = ingest(path, params={"partition_mb": 0.00002})
    assert result.docs == again.docs and result.counters["records"] == again.counters["records"]
    assert sorted(row["doc_id"] for row in result.decisions) == sorted(
        row["doc_id"] for row in again.decisions
    )
    # The net under unexpected exceptions of libraries is not what bad data should fall into.
    assert "ingest.unreadable" not in result.rules
    if not result.docs and not result.decisions:
        assert (
            any(counter.startswith("skipped/") for counter in result.counters)
            or b"mediawiki" in data
            or name[:3] == "xml"
        )


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.text(max_size=50), st.none(), st.integers()), max_size=12),
    st.sampled_from([1, 3, 100]),
)
def test_record_count_of_a_jsonl_file_is_that_of_its_lines(
    tmp_path_factory: pytest.TempPathFactory, texts: list[object], min_chars: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "count.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    if not texts:
        return
    result = ingest(path, params={"min_chars": min_chars})
    assert result.counters["records"] == len(texts)
    numbers = sorted(int(row["locator"].partition("#")[2]) for row in [*result.docs, *result.decisions])
    assert numbers == list(range(len(texts)))


SEED = int(os.environ.get("CORPUSMILL_FUZZ_SEED", "1"))


def _fuzzed(name: str, numbers: range, folder: Path) -> None:
    """Mutants of the fuzz bench (`python -m bench fuzz`); the message of a failure has the command that repeats it."""
    for number in numbers:
        wrong, _, _ = _fuzz_check.faults(_fuzz_mutants.make(name, SEED, number), folder)
        assert not wrong, f"python -m bench fuzz --seed {SEED} --format {name} --only {number}: {wrong}"


@pytest.mark.parametrize("name", FORMATS)
def test_some_mutants_of_each_format(tmp_path: Path, name: str) -> None:
    _fuzzed(name, range(20), tmp_path)


DEAR = {"pdf": 100, "docx": 100}  # of these a mutant costs twenty times as much as of the others


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_hundreds_of_mutants_of_each_format(tmp_path: Path, name: str) -> None:
    """Another seed: CORPUSMILL_FUZZ_SEED. The first 20 are those of the test above."""
    _fuzzed(name, range(20, DEAR.get(name, 320)), tmp_path)
