"""`gs://` and `az://` against local emulators: everything that a run asks of a store, and a whole run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.object_store import BUCKET, NoServer
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import PART, Changed, Folder, Truncated
from corpusmill.common.stores import open_store
from corpusmill.pipeline.engine.owner import Claim, owner_of
from tests.common.test_storage import awaited
from tests.e2e.cli import corpusmill, difference, published
from tests.emulators import azurite, fake_gcs
from tests.operations.conftest import write_tiny_recipe

SERVERS = {"az": azurite, "gs": fake_gcs}


@pytest.fixture(scope="module", params=sorted(SERVERS))
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket, and an environment in which it can be reached."""
    scheme = request.param
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            SERVERS[scheme](tmp_path_factory.mktemp(scheme)) as environment,
        ):
            for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            open_store.cache_clear()
            yield f"{scheme}://{BUCKET}"
    except NoServer as reason:
        pytest.skip(f"{scheme}: {reason}")
    finally:
        open_store.cache_clear()


def test_objects(cloud: str) -> None:
    folder = Folder(cloud) / "objects"
    assert list(folder.list()) == [] and not (folder / "a").exists()
    (folder / "a/b c+%é.txt").write(b"hello world")
    (folder / "a/z").write(b"")
    (folder / "ab").write(b"1")
    assert [(entry.path, entry.size) for entry in folder.list()] == [
        ("a/b c+%é.txt", 11),
        ("a/z", 0),
        ("ab", 1),
    ]
    file = folder / "a/b c+%é.txt"
    listed = next(iter(folder.list()))
    assert file.exists() and file.read() == b"hello world" and file.entry().size == 11
    assert listed.tag.strip('"') == file.entry().tag.strip('"') != ""
    assert file.read_range(6, 5) == b"world"
    assert list(folder.read_ranges([(listed.path, 0, 5), ("ab", 0, 1)])) == [b"hello", b"1"]
    with pytest.raises(Truncated):
        file.read_range(6, 50)
    with pytest.raises(FileNotFoundError):
        (folder / "none").read()
    tag = file.entry().tag
    file.write(b"another")
    assert file.read() == b"another" and file.entry().tag != tag


def test_streams_larger_than_a_part(cloud: str) -> None:
    file = Folder(cloud) / "streams/large"
    block = bytes(range(256)) * 4096
    with file.create() as stream:
        for _ in range(2 * PART // len(block) + 3):
            stream.write(block)
    size = 2 * PART + 3 * len(block)
    assert file.entry().size == size
    with file.open(buffer_size=1 << 20) as stream:
        stream.seek(size - 300)
        assert stream.read() == block[-300:]
    with pytest.raises(WorkError, match="breaks off"), (file.parent / "broken").create() as stream:
        stream.write(block)
        raise WorkError("the work breaks off")
    assert [entry.path for entry in file.parent.list()] == ["large"]


def test_reads_of_the_loader(cloud: str) -> None:
    file = Folder(cloud) / "loader/a"
    file.write(b"0123456789")
    first = awaited(file.read_tagged_async(2, 3))
    assert (first.data, first.size) == (b"234", 10)
    assert awaited(file.read_tagged_async(2, 3, first.tag)).data == b"234"
    with pytest.raises(Truncated):
        awaited(file.read_tagged_async(100, 3))
    if cloud.startswith("az"):  # fake-gcs-server has no conditional reads
        file.write(b"abcdefghij")
        with pytest.raises(Changed):
            awaited(file.read_tagged_async(2, 3, first.tag))


def test_many_are_deleted_though_some_are_missing(cloud: str) -> None:
    folder = Folder(cloud) / "delete"
    names = [f"{number:03d}" for number in range(40)]
    list(folder.at_once(lambda name: (folder / name).write(b"x"), names))
    folder.delete(["none", *names[:20], "none either", *names[20:39]])
    assert [entry.path for entry in folder.list()] == names[39:]
    folder.delete()
    folder.delete()
    assert list(folder.list()) == []


def test_conditional_writes_have_one_winner(cloud: str) -> None:
    file = Folder(cloud) / "conditions/owner.json"
    won: list[bytes] = []

    def race(write: str, tag: str = "", again: str = "") -> None:
        won.clear()

        def one(number: int) -> None:
            data = f"{write} {number}{again}".encode()  # of this writer alone
            if file.write_new(data) if write == "new" else file.write_over(data, tag):
                won.append(data)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    race("new")
    assert won == [file.read()]
    old = file.entry().tag
    race("over", old)
    assert won == [file.read()] and won[0].startswith(b"over")
    race("over", old, "again")
    assert won == []
    file.parent.delete()
    assert not file.write_over(b"x", old) and not file.exists()


def test_one_owner(cloud: str) -> None:
    folder = Folder(cloud) / "owned"
    with Claim(folder, print) as claim:
        claim.check()
        with pytest.raises(UserError, match="in use by process"):
            Claim(folder).__enter__()
    assert owner_of(folder) is None


def test_a_missing_bucket(cloud: str) -> None:
    folder = Folder(f"{cloud.partition('://')[0]}://no-such-bucket") / "a"
    with pytest.raises(UserError, match="no such bucket"):
        folder.write(b"x")
    if cloud.startswith("az"):  # fake-gcs-server answers 500 to a listing
        with pytest.raises(UserError, match="no such bucket"):
            list(folder.list())


@pytest.mark.slow
def test_a_run(cloud: str, tiny: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = write_tiny_recipe(tmp_path / "tiny.yaml", corpus, f"{cloud}/run")
    corpusmill("run", recipe, "--workers", "1")
    corpusmill("verify", f"{cloud}/run")
    for entry in (Folder(cloud) / "run").list():
        (Folder(tmp_path / "copy") / entry.path).write((Folder(cloud) / "run" / entry.path).read())
    assert not difference(published(tmp_path / "copy"), published(tiny))
