"""Finding files: what is found, what is left out, what is named when nothing is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.ingest.content import hash_inputs
from corpusmill.pipeline.ingest.discover import discover, format_of
from corpusmill.schemas.sources import Source


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}\n")
    return root


def found(*paths: Path | str, **settings: str) -> list[str]:
    return [file.path for file in discover("s", Source(paths=[str(path) for path in paths], **settings))]


def test_folder_is_walked_in_sorted_order_without_hidden_and_temporary_files(tmp_path: Path) -> None:
    tree(
        tmp_path,
        "b.txt",
        "a/z.md",
        "a/y.jsonl.gz",
        ".git/config",
        "a/.hidden",
        "c.tmp",
        "data.csv",
        "a b é%20.txt",
    )
    assert found(tmp_path) == ["a b é%20.txt", "a/y.jsonl.gz", "a/z.md", "b.txt", "data.csv"]


def test_paths_do_not_depend_on_where_the_corpus_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path / "here", "sub/a.txt", "b.txt")
    tree(tmp_path / "there" / "deep", "sub/a.txt", "b.txt")
    monkeypatch.chdir(tmp_path)
    assert found("here") == found(tmp_path / "there" / "deep") == found("file://" + str(tmp_path / "here"))
    assert found(tmp_path / "here/sub/a.txt") == ["a.txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt"]),
        ("d/*.txt", ["c.txt"]),
        ("d/**", ["c.txt", "e/f.txt", "g.md"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[!a].txt", ["b.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("*", ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt", "d/g.md"]),
    ],
)
def test_globs(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    tree(tmp_path, "a.txt", "b.txt", "d/c.txt", "d/e/f.txt", "d/g.md", ".h/x.txt")
    assert found(f"{tmp_path}/{pattern}") == expected


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    tree(tmp_path, "[a].txt", "a.txt")
    assert found(tmp_path / "[a].txt") == ["[a].txt"]


def test_same_names_from_two_paths_stay_apart_and_one_file_counts_once(tmp_path: Path) -> None:
    tree(tmp_path, "x/n.txt", "y/n.txt")
    assert found(tmp_path / "x/n.txt", tmp_path / "y/n.txt") == ["n.txt", "y/n.txt"]
    assert found(tmp_path / "x", tmp_path / "y", tmp_path / "x/n.txt") == ["n.txt", "y/n.txt"]


def test_missing_path_names_source_path_and_nearest(tmp_path: Path) -> None:
    tree(tmp_path, "speeches/a.txt")
    with pytest.raises(UserError) as error:
        found(tmp_path / "speechs")
    message = str(error.value)
    assert "\n" not in message
    assert "sources.s.paths" in message and str(tmp_path / "speechs") in message and "'speeches'" in message
    with pytest.raises(UserError, match="no file matches"):
        found(f"{tmp_path}/speeches/*.jsonl")
    with pytest.raises(UserError, match="no such file or folder"):
        found(tmp_path / "speeches/b/c/d.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file"):
        found(tmp_path / "empty")


def test_formats_by_name() -> None:
    names = {
        "a.jsonl": "jsonl",
        "a.JSONL.GZ": "jsonl",
        "a.ndjson.zst": "jsonl",
        "a.json.xz": "json",
        "a.parquet": "parquet",
        "a.txt": "text",
        "a.md": "markdown",
        "a.warc.gz": "warc",
        "a.warc.lz4": "warc",
        "a.warc.wet.gz": "wet",
        "a.html": "html",
        "dump.xml.bz2": "mediawiki",
        "a.csv": "csv",
        "README": "unknown",
        "a.gz": "unknown",
        "a.txt.lz4": "text",
        "v1.2/README": "unknown",
    }
    assert {name: format_of(name) for name in names} == names


def test_a_declared_format_holds_for_every_file(tmp_path: Path) -> None:
    tree(tmp_path, "a.log", "b.txt")
    formats = [file.format for file in discover("s", Source(paths=[str(tmp_path)], format="text"))]
    assert formats == ["text", "text"]


def test_hashes_are_those_of_the_content_and_known_files_are_not_read_again(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt", "b.txt")
    files = discover("s", Source(paths=[str(tmp_path)]))
    known = {"s/gone.txt": (1, "x", "y")}
    hashes = hash_inputs(files, known)
    assert hashes == {f"s/{n}": checksum((tmp_path / n).read_bytes()) for n in ("a.txt", "b.txt")}
    assert set(known) == {"s/a.txt", "s/b.txt"}
    assert known["s/a.txt"] == (files[0].size, files[0].tag, hashes["s/a.txt"])
    known["s/a.txt"] = (*known["s/a.txt"][:2], "from the cache")
    assert hash_inputs(files, known)["s/a.txt"] == "from the cache"
    (tmp_path / "a.txt").write_text("text of A.txt\n")  # same size
    os.utime(tmp_path / "a.txt", (1, 1))
    files = discover("s", Source(paths=[str(tmp_path)]))
    assert hash_inputs(files, known)["s/a.txt"] == checksum(b"text of A.txt\n")


@pytest.mark.s3
def test_object_storage(s3: str) -> None:
    for name in ("in/a.txt", "in/sub/b.jsonl", "in/.hidden", "in/c.tmp"):
        (Folder(s3) / name).write(b'{"text": "x"}\n')
    assert found(f"{s3}/in") == ["a.txt", "sub/b.jsonl"]
    assert found(f"{s3}/in/a.txt") == ["a.txt"]
    assert found(f"{s3}/in/**/*.jsonl") == ["sub/b.jsonl"]
    files = discover("s", Source(paths=[f"{s3}/in"]))
    assert hash_inputs(files, {})["s/a.txt"] == checksum(b'{"text": "x"}\n')
    with pytest.raises(UserError, match="did you mean 'in'"):
        found(f"{s3}/inn")
