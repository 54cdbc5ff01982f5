"""Files on web servers: with ranges and without, cut, changed, of unknown length."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common import http_files
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import without_query
from corpusmill.common.http_files import HttpFile, HttpStatus, Unseekable, look_up
from corpusmill.common.storage import Folder
from tests.web import Answer, Server, files_of, serving

DATA = bytes(range(251)) * 8_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_files, "BACKOFF", 0.001)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(files_of({"/a/data.bin": DATA, "/empty": b""})) as server:
        yield server


def test_a_folder_of_a_web_server(server: Server) -> None:
    file = Folder(f"{server.url}/a/data.bin")
    assert file.exists() and not Folder(f"{server.url}/a/other").exists()
    entry = file.entry()
    assert entry.size == len(DATA) and entry.tag.startswith('"')
    with file.open(size=entry.size) as stream:
        assert stream.read() == DATA
    assert file.read() == DATA and file.read_range(10, 5) == DATA[10:15]
    assert Folder(f"{server.url}/empty").entry().size == 0
    with Folder(f"{server.url}/empty").open() as stream:
        assert stream.read() == b""


def test_a_query_is_sent_and_not_shown(server: Server) -> None:
    file = Folder(f"{server.url}/a/data.bin?signature=secret")
    with file.open() as stream:
        assert stream.read(10) == DATA[:10]
    assert all(asked.path == "/a/data.bin?signature=secret" for asked in server.asked)
    server.faults.append(lambda asked: Answer(403))
    with pytest.raises(WorkError, match=r"/a/data.bin: HTTP 403") as error, file.open():
        pass
    assert "secret" not in str(error.value)
    with pytest.raises(UserError, match="user or password") as refused:
        Folder("https://me:secret@host/a").entry()
    assert "secret" not in str(refused.value)
    assert without_query("https://u:p@h:1/a?b#c") == "https://h:1/a"


@settings(max_examples=30)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(DATA) + 10), st.integers(0, 700_000)), min_size=1, max_size=8
    ),
    ranges=st.booleans(),
    cut=st.integers(0, 300_000),
)
def test_any_reads_give_the_bytes(steps: list[tuple[int, int]], ranges: bool, cut: int) -> None:
    """Whether the server gives ranges or not, and with a connection that is cut once."""
    with serving(lambda asked: Answer(200, DATA, {"ETag": '"1"'}, ranges=ranges)) as server:
        server.once(lambda asked: True, Answer(200, DATA, {"ETag": '"1"'}, ranges=ranges, cut=cut))
        with io.BufferedReader(HttpFile(server.url, len(DATA)), 1 << 16) as file:
            for place, size in steps:
                file.seek(place)
                assert file.read(size) == DATA[place : place + size]


def test_a_server_without_ranges_is_read_once_from_front_to_back(server: Server) -> None:
    server.respond = lambda asked: Answer(200, DATA, ranges=False)
    with Folder(f"{server.url}/x").open(size=len(DATA)) as file:
        assert b"".join(iter(lambda: file.read(100_000), b"")) == DATA
    assert len(server.asked) == 1


def test_what_is_too_large_for_random_access_without_ranges(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.respond = lambda asked: Answer(200, DATA, ranges=False)
    with HttpFile(f"{server.url}/x", len(DATA)) as file:
        file.seek(1_000_000)
        assert file.read(1000) == DATA[1_000_000:1_001_000]
        file.seek(5)
        assert file.read(5) == DATA[5:10] and len(server.asked) == 1
    monkeypatch.setattr(http_files, "SPOOL_BYTES", len(DATA) - 1)
    with HttpFile(f"{server.url}/x", len(DATA)) as file, pytest.raises(Unseekable, match="no byte ranges"):
        file.seek(1_000_000)
        file.read(1)


def test_another_file_of_the_same_name(server: Server) -> None:
    with HttpFile(f"{server.url}/a/data.bin", len(DATA)) as file:
        assert file.read(10) == DATA[:10]
        server.respond = files_of({"/a/data.bin": DATA[:-1] + b"x"})
        file.seek(len(DATA) - 10)
        with pytest.raises(WorkError, match="changed while it was read; run the command again"):
            file.read(10)
    with (
        HttpFile(f"{server.url}/a/data.bin", len(DATA) + 1) as file,
        pytest.raises(WorkError, match="changed"),
    ):
        file.read(10)


def test_looking_up(server: Server) -> None:
    url = f"{server.url}/a/data.bin"
    server.once(lambda asked: asked.method == "HEAD", Answer(403))  # as of an address signed for GET
    assert look_up(url).size == len(DATA)
    server.respond = lambda asked: Answer(200, DATA, {"Transfer-Encoding": "chunked"}, ranges=False)
    assert look_up(url) == (len(DATA), ""), "no length, no ETag, no date"
    with HttpFile(url, len(DATA)) as file:
        assert io.BufferedReader(file).read() == DATA
    server.respond = lambda asked: Answer(200, DATA, {"Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"})
    assert look_up(url) == (len(DATA), "Sun, 06 Nov 1994 08:49:37 GMT")
    server.respond = lambda asked: Answer(404)
    with pytest.raises(FileNotFoundError):
        look_up(url)
    server.respond = lambda asked: Answer(401)
    with pytest.raises(HttpStatus, match="HTTP 401"):
        look_up(url)
    server.respond = lambda asked: Answer(302, b"", {"Location": "file:///etc/passwd"})
    with pytest.raises(WorkError, match="cannot be reached"):
        look_up(url)


def test_a_connection_that_is_always_cut(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_files, "RETRIES", 2)
    server.faults.append(lambda asked: Answer(200, DATA, cut=0))
    with HttpFile(f"{server.url}/x", len(DATA)) as file, pytest.raises(WorkError, match="3 times in a row"):
        file.read(10)


def test_a_server_says_how_long_to_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waited.append)
    for status, seconds in ((429, "7"), (503, "100000")):
        server.once(lambda asked: True, Answer(status, b"", {"Retry-After": seconds}))
    assert look_up(f"{server.url}/a/data.bin").size == len(DATA)
    assert waited == [7, http_files.RETRY_AFTER_MAX], "but no longer than that"


def test_proxies_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    server.respond = lambda asked: Answer(200, b"proxied")
    assert Folder("http://corpus.invalid/a.txt?b=c").open().read() == b"proxied"
    assert server.asked[-1].path == "http://corpus.invalid/a.txt?b=c"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert look_up(f"{server.url}/x").size == 7 and server.asked[-1].path == "/x"
