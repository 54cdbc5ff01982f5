"""What a Parquet file proves of its own damage, and values that expand without end."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.raw_file import RawFile
from corpusmill.pipeline.ingest.readers.parquet_fetch import Fetched
from corpusmill.pipeline.ingest.readers.parquet_pages import Page, Unreadable, pages
from tests.pipeline.ingest.helpers import ingest
from tests.pipeline.ingest.memory import peak
from tests.web import files_of, serving

TABLE = pa.table(
    {
        "id": [f"id-{n}" for n in range(900)],
        "text": [f"text number {n}: " + "more and more " * (n % 9) for n in range(900)],
        "tags": [["a", "b"] * (n % 3) for n in range(900)],
        "half": [n / 2 if n % 5 else None for n in range(900)],
    }
)


def written(folder: Path, table: pa.Table = TABLE, **options: object) -> Path:
    path = folder / "a.parquet"
    pq.write_table(table, path, **{"row_group_size": 300, "write_page_checksum": True, **options})
    return path


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_pages_with_checksums_are_checked(tmp_path: Path, compression: str) -> None:
    """A byte of the text itself changes: without the checksum nobody would notice."""
    path = written(tmp_path, compression=compression, use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 9] ^= 0x20
    path.write_bytes(data)
    result = ingest(path)
    assert [doc["source_id"] for doc in result.docs] == [f"id-{n}" for n in range(900) if not 300 <= n < 600]
    assert result.rules == ["ingest.damaged"] and result.decisions[0]["value"] == 300.0
    assert "does not have its checksum" in result.decisions[0]["detail"]
    assert result.locators()[300].endswith("#600")  # the rows behind keep their numbers


def renumbered(path: Path, old: int, new: int, times: int) -> None:
    """The footer's counts of rows, as zigzag varints of two bytes, replaced."""

    def varint(n: int) -> bytes:
        n *= 2
        return bytes([n & 127 | 128, n >> 7])

    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert data.count(varint(old), footer) >= 1
    path.write_bytes(data[:footer] + data[footer:].replace(varint(old), varint(new), times))


def test_a_footer_that_promises_more_rows_than_there_are(tmp_path: Path) -> None:
    path = written(tmp_path)
    renumbered(path, 900, 950, 1)
    assert pq.ParquetFile(path).metadata.num_rows == 950
    result = ingest(path)
    assert len(result.docs) == 900 and result.rules == ["ingest.damaged"]
    assert result.decisions[0]["detail"] == (
        "the footer promises 950 rows, its row groups 900: 50 rows are missing"
    )


def test_a_row_group_that_promises_more_rows_than_its_pages_hold(tmp_path: Path) -> None:
    path = written(tmp_path, row_group_size=900)
    renumbered(path, 900, 950, 99)
    result = ingest(path)
    lost = [row for row in result.decisions if row["rule"] == "ingest.damaged"]
    assert len(result.docs) + sum(int(row["value"]) for row in lost) >= 950 and lost
    assert all(row["value"] > 0 for row in lost)


def test_the_sizes_of_pages_are_those_that_the_writer_gave(tmp_path: Path) -> None:
    for options in ({}, {"data_page_version": "2.0"}, {"use_dictionary": False, "data_page_size": 2048}):
        path = written(tmp_path, **options)
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                column = metadata.row_group(group).column(place)
                start = column.dictionary_page_offset or column.data_page_offset
                with path.open("rb") as file:
                    found = list(pages(file, start, column.total_compressed_size))
                headers = column.total_compressed_size - sum(page.stored for page in found)
                assert headers > 0
                assert sum(page.expanded for page in found) + headers == column.total_uncompressed_size


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_whatever_stands_in_place_of_a_header(data: bytes) -> None:
    import io

    try:
        found = list(pages(io.BytesIO(data), 0, len(data)))
    except Unreadable:
        return
    assert all(isinstance(page, Page) and page.stored >= 0 for page in found)


