"""The quick start's corpus agrees with its README and its labels."""

from __future__ import annotations

import bz2
import gzip
import io
import ipaddress
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard
from fastwarc.warc import ArchiveIterator, WarcRecordType
from stdnum import iban, luhn

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "corpus"
SOURCES = CORPUS / "sources"
DISC_LIMIT = 8_500_000


def jsonl(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.fixture(scope="module")
def labels() -> dict[str, Any]:
    return json.loads((CORPUS / "labels.json").read_bytes())


@pytest.fixture(scope="module")
def planted() -> dict[str, dict[str, Any]]:
    records = jsonl(gzip.decompress((SOURCES / "planted/planted.jsonl.gz").read_bytes()))
    by_id = {r["id"]: r for r in records}
    assert len(by_id) == len(records)
    return by_id


@pytest.fixture(scope="module")
def originals() -> dict[str, str]:
    """Every document whose text is stable, by `source/id`."""
    books = SOURCES / "books"
    found = {f"books/{p.relative_to(books).as_posix()}": p.read_text("utf-8") for p in books.rglob("*.txt")}
    speeches = jsonl(gzip.decompress((SOURCES / "speeches/sotu.jsonl.gz").read_bytes()))
    faq = zstandard.ZstdDecompressor().decompressobj().decompress((SOURCES / "qa/faq.jsonl.zst").read_bytes())
    for source, records in (("speeches", speeches), ("qa", jsonl(faq))):
        assert len({r["id"] for r in records}) == len(records)
        found |= {f"{source}/{r['id']}": r["text"] for r in records}
    return found


def test_the_size_stays_within_what_a_clone_can_bear() -> None:
    files = [p for p in CORPUS.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert 5_000_000 < sum(p.stat().st_size for p in files) < DISC_LIMIT


def test_wiki_streams_until_it_breaks_off() -> None:
    xml = bz2.decompress((SOURCES / "wiki/enwiki.xml.bz2").read_bytes())
    pages, size = 0, 0
    with pytest.raises(ET.ParseError):
        for _, element in ET.iterparse(io.BytesIO(xml)):
            if element.tag.endswith("}page"):
                pages += 1
                size += len(element.findtext(".//{*}text") or "")
    assert pages == 131
    assert size > 2_000_000


def test_books_and_speeches_and_questions_hold_text(originals: dict[str, str]) -> None:
    sizes = {
        s: sum(len(t) for k, t in originals.items() if k.startswith(s)) for s in ("books", "speeches", "qa")
    }
    assert sizes["books"] > 1_500_000 and sizes["speeches"] > 3_000_000 and sizes["qa"] > 500_000
    assert all(t == t.strip() and len(t.split()) >= 10 for t in originals.values())


def test_code_is_a_table_of_files_under_one_licence() -> None:
    table = pq.read_table(SOURCES / "code/stdlib.parquet")
    assert table.column_names == ["path", "content", "license"]
    assert set(table["license"].to_pylist()) == {"PSF-2.0"}
    paths = table["path"].to_pylist()
    assert len(set(paths)) == len(paths) >= 100
    for path, content in zip(paths, table["content"].to_pylist(), strict=True):
        compile(content, path, "exec", dont_inherit=True)


def test_warc_reads_without_loss(labels: dict[str, Any]) -> None:
    path = SOURCES / "docs/docs.warc.gz"
    # One gzip member a record: every member's plain text starts a record.
    with path.open("rb") as f:
        records = list(ArchiveIterator(f, WarcRecordType.any_type, parse_http=False, verify_digests=False))
        kinds = [r.record_type for r in records]
    with path.open("rb") as f:
        verified = sum(
            1 for _ in ArchiveIterator(f, WarcRecordType.any_type, parse_http=False, verify_digests=True)
        )
    assert verified == len(kinds)
    assert gzip.decompress(path.read_bytes()).count(b"WARC/1.1\r\nWARC-Type: ") == len(kinds)
    pages = 0
    ids, seen = set(), []
    with path.open("rb") as f:
        for record in ArchiveIterator(f, WarcRecordType.any_type, auto_decode="all"):
            ids.add(record.record_id)
            assert record.record_date is not None and record.record_date.year == 2024
            if record.record_type != WarcRecordType.response:
                continue
            body = record.reader.read()
            if record.http_headers.status_code == 200 and (record.http_content_type or "") == "text/html":
                pages += 1
                seen.append(record.headers["WARC-Target-URI"])
                assert b"<html" in body[:600].lower()
    assert len(ids) == len(kinds)
    assert pages == 453
    assert len(seen) - len(set(seen)) == len(labels["docs"]["fetched_twice"]) == 3


def test_pages_are_encoded_as_labelled(labels: dict[str, Any]) -> None:
    wanted = {e["page"]: e for e in labels["docs"]["encodings"]}
    with (SOURCES / "docs/docs.warc.gz").open("rb") as f:
        for record in ArchiveIterator(f, WarcRecordType.response):
            url = record.headers["WARC-Target-URI"]
            page = url.removeprefix("https://debian-handbook.info/browse/")
            # The second fetch of a page is encoded as the first.
            if page not in wanted:
                continue
            charset = re.search(r"charset=(\S+)", record.http_headers.get("Content-Type", ""))
            body = record.reader.read()
            label = wanted[page]
            assert (charset[1] if charset else None) == label["header_says"]
            body.decode(label["bytes_are"])
            if label["bytes_are"] != "utf-8" and not page.startswith("en-US"):
                with pytest.raises(UnicodeDecodeError):
                    body.decode("utf-8")
            meta = re.search(rb'content="text/html; charset=([^"]+)"', body)
            assert (meta[1].decode() if meta else None) == label["meta_says"]
            label["seen"] = True
    assert all(e.get("seen") for e in wanted.values())


def jaccard5(a: str, b: str) -> float:
    """Written again here, so that the maker's measure is checked against another one."""
    grams = []
    for text in (a, b):
        w = re.findall(r"\w+", text.lower())
        grams.append({" ".join(w[i : i + 5]) for i in range(len(w) - 4)})
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def test_copies_are_copies(planted: dict[str, Any], originals: dict[str, str]) -> None:
    exact = [r for r in planted.values() if r["planted"]["kind"] == "exact_copy"]
    assert all(r["text"] == originals[r["planted"]["of"]] for r in exact)
    near = [r for r in planted.values() if r["planted"]["kind"] == "near_copy"]
    measured = [jaccard5(r["text"], originals[r["planted"]["of"]]) for r in near]
    assert [round(j, 6) for j in measured] == [r["planted"]["jaccard5"] for r in near]
    assert 0.5 < min(measured) < 0.6 and 0.95 < max(measured) < 1
    of = [r["planted"]["of"] for r in (*exact, *near)]
    assert len(of) == len(set(of)), "an original copied twice"


def test_spans_reproduce_their_values(planted: dict[str, Any], labels: dict[str, Any]) -> None:
    checked = 0
    for id_, label in labels["documents"].items():
        text = planted[id_]["text"]
        for key in ("spans", "lookalikes"):
            travelling = planted[id_]["planted"].get(key, [])
            assert len(travelling) == len(label.get(key, []))
            for span, other in zip(label.get(key, []), travelling, strict=True):
                value = text[span["start"] : span["end"]]
                assert span.get("value", value) == value
                assert span["value_hash"] == other["value_hash"] == sha256(value.encode()).hexdigest()
                assert "value" not in other, "a value must not travel in metadata"
                assert "value" not in span or "secret" not in (span.get("kind"), span.get("resembles"))
                checked += 1
        for span in label.get("garbled", []):
            assert text[span["start"] : span["end"]] == span["value"]
    assert checked == sum(labels["spans"].values()) + sum(labels["lookalikes"].values()) > 200


def test_personal_data_passes_its_validators(planted: dict[str, Any]) -> None:
    for r in planted.values():
        for span in r["planted"].get("spans", ()):
            value = r["text"][span["start"] : span["end"]]
            if span["kind"] == "card":
                assert luhn.is_valid(re.sub(r"\D", "", value)), value
            elif span["kind"] == "iban":
                assert iban.is_valid(value), value
            elif span["kind"] == "ip":
                assert ipaddress.ip_address(value).is_global, value
            elif span["kind"] == "email":
                assert re.search(r"@[a-z-]+\.example\.(com|org|net)$", value), value


def test_labels_agree_with_the_files(planted: dict[str, Any], labels: dict[str, Any]) -> None:
    assert labels["total"] == len(planted)
    assert set(labels["documents"]) == set(planted)
    for kind, summary in labels["kinds"].items():
        ids = sorted(i for i, r in planted.items() if r["planted"]["kind"] == kind)
        assert summary["ids"] == ids and summary["count"] == len(ids)
        assert {planted[i]["planted"]["expected"] for i in ids} == {summary["expected"]}
    assert sum(labels["near_copies_by_jaccard5"].values()) == labels["kinds"]["near_copy"]["count"]


def test_broken_lines_are_broken(labels: dict[str, Any]) -> None:
    lines = (SOURCES / "planted/broken.jsonl").read_bytes().splitlines()
    assert len(lines) == len(labels["broken"]["lines"])
    assert labels["broken"]["quarantine"] + labels["broken"]["keep"] == len(lines)
    for line, label in zip(lines, labels["broken"]["lines"], strict=True):
        assert why_broken(line) == label["reason"], line


def why_broken(line: bytes) -> str:
    try:
        record = json.loads(line.decode("utf-8"))
        json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair is JSON, but no text
    except UnicodeDecodeError:
        return "invalid_utf8"
    except (json.JSONDecodeError, UnicodeEncodeError):
        return "invalid_json"
    if not isinstance(record, dict):
        return "not_an_object"
    if not isinstance(record.get("text"), str):
        return "no_text"
    return "good" if record["text"].strip() else "empty_text"


def test_the_planted_set_is_made_again_to_the_byte(tmp_path: Path) -> None:
    command = [sys.executable, str(CORPUS / "build.py"), "--planted", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    for name in ("labels.json", "sources/planted/broken.jsonl"):
        assert (tmp_path / name).read_bytes() == (CORPUS / name).read_bytes(), name
    # Inside the gzip: another zlib may pack the same text into other bytes.
    name = "sources/planted/planted.jsonl.gz"
    assert gzip.decompress((tmp_path / name).read_bytes()) == gzip.decompress((CORPUS / name).read_bytes())


def test_the_readme_names_every_source_with_its_licence() -> None:
    readme = (CORPUS / "README.md").read_text("utf-8")
    rows = {m[1]: m[0] for m in re.finditer(r"(?m)^\| `(\w+)/[^|]*\|.*$", readme)}
    assert set(rows) == {p.name for p in SOURCES.iterdir()}
    for licence in (CORPUS / "LICENSES").iterdir():
        assert licence.name in readme, f"README.md does not say what {licence.name} is for"
    for name, row in rows.items():
        assert re.search(r"CC-BY-SA|[Pp]ublic domain|PSF-2\.0|Artistic|Apache-2\.0", row), name
