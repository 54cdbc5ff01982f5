from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import IN_FLIGHT, Changed, Folder, Tagged, Truncated
from corpusmill.common.stores import open_store


def exercise(folder: Folder) -> None:
    file = folder / "a/b.bin"
    with pytest.raises(FileNotFoundError):
        file.read()
    assert not file.exists()
    file.write(bytes(range(256)) * 40)
    (folder / "a/a.bin").write(b"x")
    assert file.exists() and file.entry().size == 10_240
    assert file.read()[255] == 255
    assert file.read_range(3, 4) == bytes([3, 4, 5, 6]) and file.read_range(3, 0) == b""
    with pytest.raises(WorkError, match="truncated|cannot read"):
        file.read_range(10_238, 4)
    ranges = [("a/b.bin", start, 7) for start in range(0, 10_000, 31)] + [("a/a.bin", 0, 1)]
    whole = file.read()
    assert list(folder.read_ranges(ranges)) == [whole[i : i + 7] for _, i, _ in ranges[:-1]] + [b"x"]
    found = folder.read_ranges([*ranges[:40], ("a/missing", 0, 1), *ranges])
    assert [next(found) for _ in range(40)]
    with pytest.raises(FileNotFoundError, match="a/missing: not found"):
        next(found)
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


def test_reads_of_a_remote_store_are_in_flight_together() -> None:
    folder = Folder("memory://flight")
    gate = threading.Barrier(IN_FLIGHT)

    def call(item: int) -> int:
        gate.wait(timeout=30)  # broken unless so many wait at once
        return item

    assert list(folder.at_once(call, range(2 * IN_FLIGHT))) == list(range(2 * IN_FLIGHT))
    taken: list[int] = []
    some = folder.at_once(lambda item: taken.append(item) or item, iter(range(1000)))
    assert next(some) == 0
    some.close()
    assert len(taken) <= IN_FLIGHT, "no more is asked for than may lie in memory"


def awaited(answer: Coroutine[Any, Any, Any]) -> Any:
    """What it gives, by a loop in a thread of its own: a browser test may have left one running in this."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer).result()


@pytest.mark.s3
def test_s3(s3: str) -> None:
    exercise(Folder(s3))


@pytest.mark.s3
def test_a_bucket_that_is_not_there_is_reported(s3: str) -> None:
    file = Folder("s3://no-such-bucket-there/a.bin")
    with pytest.raises(UserError, match="s3://no-such-bucket-there: no such bucket"):
        file.write(b"x")
    with pytest.raises(UserError) as caught:
        list(file.parent.list())  # what `run` asks first of an output
    expected = (
        "s3://no-such-bucket-there: no such bucket, or no right to see it; create it, or check its name"
    )
    assert str(caught.value) == expected
    with pytest.raises(UserError, match="s3://no-such-bucket-there: no such bucket"), file.create() as out:
        out.write(b"x")


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


def test_what_is_missing_while_another_file_is_written_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"/source: not found"), (folder / "target").create() as out:
        out.write((folder / "source").read())
    assert list(folder.list()) == []


def test_a_stream_of_a_remote_file_that_went_away_names_it() -> None:
    file = Folder("memory://went/a.bin")
    file.write(bytes(100))
    stream = file.open()
    file.parent.delete()
    with pytest.raises(FileNotFoundError, match="memory://went/a.bin: not found"):
        stream.read(10)


@pytest.mark.s3
def test_a_tag_names_the_object_on_every_store(s3: str, tmp_path: Path) -> None:
    for url in (str(tmp_path), "memory://tagged", s3):
        file = Folder(url) / "a.bin"

        def ask(offset: int, size: int, tag: str = "", file: Folder = file) -> Tagged:
            if file.local:
                return file.read_tagged(offset, size, tag)
            return awaited(file.read_tagged_async(offset, size, tag))

        with pytest.raises(FileNotFoundError, match="not found"):
            ask(0, 4)
        file.write(b"0123456789")
        first = ask(2, 3)
        assert (bytes(first.data), first.size) == (b"234", 10) and first.tag
        assert bytes(ask(8, 5, first.tag).data) == b"89"
        assert ask(0, 0) == (b"", first.tag, 10)
        file.write(b"0123456789!")
        with pytest.raises(Changed, match="another one"):
            ask(2, 3, first.tag)
        assert bytes(ask(2, 3).data) == b"234" and ask(0, 0).tag != first.tag
        if url != "memory://tagged":
            with pytest.raises(Truncated, match="truncated: ends"):
                ask(11, 3)


def test_one_request_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store refuses is not asked for again behind the caller's back, as all other reads are."""
    asked: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["If-Match"])
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in (("ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}"), ("REGION", "x")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        open_store.cache_clear()
        with pytest.raises(WorkError, match=r"s3://busy/a: cannot read: .*503 Service Unavailable"):
            awaited(Folder("s3://busy/a").read_tagged_async(0, 4, '"tag"'))
        server.shutdown()
    open_store.cache_clear()
    assert asked == ['"tag"']


def test_a_claim_that_is_released_while_it_is_read_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may delete the object at any moment, also between our refused write and our look at who holds it."""
    file, read = Folder("memory://claims/owner.json"), Folder.read
    file.write(b"theirs")

    def released(self: Folder) -> bytes:
        self.parent.delete([self.name])
        return read(self)

    monkeypatch.setattr(Folder, "read", released)
    assert not file.write_new(b"ours")
    assert file.write_new(b"ours")