@pytest.mark.parametrize("remote", [False, True])
def test_a_page_that_claims_more_than_its_column_has(tmp_path: Path, remote: bool) -> None:
    """The decoder would allocate what the header claims, before it reads; here, and on a web server."""
    path = written(tmp_path, compression="none", use_dictionary=False)
    metadata = pq.ParquetFile(path).metadata
    column = metadata.row_group(1).column(1)
    data, start = bytearray(path.read_bytes()), column.data_page_offset
    assert (
        data[start : start + 3] == b"\x15\x00\x15"
    )  # a data page; then two sizes as varints, with 0x15 between
    first = next(at for at in range(start + 3, start + 9) if data[at] < 128)
    second = next(at for at in range(first + 2, first + 9) if data[at] < 128)
    assert data[first + 1] == 0x15
    # The header is longer now, by what the page loses at its end.
    end = start + column.total_compressed_size
    grown = data[start : first + 2] + b"\xfe\xff\xff\xff\x0f" + data[second + 1 : end]  # 2^31 - 1
    data[start:end] = grown[: end - start]
    path.write_bytes(data)
    with serving(files_of({"/a.parquet": bytes(data)})) as server:
        documents, rejected, mib = peak(f"{server.url}/a.parquet" if remote else path)
    assert documents == 600 and mib < 300
    assert [rule for rule, _ in rejected] == ["ingest.damaged"]
    assert "claims 2147483647 bytes, more than its column has" in rejected[0][1]


def test_a_column_whose_name_is_no_text(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for times in (1, 99):
        path.write_bytes(data[:footer] + data[footer:].replace(b"tags", b"ta\xa3s", times))
        result = ingest(path)
        assert result.rules and "ingest.unreadable" not in result.rules


@given(
    st.binary(min_size=1, max_size=400), st.lists(st.tuples(st.integers(-5, 450), st.integers(0, 500)), max_size=4),
    st.lists(st.tuples(st.integers(0, 420), st.integers(-1, 450)), max_size=20),
)  # fmt: skip
def test_fetched_ranges_read_as_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    ranges: list[tuple[int, int]],
    reads: list[tuple[int, int]],
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges"
    path.write_bytes(data)
    file = Fetched(RawFile(Folder(path)), len(data))
    assert file.fetch(ranges)
    for begin, size in reads:
        file.seek(begin)
        assert file.read(size) == (data[begin:] if size < 0 else data[begin : begin + size])
    file.close()


def test_a_remote_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are looked at before they are decoded, out of what was fetched."""
    rows = 60_000
    table = pa.table(
        {"text": [f"text number {n}: {n**9} {n**7} {n**11}" for n in range(rows)], "other": list(range(rows))}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows // 3)
    data = (tmp_path / "a.parquet").read_bytes()
    read, taken = RawFile.read, list[int]()

    def counted(file: RawFile, size: int = -1) -> bytes:
        block = read(file, size)
        taken.append(len(block))
        return block

    monkeypatch.setattr(RawFile, "read", counted)
    with serving(files_of({"/a.parquet": data})) as server:
        assert len(ingest(f"{server.url}/a.parquet").docs) == rows
    assert len(data) > 1 << 20 and sum(taken) < 2.1 * len(data)  # once for its hash, once to be decoded


@pytest.mark.parametrize("dictionary", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_value_that_expands_without_end(tmp_path: Path, dictionary: bool) -> None:
    texts = pa.array(["fine", "x" * (300 << 20), "fine too"], pa.large_string())
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(
        path, pa.schema([("text", pa.large_string())]), compression="zstd", use_dictionary=dictionary
    ) as writer:
        writer.write_table(pa.table({"text": texts}))
        writer.write_table(pa.table({"text": pa.array(["after"], pa.large_string())}))
    del texts
    assert path.stat().st_size < 1 << 20
    documents, ((rule, detail),), mib = peak(path)
    assert documents == 1 and rule == "ingest.record_too_large"
    assert "row group 0: a page of column 'text' expands from" in detail
    assert mib < 500


@pytest.mark.slow
def test_a_million_columns(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(300_000)]
    schema = pa.schema([("text", pa.string()), *((name, pa.int8()) for name in names)])
    path = tmp_path / "a.parquet"
    pq.ParquetWriter(path, schema).close()
    documents, rejected, mib = peak(path)
    assert documents == 0 and rejected[0][0] == "ingest.not_parquet" and mib < 1000
