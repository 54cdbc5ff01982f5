"""Lists of files and single files of web servers as input."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common import http_files
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.file_lists import find_inputs, named
from corpusmill.pipeline.ingest.reread import RawFile, find_file
from corpusmill.pipeline.inspect.lineage.raw import read_raw
from corpusmill.pipeline.inspect.lineage.run import RunPlaces
from corpusmill.schemas.input_options import FileList
from corpusmill.schemas.manifest import RunInputs
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.test_hub_sources import job
from tests.web import Answer, Hub, Server, files_of, serving

TABLE = pa.table({"text": [f"row {n}" for n in range(50)]})


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    return sink.getvalue()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http_files, "BACKOFF", 0.001)
    monkeypatch.setattr(http_files, "RETRIES", 2)
    files = {
        "/a.jsonl": b'{"text": "from the web"}\n',
        "/x/b.txt.gz": gzip.compress(b"zipped"),
        "/rows.parquet": parquet(),
    }
    with serving(files_of(files)) as server:
        yield server


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name in ("in/a.txt", "in/deep/b.txt", "out.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    return tmp_path


def listed(path: Path | str, **source: Any) -> Result:
    column = source.pop("file_column", None)
    return ingest(files_from={"path": str(path), "file_column": column}, **source)


def test_single_urls(web: Server) -> None:
    result = ingest(f"{web.url}/a.jsonl", f"{web.url}/x/b.txt.gz?signature=secret", f"{web.url}/rows.parquet")
    assert sorted(result.texts) == sorted(["from the web", "zipped", *TABLE["text"].to_pylist()])
    assert {locator.partition("#")[0] for locator in result.locators()} == {
        "a.jsonl",
        "b.txt.gz",
        "rows.parquet",
    }
    with pytest.raises(
        UserError, match=r"sources\.s\.paths: http://.*/none\.txt: the server has no such file"
    ) as error:
        ingest(f"{web.url}/none.txt?signature=secret")
    assert "secret" not in str(error.value)


def test_a_server_without_ranges_or_length(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    web.respond = lambda asked: Answer(200, parquet(), {"Transfer-Encoding": "chunked"}, ranges=False)
    assert ingest(f"{web.url}/rows.parquet").texts == TABLE["text"].to_pylist()
    monkeypatch.setattr(http_files, "SPOOL_BYTES", 100)
    result = ingest(f"{web.url}/rows.parquet")
    assert result.rules == ["ingest.unreadable_file"] and "no byte ranges" in result.decisions[0]["detail"]


def test_a_text_names_files_everywhere(texts: Path, web: Server, hub: Hub) -> None:
    hub.repo("org/set", {"c.txt": b"from the Hub"})
    names = (
        f"\ufeff# what to read\n\nin/a.txt\r\n./in/deep/../deep/b.txt\n{texts}/out.txt\n{web.url}/a.jsonl\n"
        f"hf://datasets/org/set/c.txt\nin/a.txt\nfile://{texts}/in/a.txt\n"
    )
    (texts / "list.txt").write_text(names)
    (texts / "list.txt.gz").write_bytes(gzip.compress(names.encode()))
    for name in ("list.txt", "list.txt.gz"):
        result = listed(texts / name)
        assert dict(zip(result.locators(), result.texts, strict=True)) == {
            "in/a.txt#0": "text of in/a.txt", "in/deep/b.txt#0": "text of in/deep/b.txt", "out.txt#0": "text of out.txt",
            f"{web.url.removeprefix('http://')}/a.jsonl#0": "from the web", "org/set/c.txt#0": "from the Hub",
        }  # fmt: skip
        assert result.counters["files/listed_again"] == 2 and not result.decisions
        assert result.stage.revisions == {"hf://datasets/org/set@main": hub.repos["org/set"].refs["main"]}
        assert list(result.stage.lists) == [str(texts / name)]
    both = listed(texts / "list.txt", paths=[str(texts / "in")])
    assert sorted(both.texts) == sorted(result.texts)


ROWS = [
    {"file": "in/a.txt", "id": 7, "lang": "de", "url": "http://x/1"},
    {"file": "in/deep/b.txt", "lang": "en"},
]


@pytest.mark.parametrize("kind", ["list.jsonl", "list.csv", "list.parquet", "list.json", "list.jsonl.gz"])
def test_the_other_columns_of_a_table_are_metadata(texts: Path, kind: str) -> None:
    path = texts / kind
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    if kind.endswith(".csv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    elif kind.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_bytes(gzip.compress(lines.encode()) if kind.endswith("gz") else lines.encode())
        if kind.endswith(".json"):
            path.write_text(json.dumps(ROWS))
    result = listed(path, file_column="file")
    about = {doc["locator"]: json.loads(doc["metadata"]) for doc in result.docs}
    assert set(about) == {"in/a.txt#0", "in/deep/b.txt#0"}
    assert about["in/a.txt#0"]["lang"] == "de" and about["in/a.txt#0"]["url"] == "http://x/1"
    assert str(about["in/a.txt#0"]["id"]) == "7" and about["in/deep/b.txt#0"]["lang"] == "en"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_documents_own_metadata_comes_first(texts: Path, suffix: str) -> None:
    rows = [{"text": "one", "lang": "fr", "n": 1}, {"text": "two", "lang": None, "n": 2}]
    if suffix == "jsonl":
        rows[1].pop("lang")
        (texts / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), texts / "d.parquet")
    (texts / "list.jsonl").write_text(json.dumps({"file": f"d.{suffix}", "lang": "de", "topic": "x"}))
    result = listed(texts / "list.jsonl", file_column="file")
    assert [json.loads(doc["metadata"]) for doc in result.docs] == [
        {"lang": "fr", "topic": "x", "n": 1},
        {"lang": "de", "topic": "x", "n": 2},
    ]
    (texts / "list.jsonl").write_text(json.dumps({"file": f"d.{suffix}", "topic": "x" * 20_000}))
    result = listed(texts / "list.jsonl", file_column="file")
    assert result.counters["metadata_dropped"] == 1 and json.loads(result.docs[0]["metadata"])["n"] == 1


def test_what_cannot_be_read_is_one_record_each(texts: Path, web: Server) -> None:
    (texts / "list.txt").write_bytes(
        f"in/a.txt\nin/none.txt\nin\n{web.url}/none\nhttp://127.0.0.1:9/x\nftp://host/x\nhf://datasets/no\n".encode()
        + b"bad\xff.txt\n" + b"x" * 70_000 + b"\n/etc/../etc/no-such-file\nhttps://me:pw@host/x\n"
    )  # fmt: skip
    result = listed(texts / "list.txt")
    assert result.texts == ["text of in/a.txt"] and set(result.rules) == {"ingest.unreadable_file"}
    details = "\n".join(row["detail"] for row in result.decisions)
    assert len(result.decisions) == 10
    for part in (
        "no such file", "a folder; a list names files", "cannot be reached", "unknown kind of URL 'ftp://'",
        "not a data set", "is not UTF-8", "a line of 70000 bytes", "user or password",
    ):  # fmt: skip
        assert part in details
    assert "pw@" not in details
    with pytest.raises(
        UserError,
        match=r"sources\.s\.files_from: .*none\.txt: in the list, but .*unreadable_files: quarantine",
    ):
        listed(texts / "list.txt", unreadable_files="stop")


def test_what_is_not_there_is_not_asked_for_again_and_again(
    texts: Path, hub: Hub, web: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"hf://datasets/org/none/{n}.txt" for n in range(40)] + [
        f"http://127.0.0.1:9/{n}" for n in range(60)
    ]
    (texts / "list.txt").write_text("\n".join(names))
    tried: list[str] = []
    original = http_files.ask

    def counting(method: str, url: str, *given: Any, **named: Any) -> Any:
        tried.append(url)
        return original(method, url, *given, **named)

    monkeypatch.setattr(http_files, "ask", counting)
    result = listed(texts / "list.txt")
    assert len(result.decisions) == 100 and len(hub.server.asked) <= 3
    assert 3 <= sum(":9/" in url for url in tried) <= 3 + 16, "those that were under way together"
    assert len({row["detail"] for row in result.decisions}) == 2


def test_rows_without_a_name_and_a_damaged_table(texts: Path) -> None:
    rows = [{"file": "in/a.txt"}, {"other": 1}, {"file": 7}, {"file": " "}, {"file": "in/deep/b.txt"}]
    data = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode() + b" " * 100_000)
    (texts / "list.jsonl.gz").write_bytes(data[:-20])
    result = listed(texts / "list.jsonl.gz", file_column="file")
    assert sorted(result.texts) == ["text of in/a.txt", "text of in/deep/b.txt"]
    assert sorted(row["locator"] for row in result.decisions) == [
        "list.jsonl.gz:1#0", "list.jsonl.gz:2#0", "list.jsonl.gz:3#0", "list.jsonl.gz:5#0",
    ]  # fmt: skip
    assert "ingest.truncated" in result.decisions[-1]["detail"]


def test_lists_that_are_none(texts: Path) -> None:
    (texts / "empty.txt").write_text("# nothing\n")
    with pytest.raises(UserError, match=r"sources\.s\.files_from: .*empty\.txt: it names no file"):
        listed(texts / "empty.txt")
    with pytest.raises(
        UserError, match=r"sources\.s\.files_from: .*none\.txt: no such file; give a text file"
    ):
        listed(texts / "none.txt")
    with pytest.raises(ValueError, match="paths: missing: name files, folders"):
        Source()


def test_a_remote_list_reads_no_local_file(texts: Path, web: Server) -> None:
    """Whatever it writes: what stands beside it and what is remote itself."""
    escapes = [
        "/etc/passwd", "file:///etc/passwd", "../../../etc/passwd", "~/.ssh/id_rsa", f"{texts}/in/a.txt", "x/../../y",
        "FILE:///etc/passwd", "memory://x/y",
    ]  # fmt: skip
    names = "\n".join(["b.txt.gz", f"{web.url}/a.jsonl", *escapes])
    files = {
        "/x/list.txt": names.encode(),
        "/x/b.txt.gz": gzip.compress(b"beside"),
        "/a.jsonl": b'{"text": "other"}',
    }
    web.respond = files_of(files)
    result = listed(f"{web.url}/x/list.txt")
    assert sorted(result.texts) == ["beside", "other"]
    assert len(result.decisions) == len(escapes) and set(result.rules) == {"ingest.unreadable_file"}


@given(
    st.text(max_size=60)
    | st.from_regex(r"\A(file|memory|s3|http|hf)?(://)?(\.\./|/|~|\\|%2e%2e/){0,4}[a-z]*\Z")
)
def test_no_name_of_a_remote_list_leads_to_this_machine(name: str) -> None:
    place = Folder("memory://lists/a/list.txt")
    place.write(name.encode() + b"\nlast.txt\n")
    for one in named("s", FileList(path=place.url), {"hf://datasets/x/y@main": "0" * 40}):
        assert one.problem or not one.file.local


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(str.encode),
    st.sampled_from(["l.txt", "l.jsonl", "l.csv", "l.txt.gz"]),
)
def test_a_list_may_hold_any_bytes(tmp_path: Path, data: bytes, name: str) -> None:
    """Each row names a file or says why not; a list without any is the user's mistake."""
    (tmp_path / name).write_bytes(data)
    listing = FileList(path=str(tmp_path / name), file_column=None if ".txt" in name else "file")
    try:
        files = find_inputs("s", Source(files_from=listing))
    except UserError as error:
        assert "it names no file" in str(error)
    else:
        assert files and len({file.path for file in files}) == len(files)
        assert all(file.problem for file in files if Path(file.url).name != name)


