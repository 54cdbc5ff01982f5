"""Web archives: real ones read completely, broken ones accounted for where other readers end silently."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.pipeline.ingest.helpers import ingest

BODY = (
    "<html><head><title>Page {0}</title></head><body><p>This is the text of page {0}, " + "long enough. " * 40
)


def record(
    n: int,
    status: str = "200 OK",
    kind: str = "text/html; charset=utf-8",
    body: bytes | None = None,
    headers: str = "",
    type_: str = "response",
    name: str | None = None,
) -> bytes:
    body = BODY.format(n).encode() if body is None else body
    http = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}\r\n".encode() + body
    identity = f"WARC-Record-ID: <urn:uuid:{name or f'id-{n}'}>\r\n"
    head = (
        f"WARC/1.0\r\nWARC-Type: {type_}\r\n{identity}WARC-Target-URI: http://x/{n}\r\n"
        f"WARC-Date: 2020-01-0{n % 9 + 1}T00:00:00Z\r\nContent-Type: application/http; msgtype={type_}\r\n"
        f"Content-Length: {len(http)}\r\n\r\n"
    )
    return head.encode() + http + b"\r\n\r\n"


def test_identity_and_fields(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"".join(gzip.compress(record(n)) for n in range(3)))
    result = ingest(tmp_path)
    assert result.locators() == ["a.warc.gz#id-0", "a.warc.gz#id-1", "a.warc.gz#id-2"]
    doc = result.docs[1]
    assert (doc["url"], doc["date"], doc["metadata"]) == (
        "http://x/1",
        "2020-01-02T00:00:00Z",
        '{"title":"Page 1"}',
    )
    assert doc["text"].startswith("This is the text of page 1")


def test_what_is_no_page_is_removed_by_rule(tmp_path: Path) -> None:
    records = [
        record(0),
        record(1, "404 Not Found"),
        record(2, kind="image/png", body=b"\x89PNG"),
        record(3, kind="application/xhtml+xml"),
        record(4, kind="text/plain", body=b"plain text"),
        record(5, "301 Moved"),
        record(6, type_="request"),
        record(7, type_="metadata"),
        record(0),
        record(9, body=b""),
        record(
            10,
            kind="text/html",
            headers="Content-Encoding: gzip\r\n",
            body=gzip.compress(BODY.format(10).encode()),
        ),
        record(11, kind="text/html", headers="Content-Encoding: gzip\r\n"),  # declared as gzip, and is not
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    result = ingest(tmp_path)
    names = ["id-0", "id-3", "id-4", "id-0~6", "id-10", "id-11"]
    assert result.locators() == [f"a.warc#{name}" for name in names]
    assert {row["locator"][7:]: (row["outcome"], row["rule"]) for row in result.decisions} == {
        "id-1": ("removed", "ingest.http_status"),
        "id-2": ("removed", "ingest.content_type"),
        "id-5": ("removed", "ingest.http_status"),
        "id-9": ("quarantined", "ingest.empty_text"),
    }
    assert (result.counters["skipped/request"], result.counters["skipped/metadata"]) == (1, 1)
    assert result.counters["http_encoding_ignored"] == 1
    assert result.counters["removed/ingest.http_status"] == 2
    assert [row["value"] for row in result.decisions if row["rule"] == "ingest.http_status"] == [404.0, 301.0]


def test_every_cut_of_a_warc_is_noticed(tmp_path: Path) -> None:
    whole = [record(n, body=b"<p>Some text here.</p>") for n in range(3)]
    data = b"".join(whole)
    starts = [0, len(whole[0]), len(whole[0] + whole[1]), len(data)]
    for cut in range(1, len(data) - 4, 13):
        (tmp_path / "a.warc").write_bytes(data[:cut])
        result = ingest(tmp_path)
        complete = sum(1 for start in starts[1:] if start - 4 <= cut)
        assert len(result.docs) == complete, cut
        if cut not in starts and not any(start - 4 <= cut <= start for start in starts):
            assert len(result.decisions) == 1, cut
            assert result.rules[0] in ("ingest.truncated", "ingest.damaged", "ingest.not_warc"), cut


@pytest.mark.parametrize("compressed", [False, True])
def test_truncated_real_archive(tmp_path: Path, data_dir: Path, compressed: bool) -> None:
    name = "dolma-sample-0000.warc.gz"
    data = (data_dir / "web/warc_samples" / name).read_bytes()
    if not compressed:
        data, name = gzip.decompress(data), "a.warc"
    (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
    result = ingest(tmp_path)
    whole = ingest(data_dir / "web/warc_samples/dolma-sample-0000.warc.gz")
    assert 5 < len(result.docs) < 22 and result.rules == ["ingest.truncated"]
    assert result.texts == whole.texts[: len(result.docs)]


def test_flipped_byte_in_a_warc_gzip(tmp_path: Path) -> None:
    members = [gzip.compress(record(n)) for n in range(20)]
    data = bytearray(b"".join(members))
    data[len(b"".join(members[:9])) + 60] ^= 0xFF
    (tmp_path / "a.warc.gz").write_bytes(data)
    result = ingest(tmp_path)
    # warcio, for one, ends here without a word.
    assert result.locators() == [f"a.warc.gz#id-{n}" for n in range(20) if n != 9]
    (row,) = result.decisions
    begin, size = len(b"".join(members[:9])), len(members[9])
    assert row["rule"] == "ingest.damaged"
    assert row["detail"].endswith(f"{size} stored bytes from byte {begin} on are passed over")


def test_a_page_too_large_or_expanding_without_end(tmp_path: Path) -> None:
    bomb = gzip.compress(b"<p>" + b"x" * (30 << 20))
    records = [
        record(0, body=b"x" * (3 << 20)),
        record(1, headers="Content-Encoding: gzip\r\n", body=bomb),
        record(2),
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    result = ingest(tmp_path, params={"max_record_mb": 1})
    assert result.rules == ["ingest.record_too_large"] * 2 and result.locators() == ["a.warc#id-2"]


def test_noise_named_warc(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(bytes(range(256)) * 50)
    assert ingest(tmp_path).rules == ["ingest.not_warc"]


def test_real_archives(data_dir: Path) -> None:
    samples = data_dir / "web/warc_samples"
    counts = {
        "resiliparse-warcfile.warc": 16,
        "resiliparse-warcfile.warc.gz": 16,
        "resiliparse-warcfile.warc.lz4": 16,
        "dolma-sample-0000.warc.gz": 22,
        "dolma-sample-0001.warc.gz": 15,
        "whirlwind.warc.gz": 1,
        "whirlwind.warc.wet.gz": 1,
        "whirlwind.warc.wet": 1,
        "resiliparse-clueweb-quirk.warc.gz": 29,
    }
    for name, documents in counts.items():
        result = ingest(samples / name)
        assert (len(result.docs), result.decisions) == (documents, []), name
    texts = [ingest(samples / f"resiliparse-warcfile.warc{suffix}").texts for suffix in ("", ".gz", ".lz4")]
    assert texts[0] == texts[1] == texts[2]
    crawl = ingest(samples / "aut-example.warc.gz")
    assert crawl.counters["records"] == 299 and crawl.counters["encoding_repaired/mojibake"] >= 3
    assert "Escopete" in ingest(samples / "whirlwind.warc.gz").texts[0]
    cut = ingest(samples / "warcio-example-trunc.warc")
    # Its page ends early, and the records after it begin within the length that its header gives.
    assert not cut.docs and cut.rules == ["ingest.wrong_length"] and cut.counters["skipped/request"] == 1


def test_real_arc_files(data_dir: Path) -> None:
    samples = data_dir / "web/warc_samples"
    for name in ("warcio-example.arc", "warcio-example.arc.gz"):
        assert [doc["text"][:14] for doc in ingest(samples / name).docs] == ["Example Domain"], name
    # The same crawl in both formats: the same pages, of the same addresses.
    arc, warc = (ingest(samples / f"aut-example.{kind}.gz") for kind in ("arc", "warc"))
    assert arc.texts == warc.texts and [d["url"] for d in arc.docs] == [d["url"] for d in warc.docs]
    assert len(arc.docs) == 128 and arc.counters["skipped/dns"] == 38
    spaces = ingest(samples / "warcio-example-space-in-url.arc")
    assert spaces.rules == ["ingest.truncated"] and "1579 of 1591 bytes" in spaces.decisions[0]["detail"]
    assert spaces.decisions[0]["url"].endswith("EmailTitle=Examples From The Live Web&IsPopUp=False")
    bad = ingest(samples / "warcio-bad.arc")
    assert not bad.docs and bad.rules == ["ingest.damaged", "ingest.wrong_length"]
