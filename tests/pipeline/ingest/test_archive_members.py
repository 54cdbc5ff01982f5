"""Files in tar and zip archives: each member is read as the file that it is, under a name of its own."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.discover import discover, format_of
from corpusmill.pipeline.ingest.reread import RawFile, find_file
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.pipeline.ingest.helpers import Result, ingest
from tests.pipeline.ingest.pdf_files import lines, pdf
from tests.pipeline.ingest.test_archives import record
from tests.pipeline.ingest.zip_files import docx_parts, epub_parts, p, packed, page
from tests.web import files_of, serving


def parquet(*texts: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts)}), sink)
    return sink.getvalue()


FILES = {
    "a.jsonl": b'{"text": "one"}\n{"text": "two"}\n', "in/b.txt": b"plain text", "in/c.jsonl.gz": gzip.compress(b'{"text": "three"}\n'),
    "d.csv": b"id,text\n1,four\n", "e.json": b'[{"text": "five"},\n {"text": "six"}]', "f.html": b"<html><p>A page of text.</p></html>",
    "g.parquet": parquet("seven", "eight"), "h.warc": record(1), "named nothing": b'{"text": "nine"}\n{"text": "ten"}\n', "i.md.xz": lzma.compress(b"# Eleven"),
}  # fmt: skip


def tar_of(files: Mapping[str, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def read(folder: Path, name: str, data: bytes, **source: object) -> Result:
    (folder / name).write_bytes(data)
    return ingest(folder / name, **source)


def texts_of(result: Result) -> dict[str, str]:
    """Texts by what follows the archive's name in the locator."""
    return {doc["locator"].partition("!")[2]: doc["text"] for doc in result.docs}


