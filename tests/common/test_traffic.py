"""Requests and bytes are counted as a store would count them."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common import storage, traffic
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.common.traffic import TRAFFIC, Amounts


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path) if request.param == "local" else Folder(f"memory://bucket/{tmp_path.name}")


def since(before: Amounts) -> Amounts:
    return TRAFFIC.total.minus(before)


def test_every_request_counts_once(place: Folder) -> None:
    before = TRAFFIC.total
    (place / "a").write(b"x" * 10)
    assert since(before) == Amounts(puts=1, written=10)
    (place / "a").read()
    (place / "a").read_range(2, 3)
    assert since(before) == Amounts(gets=2, puts=1, read=13, written=10)
    assert (place / "a").exists() and (place / "a").entry().size == 10
    with pytest.raises(FileNotFoundError):
        (place / "b").read()  # the answer that it is not there is one too
    assert since(before) == Amounts(gets=5, puts=1, read=13, written=10)


def test_a_listing_counts_its_pages(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcde":
        (place / name).write(b"")
    before = TRAFFIC.total
    list(place.list())
    assert since(before).lists == 1
    monkeypatch.setattr(traffic, "PAGE", 2)
    list(place.list())
    assert since(before).lists == 1 + 3


def test_a_stream_counts_its_parts(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TRAFFIC.total
    with (place / "small").create() as stream:
        stream.write(b"x" * 100)
    assert since(before) == Amounts(puts=1, written=100)
    with (place / "large").create() as stream:
        stream.write(memoryview(b"x" * (storage.PART * 2 + 1)))
    parts = since(before).minus(Amounts(puts=1, written=100))
    assert parts == Amounts(puts=2 + 3, written=storage.PART * 2 + 1)


def test_a_stream_that_fails_writes_nothing(place: Folder) -> None:
    before = TRAFFIC.total
    with pytest.raises(WorkError), (place / "x").create() as stream:
        stream.write(b"x")
        raise WorkError("no text")
    assert since(before) == Amounts()
