"""What a failure of a store means, and which are repeated: a real server behind a proxy that breaks answers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import masked
from corpusmill.common.storage import Folder
from corpusmill.common.stores import Missing, open_store
from tests.faults.proxy import Fault, Request, Server, cut, lost, proxy, refused, reset

CLOUD = ("AWS_", "GOOGLE_", "AZURE_")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No credentials at all."""
    for name in [name for name in os.environ if name.startswith(CLOUD)]:
        monkeypatch.delenv(name)
    open_store.cache_clear()
    yield
    open_store.cache_clear()


@pytest.fixture
def broken(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Folder, Server]]:
    """A folder of the store behind a proxy."""
    with proxy(os.environ["AWS_ENDPOINT_URL"]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        open_store.cache_clear()
        yield Folder(s3), server
    open_store.cache_clear()


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket/a.jsonl", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs://bucket/a.jsonl", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container/a.jsonl", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_missing_credentials_name_the_variables(bare: None, url: str, variable: str) -> None:
    calls: list[Callable[[], object]] = [
        Folder(url).exists,
        Folder(url).read,
        lambda: list(Folder(url).list()),
        lambda: Folder(url).write(b""),
    ]
    with ThreadPoolExecutor(
        len(calls)
    ) as threads:  # each waits while the client looks for the machine's cloud
        for answer in [threads.submit(call) for call in calls]:
            with pytest.raises(UserError, match=variable) as caught:
                answer.result()
            assert "169.254" not in str(caught.value) and "metadata" not in str(caught.value)


@pytest.mark.s3
def test_wrong_credentials_and_a_missing_bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (Folder(s3) / "x").write(b"1")
    nowhere = Folder("s3://no-such-bucket/x")
    for call in (nowhere.read, lambda: nowhere.write(b""), lambda: nowhere.write_new(b"")):
        with pytest.raises(UserError, match="s3://no-such-bucket: no such bucket"):
            call()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    open_store.cache_clear()
    for call in ((Folder(s3) / "x").read, lambda: list(Folder(s3).list()), lambda: Folder(s3).write(b"")):
        with pytest.raises(
            WorkError, match="access is denied to the credentials in the environment"
        ) as caught:
            call()
        assert "AWS_ACCESS_KEY_ID" in str(caught.value) and "not-the-secret" not in str(caught.value)
    open_store.cache_clear()


def test_keys_in_urls_are_refused_and_masked() -> None:
    with pytest.raises(UserError, match=r"s3://\*\*\*@bucket: a key in a URL") as caught:
        Folder("s3://AKIA:hunter2@bucket/x").read()
    assert "hunter2" not in str(caught.value)
    assert masked("at https://u:hunter2@h/x?a=1&X-Amz-Signature=ab12&b=2, s3://t@b") == (
        "at https://***@h/x?a=1&X-Amz-Signature=***&b=2, s3://***@b"
    )
    assert masked("abfss://container@account.dfs.core.windows.net/x mail@example.org") == (
        "abfss://container@account.dfs.core.windows.net/x mail@example.org"
    )


@pytest.mark.s3
def test_broken_answers_are_asked_again(broken: tuple[Folder, Server]) -> None:
    folder, server = broken
    chance, kinds = random.Random(7), (reset, cut, refused(503), refused(500))
    server.policy = lambda request: chance.choice(kinds) if chance.random() < 0.2 else None
    data = random.Random(1).randbytes(300_000)
    for number in range(25):
        (folder / f"{number}.bin").write(data)
        assert (folder / f"{number}.bin").read() == data
        assert (folder / f"{number}.bin").read_range(1000, 70_000) == data[1000:71_000]
        assert (folder / f"{number}.bin").entry().size == len(data)
        with (folder / f"{number}.bin").open(buffer_size=65_536) as stream:
            assert stream.read() == data
        with (folder / f"{number}.parts").create() as sink:
            sink.write(data)
    assert len(list(folder.list())) == 50
    folder.delete([f"{number}.bin" for number in range(25)])
    assert len(list(folder.list())) == 25 and server.faults > 30


@pytest.mark.s3
def test_what_does_not_pass_is_asked_once(broken: tuple[Folder, Server]) -> None:
    folder, server = broken

    def always(fault: Fault) -> int:
        server.policy = lambda request: fault
        before = sum(server.asked.values())
        with pytest.raises((WorkError, Missing)):
            (folder / "x").read()
        return sum(server.asked.values()) - before

    assert always(refused(404)) == always(refused(403)) == 1

    def once(request: Request) -> Fault | None:
        return cut if request.times % 6 < 5 else None

    server.policy = once
    server.asked.clear()
    (folder / "y").write(b"0123456789")
    assert (folder / "y").read() == b"0123456789"


@pytest.mark.s3
@pytest.mark.parametrize("fault", [refused(503), reset, cut, lost], ids=["503", "reset", "cut", "lost"])
def test_conditional_writes_are_asked_again(broken: tuple[Folder, Server], fault: Fault) -> None:
    """A write whose answer was lost has happened: asked again, it meets its own object."""
    folder, server = broken
    server.policy = lambda request: fault if request.method == "PUT" and request.times < 2 else None
    file = folder / "claim"
    assert file.write_new(b"mine") and file.read() == b"mine"
    assert not file.write_new(b"another")
    tag = file.entry().tag
    server.asked.clear()
    assert file.write_over(b"mine again", tag) and file.read() == b"mine again"
    server.asked.clear()
    assert not file.write_over(b"another", tag) and file.read() == b"mine again"
    assert not (folder / "none").write_over(b"1", tag) and not (folder / "none").exists()
    assert server.faults >= 4