def rejected(result: Result) -> list[tuple[str, str]]:
    return [(row["locator"].partition(".")[2], row["rule"]) for row in result.decisions]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The texts of `FILES` where each is a file itself."""
    folder = tmp_path_factory.mktemp("apart")
    for name, data in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    result = ingest(folder)
    assert len(result.docs) == 14 and not result.decisions
    return {doc["locator"]: doc["text"] for doc in result.docs}


PACKERS: dict[str, Callable[[], bytes]] = {
    "x.tar": lambda: tar_of(FILES),
    "gnu.tar": lambda: tar_of(FILES, tarfile.GNU_FORMAT),
    "ustar.tar": lambda: tar_of(FILES, tarfile.USTAR_FORMAT),
    "x.tar.gz": lambda: gzip.compress(tar_of(FILES)),
    "x.tgz": lambda: gzip.compress(tar_of(FILES)),
    "x.tar.zst": lambda: zstandard.ZstdCompressor().compress(tar_of(FILES)),
    "x.tar.bz2": lambda: bz2.compress(tar_of(FILES)),
    "x.tar.xz": lambda: lzma.compress(tar_of(FILES)),
    "x.tar.lz4": lambda: pa.compress(tar_of(FILES), "lz4", asbytes=True),
    "tar without a suffix": lambda: tar_of(FILES),
    "x.zip": lambda: zip_of(FILES),
    "stored.zip": lambda: zip_of(FILES, zipfile.ZIP_STORED),
    "bzip2.zip": lambda: zip_of(FILES, zipfile.ZIP_BZIP2),
    "lzma.zip": lambda: zip_of(FILES, zipfile.ZIP_LZMA),
    "behind a program.zip": lambda: b"#!/bin/sh\nexit\n" + zip_of(FILES),
    "zip without a suffix": lambda: zip_of(FILES),
}


@pytest.mark.parametrize("name", PACKERS)
def test_members_are_read_as_the_same_files_are(tmp_path: Path, apart: dict[str, str], name: str) -> None:
    result = read(tmp_path, name, PACKERS[name]())
    assert texts_of(result) == apart and not result.decisions
    assert result.locators()[0] == f"{name}!a.jsonl#0"
    assert result.counters["members"] == len(FILES)


@pytest.mark.parametrize("name", PACKERS)
def test_a_document_is_traced_to_its_member(tmp_path: Path, apart: dict[str, str], name: str) -> None:
    (tmp_path / name).write_bytes(PACKERS[name]())
    source = Source(paths=[str(tmp_path)])
    for locator, text in apart.items():
        path, _, number = f"{name}!{locator}".rpartition("#")
        file = find_file("s", source, path)
        assert file is not None
        raw = RawFile(file, source, IngestParams())
        assert raw.text(number) == text
        if raw.format == "jsonl":
            line = raw.line(number)
            assert line is not None and line.value["text"] == text
    missing = find_file("s", source, f"{name}!no such member")
    assert missing is not None and RawFile(missing, source, IngestParams()).text("0") is None


def test_nested_archives_are_read_inside_one_other(tmp_path: Path) -> None:
    plain = {"p.txt": b"some text"}
    inner = {"t.tar.gz": gzip.compress(tar_of(plain)), "z.zip": zip_of(plain), "q.txt": b"more text"}
    deep = {"one.tar": tar_of(inner), "two.zip": zip_of(inner)}
    wanted = {"one.tar!q.txt#0": "more text", "two.zip!q.txt#0": "more text"}
    for name, data in (("x.tar", tar_of(deep)), ("x.zip", zip_of(deep))):
        result = read(tmp_path, name, data)
        assert texts_of(result) == wanted
        assert {row["rule"] for row in result.decisions} == {"ingest.nested_archive"}
        places = [row["locator"].partition("!")[2] for row in result.decisions]
        assert places == [f"{a}!{b}#0" for a in deep for b in ("t.tar.gz", "z.zip")]
        source = Source(paths=[str(tmp_path)])
        file = find_file("s", source, f"{name}!two.zip!q.txt")
        assert file is not None and RawFile(file, source, IngestParams()).text("0") == "more text"


def special_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (
            ("link.txt", tarfile.SYMTYPE), ("hard.txt", tarfile.LNKTYPE), ("fifo.txt", tarfile.FIFOTYPE), ("dev.txt", tarfile.CHRTYPE),
            ("folder", tarfile.DIRTYPE), ("/etc/absolute.txt", tarfile.REGTYPE), ("a/../../out.txt", tarfile.REGTYPE),
            (".DS_Store", tarfile.REGTYPE), ("__MACOSX/._b.txt", tarfile.REGTYPE), (".git/config.txt", tarfile.REGTYPE), ("./fine.txt", tarfile.REGTYPE),
            ("bin.dat", tarfile.REGTYPE), ("line\nbreak.txt", tarfile.REGTYPE), ("same.txt", tarfile.REGTYPE), ("same.txt", tarfile.REGTYPE),
            ("long/" * 60 + "name.txt", tarfile.REGTYPE), ("empty.txt", tarfile.REGTYPE), ("C:\\windows.txt", tarfile.REGTYPE),
        ):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (
                kind,
                "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "",
            )
            data = (
                b""
                if name == "empty.txt" or kind != tarfile.REGTYPE
                else b"\1\2\3"
                if name == "bin.dat"
                else b"text"
            )
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_what_is_no_file_is_one_row_each(tmp_path: Path) -> None:
    result = read(tmp_path, "x.tar", special_tar())
    names = [name.removesuffix("#0") for name in texts_of(result)]
    assert names == ["fine.txt", "line\\x0abreak.txt", "same.txt", "same.txt~15", "long/" * 60 + "name.txt"]
    unreadable, unsupported, empty = (
        "ingest.unreadable_file",
        "ingest.unsupported_format",
        "ingest.empty_file",
    )
    wanted = [
        ("link.txt", unreadable), ("hard.txt", unreadable), ("fifo.txt", unreadable), ("dev.txt", unreadable), ("/etc/absolute.txt", unreadable),
        ("a/../../out.txt", unreadable), ("bin.dat", unsupported), ("empty.txt", empty), ("C:\\windows.txt", unreadable),
    ]  # fmt: skip
    assert rejected(result) == [(f"tar!{name}#0", rule) for name, rule in wanted]
    assert result.counters["skipped/member_hidden"] == 3
    assert result.counters["skipped/member_is_folder"] == 1


def test_members_are_selected_by_globs(tmp_path: Path) -> None:
    files = dict.fromkeys(("a.txt", "in/b.txt", "in/deep/c.txt", "d.md", "in/e.md"), b"text")
    files["inner.zip"] = zip_of(files)
    for name, data in (("x.tar", tar_of(files)), ("x.zip", zip_of(files))):
        for members, wanted in (
            (["*.md"], ["d.md", "in/e.md"]),
            (["in/*.txt"], ["in/b.txt"]),
            (["in/**"], ["in/b.txt", "in/deep/c.txt", "in/e.md"]),
            (["in/"], ["in/b.txt", "in/deep/c.txt", "in/e.md"]),
            (["a.*", "in/deep/*"], ["a.txt", "in/deep/c.txt"]),
        ):
            result = read(tmp_path, name, data, members=members)
            found = sorted(place.removesuffix("#0") for place in texts_of(result))
            assert found == sorted([*wanted, *(f"inner.zip!{one}" for one in wanted)])
            assert result.counters["skipped/member_not_selected"] == 2 * (5 - len(wanted))


def test_members_change_the_key_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(FILES))
    keys = {ingest(tmp_path, **more).stage.units()[0].key for more in ({}, {"members": ["*.txt"]})}
    assert len(keys) == 2


def test_a_format_of_the_recipe_holds_for_members(tmp_path: Path) -> None:
    data = zip_of({"a.dat": b'{"text": "one"}', "b": b'{"text": "two"}'})
    assert texts_of(read(tmp_path, "x.zip", data, format="jsonl")) == {"a.dat#0": "one", "b#0": "two"}
    assert set(texts_of(read(tmp_path, "x", data, format="zip"))) == {"a.dat#0", "b#0"}


def test_names_of_archives(tmp_path: Path) -> None:
    for name in ("a.tar", "a.tar.gz", "a.TGZ", "a.tzst", "a.tar.zst", "a.tbz2", "a.txz", "a.tar.lz4"):
        assert format_of(name) == "tar"
    (tmp_path / "a.odt").write_bytes(zip_of({"content.xml": b"<x/>"}))
    (tmp_path / "nameless").write_bytes(zip_of({"META-INF/MANIFEST.MF": b"x", "a.txt": b"text"}))
    assert [file.format for file in discover("s", Source(paths=[str(tmp_path)]))] == ["unknown"] * 2
    assert ingest(tmp_path).rules == ["ingest.unsupported_format"] * 2


def test_a_shard_of_webdataset(tmp_path: Path) -> None:
    files = {
        "000.txt": b"first",
        "000.json": b'{"text": "meta"}',
        "001.txt": b"second",
        "001.json": b'{"url": 1}',
        "001.jpg": b"\xff\xd8\xff",
    }
    result = read(tmp_path, "s.tar", tar_of(files))
    assert result.texts == ["first", "meta", "second"]
    assert result.rules == ["ingest.no_text", "ingest.unsupported_format"]
    selected = read(tmp_path, "s.tar", tar_of(files), members=["*.txt"])
    assert selected.texts == ["first", "second"] and not selected.decisions


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar program")
@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_gnu_tar_writes(tmp_path: Path, apart: dict[str, str], format: str) -> None:
    for name, data in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    archive = tmp_path / "x.tar"
    subprocess.run(["tar", f"--format={format}", "-cf", archive, "-C", tmp_path / "in", "."], check=True)
    result = ingest(archive)
    assert texts_of(result) == apart and not result.decisions
    assert result.counters["skipped/member_is_folder"] == 2


class Pipe(io.BytesIO):
    """A file that cannot be gone back in: zipfile writes lengths behind each member's content."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def test_zip_files_with_zip64_and_lengths_behind_the_content(tmp_path: Path, apart: dict[str, str]) -> None:
    wide = io.BytesIO()
    with zipfile.ZipFile(wide, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    assert texts_of(read(tmp_path, "wide.zip", wide.getvalue())) == apart
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    result = read(tmp_path, "pipe.zip", pipe.getvalue())
    assert texts_of(result) == apart and not result.decisions
    without = read(tmp_path, "lost.zip", pipe.getvalue()[: pipe.getvalue().index(b"PK\x01\x02")])
    assert texts_of(without) == apart and without.rules == ["ingest.damaged"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), st.binary(max_size=600)),
        max_size=8,
    )
)
def test_any_names_and_contents(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, bytes]]
) -> None:
    """Every member is a document, a row, or counted as left out, and no two have one id."""
    folder = tmp_path_factory.getbasetemp()
    out, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name.replace("\0", ""))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    names = list(dict(files))
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name.replace("\0", "") or "x", dict(files)[name])
    for path, data, count in (
        ("any.tar", out.getvalue(), len(files)),
        ("any.zip", packed.getvalue(), len(names)),
    ):
        result = read(folder, path, data, format="text" if len(files) % 2 else "auto")
        skipped = sum(count for name, count in result.counters.items() if name.startswith("skipped/member"))
        assert result.counters["members"] + skipped == count
        assert "ingest.unreadable" not in result.rules
        assert json.dumps(result.locators())


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_members_that_are_read_from_any_place(tmp_path: Path, name: str) -> None:
    """Formats whose readers go back and forth in a file, or give it to another process."""
    sink = io.BytesIO()
    pyarrow.feather.write_feather(pa.table({"text": ["of an arrow file"]}), sink)
    chapter = page("<h1>One</h1><p>Of a book.</p>")
    files = {
        "a.feather": sink.getvalue(), "b.pdf": pdf(lines("Of a page.")), "c.epub": packed(epub_parts({"c.xhtml": chapter})),
        "d.docx": packed(docx_parts(p("Of a letter."))), "no name": packed(docx_parts(p("Of another letter."))),
    }  # fmt: skip
    data = zip_of(files) if name == "a.zip" else gzip.compress(tar_of(files))
    found = texts_of(read(tmp_path, name, data))
    assert found == {
        "a.feather#0": "of an arrow file", "b.pdf#0": "Of a page.", "c.epub#0": "One\n\nOf a book.", "d.docx#0": "Of a letter.",
        "no name#0": "Of another letter.",
    }  # fmt: skip