def test_a_relative_name_beside_a_list_with_a_query(web: Server) -> None:
    web.respond = files_of({"/x/list.txt": b"b.txt", "/x/b.txt": b"beside"})
    assert listed(f"{web.url}/x/list.txt?signature=a/b/").texts == ["beside"]
    assert {asked.path for asked in web.asked if "list" in asked.path} == {"/x/list.txt?signature=a/b/"}


def test_a_list_and_its_columns_are_part_of_the_record(texts: Path) -> None:
    def run(lines: list[dict[str, str]]) -> list[str]:
        (texts / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = {"paths": [], "files_from": {"path": str(texts / "list.jsonl"), "file_column": "file"}}
        job("", texts / "run", **source).execute()
        tables = [pq.read_table(file) for file in sorted((texts / "run/ingest/documents").glob("*.parquet"))]
        return pa.concat_tables(tables)["metadata"].to_pylist()

    assert run([{"file": "in/a.txt", "lang": "de"}]) == ['{"lang":"de"}']
    inputs = RunInputs.model_validate_json((texts / "run/inputs.json").read_bytes())
    assert (
        set(inputs.lists) == {str(texts / "list.jsonl")}
        and "revisions" not in (texts / "run/inputs.json").read_text()
    )
    assert run([{"file": "in/a.txt", "lang": "en"}]) == ['{"lang":"en"}'], "another column, another document"
    again = RunInputs.model_validate_json((texts / "run/inputs.json").read_bytes())
    assert again.files == inputs.files and again.lists != inputs.lists


def test_a_document_of_a_listed_file_is_traced(texts: Path, web: Server) -> None:
    (texts / "list.txt").write_text(f"in/a.txt\n{web.url}/a.jsonl?signature=secret\n{web.url}/none\n")
    source = {"paths": [], "files_from": {"path": str(texts / "list.txt")}}
    job("", texts / "run", **source).execute()
    run = RunPlaces(str(texts / "run"), lambda line: None)
    for locator in ("in/a.txt#0", f"{web.url.removeprefix('http://')}/a.jsonl#0"):
        (row,) = run.rows(locator)
        raw = read_raw(run, row)
        assert raw.state == "equal" and "secret" not in raw.file
    declared = Source.model_validate(source)
    for file in find_inputs("s", declared):
        if not file.problem:
            assert find_file("s", declared, file.path) == file
            assert RawFile(file, declared, IngestParams()).text("0")
    assert find_file("s", declared, "in/none.txt") is None


def test_addresses_that_differ_in_their_query_alone(web: Server) -> None:
    web.respond = lambda asked: Answer(200, json.dumps({"text": asked.path}).encode())
    result = ingest(f"{web.url}/a.jsonl?page=1", f"{web.url}/a.jsonl?page=2")
    assert sorted(result.texts) == ["/a.jsonl?page=1", "/a.jsonl?page=2"]
    assert len({locator.partition("#")[0] for locator in result.locators()}) == 2
