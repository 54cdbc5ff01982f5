from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UserError, WorkError
from schemas.storage import Folder


def exercise(folder: Folder) -> None:
    file = folder / "a/b.bin"
    with pytest.raises(FileNotFoundError):
        file.read()
    assert not file.exists()
    file.write(bytes(range(256)) * 40)
    (folder / "a/a.bin").write(b"x")
    assert file.exists() and file.entry().size == 10_240
    assert file.read()[255] == 255
    assert file.read_range(3, 4) == bytes([3, 4, 5, 6])
    with pytest.raises(WorkError, match="truncated|cannot read"):
        file.read_range(10_238, 4)
    with file.open() as stream:
        assert stream.read(2) == b"\x00\x01"
        stream.seek(256)
        assert stream.read(3) == b"\x00\x01\x02"
        assert len(stream.read()) == 10_240 - 259
    assert [(e.path, e.size) for e in folder.list()] == [("a/a.bin", 1), ("a/b.bin", 10_240)]
    before = file.entry().tag
    file.write(b"new")
    assert file.read() == b"new" and file.entry().tag != before
    folder.delete(["a/a.bin"])
    assert [e.path for e in folder.list()] == ["a/b.bin"]
    folder.delete()
    assert list(folder.list()) == []


def test_local(tmp_path: Path) -> None:
    exercise(Folder(tmp_path / "x"))


@pytest.mark.s3
@pytest.mark.xdist_group("s3")
def test_s3(s3: str) -> None:
    exercise(Folder(s3))


def test_unfinished_local_writes_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "part.parquet#1").write_bytes(b"half")
    (tmp_path / "c#.txt").write_bytes(b"a real name")
    assert [e.path for e in Folder(tmp_path).list()] == ["c#.txt"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/a/b/", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3://bucket/x/y/", "s3://bucket/x/y"),
        ("s3://bucket", "s3://bucket/"),
    ],
)
def test_url(url: str, shown: str) -> None:
    assert Folder(url).url == shown
    assert Folder(Folder(url).url) == Folder(url)


def test_down_and_up() -> None:
    folder = Folder("s3://b/x") / "y/z.txt"
    assert (folder.url, folder.name, folder.parent.url) == ("s3://b/x/y/z.txt", "z.txt", "s3://b/x/y")


def test_unknown_scheme_names_what_is_allowed() -> None:
    with pytest.raises(UserError, match="ftp://.*allowed.*s3"):
        Folder("ftp://host/x")


def test_unwritable_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WorkError, match=r"file/x: cannot write"):
        (Folder(tmp_path) / "file/x").write(b"1")