def stored(folder: Path) -> dict[str, bytes]:
    """Archives of all files, as they are here."""
    folder.mkdir()
    archives = {"a.zip": zip_of(FILES), "a.tar": tar_of(FILES), "a.tar.gz": gzip.compress(tar_of(FILES))}
    for name, data in archives.items():
        (folder / name).write_bytes(data)
    return archives


@pytest.mark.s3
def test_archives_in_object_storage(tmp_path: Path, s3: str) -> None:
    for name, data in stored(tmp_path / "in").items():
        (Folder(s3) / "in" / name).write(data)
    here, there = ingest(tmp_path / "in"), ingest(f"{s3}/in")
    assert pa.concat_tables(there.tables).equals(pa.concat_tables(here.tables)) and len(here.docs) == 3 * 14


@pytest.mark.parametrize("ranges", [True, False])
def test_archives_on_a_web_server(tmp_path: Path, ranges: bool) -> None:
    archives = {f"/{name}": data for name, data in stored(tmp_path / "in").items()}
    answer = files_of(archives)
    with serving(lambda asked: answer(asked)._replace(ranges=ranges)) as server:
        there = ingest(*(f"{server.url}{name}" for name in sorted(archives)))
    here = ingest(tmp_path / "in")
    assert sorted(doc["text"] for doc in there.docs) == sorted(doc["text"] for doc in here.docs)
    assert len(there.docs) == 3 * 14 and not there.rules
