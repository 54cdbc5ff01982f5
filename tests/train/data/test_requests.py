"""Requests: wrong answers and transient errors, whole-range retries, limits, hedging, tags."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Changed, Folder, Missing, Tagged, Truncated
from corpusmill.schemas.data import FetchConfig
from corpusmill.train.data import requests
from corpusmill.train.data.requests import Closed, Damaged, Requests, Wrong

RIGHT = b"right bytes"
SIZE = len(RIGHT)


def check(data: Any) -> bytes:
    if bytes(data) != RIGHT:
        raise Wrong("checksum differs")
    return bytes(data)


class Scripted(Folder):
    """A remote object whose n-th answer is `script(n, if_match)`: bytes, (bytes, tag), an exception, or what comes before
    the next entry of a list counts: a number of seconds, or an event."""

    def __init__(self, script: Callable[[int, str], Any]) -> None:
        super().__init__("s3://bucket/a.tar")
        self.script, self.asked, self.cancelled = script, [], 0  # type: ignore[var-annotated]

    async def read_tagged_async(self, offset: int, size: int, if_match: str = "") -> Tagged:
        number = len(self.asked)
        self.asked.append((offset, size, if_match))
        answer = self.script(number, if_match)
        for part in answer if isinstance(answer, list) else [answer]:
            if isinstance(part, int | float):
                try:
                    await asyncio.sleep(part)
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            elif isinstance(part, threading.Event):
                while not part.is_set():
                    await asyncio.sleep(0.001)
            elif isinstance(part, Exception):
                raise part
            else:
                data, tag = part if isinstance(part, tuple) else (part, "t1")
                return Tagged(data, tag, 1000)
        raise AssertionError("the script ended")


@pytest.fixture
def asking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Requests]:
    monkeypatch.setattr(requests, "FIRST_PAUSE", 0.001)

    def make(logged: list[str] | None = None, **settings: Any) -> Requests:
        made = Requests(FetchConfig(**settings), None if logged is None else logged.append)
        request.addfinalizer(made.close)
        return made

    return make


def test_the_whole_range_is_asked_for_again(asking: Callable[..., Requests]) -> None:
    answers: list[Any] = [
        WorkError("503"),
        RIGHT[:5],
        b"wrong bytes",
        Truncated("416"),
        Missing("404"),
        RIGHT,
    ]
    file = Scripted(lambda number, tag: answers[number])
    reader = asking(attempts=5)
    assert reader.read(file, 7, SIZE, check) == RIGHT
    assert {(offset, size) for offset, size, _ in file.asked} == {(7, SIZE)}
    assert (reader.requests, reader.retries, reader.fetched_bytes) == (6, 5, 5 + 2 * SIZE)


def test_only_wrong_answers_make_damage(asking: Callable[..., Requests]) -> None:
    """Between them, the store may be away as often as it likes."""
    file = Scripted(lambda number, tag: WorkError(f"{number}: 503") if number % 3 else RIGHT[:-1])
    with pytest.raises(Damaged) as damage:
        asking(attempts=4).read(file, 0, SIZE, check)
    assert len(file.asked) == 10 and "truncated: 10 of 11 bytes came (4 times)" in str(damage.value)
    assert "asked 10 times in" in str(damage.value)


def test_a_store_that_is_away_is_no_damage(
    asking: Callable[..., Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]  # seconds: each answer takes one

    def script(number: int, tag: str) -> WorkError:
        clock[0] += 1.0
        return WorkError("s3://bucket/a.tar: cannot read: GET x in 1 ms - 503 Slow")

    monkeypatch.setattr(requests, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(requests.time, "monotonic", lambda: clock[0])
    file = Scripted(script)
    with pytest.raises(WorkError, match=r"^503 Slow \(20 times\); asked 20 times in 20\.0 s$"):
        asking(attempts=1, deadline_s=20.0).read(file, 0, SIZE, check)
    assert len(file.asked) == 20  # as often as the deadline allows, not `attempts`


def test_a_request_is_given_up_and_ended(asking: Callable[..., Requests]) -> None:
    file = Scripted(lambda number, tag: [60, RIGHT] if number < 2 else RIGHT)
    reader = asking(attempt_s=0.05)
    assert reader.read(file, 0, SIZE, check) == RIGHT
    reader.close()
    assert file.cancelled == 2 and len(file.asked) >= 3  # more where an answer takes as long as the limit
    silent = Scripted(lambda number, tag: [60, RIGHT])
    with pytest.raises(WorkError, match=r"no answer within"):
        asking(attempt_s=60, deadline_s=0.1).read(
            silent, 0, SIZE, check
        )  # the deadline limits a request as well
    assert len(silent.asked) <= 1


def warm(reader: Requests) -> None:
    """Answers from which the reader has learned what is slow: all came at once, as far as it knows."""
    for _ in range(40):
        reader.read(Scripted(lambda number, tag: RIGHT), 0, SIZE, check)
    assert reader._slow < float("inf")
    reader._seconds.extend([0.0] * 256)
    reader._slow = requests.FLOOR


@pytest.mark.parametrize("second", [RIGHT, b"wrong bytes", WorkError("503")])
def test_the_first_right_answer_wins(asking: Callable[..., Requests], second: Any) -> None:
    reader = asking()
    warm(reader)
    right = second == RIGHT
    asked_twice = threading.Event()

    def script(number: int, tag: str) -> Any:
        if number:
            asked_twice.set()
            return second
        return [60, RIGHT] if right else [asked_twice, 0.05, RIGHT]

    file = Scripted(script)
    assert reader.read(file, 0, SIZE, check) == RIGHT
    assert (len(file.asked), reader.hedged, reader.retries) == (2, 1, 0)
    reader.close()
    assert file.cancelled == right


def test_a_store_that_is_slow_as_a_whole_is_not_asked_twice_as_much(asking: Callable[..., Requests]) -> None:
    reader = asking()
    warm(reader)
    file = Scripted(lambda number, tag: [0.06, RIGHT])
    for _ in range(30):
        reader._slow = 0.05
        reader.read(file, 0, SIZE, check)
    assert 0 < reader.hedged <= 0.1 * reader.requests + 1


@pytest.mark.parametrize("settings", [{"hedge": False}, {}])
def test_no_second_request(asking: Callable[..., Requests], settings: dict[str, bool]) -> None:
    reader = asking(**settings)
    if settings:
        warm(reader)  # else: too few answers to know what is slow
    file = Scripted(lambda number, tag: [0.1, RIGHT])
    reader.read(file, 0, SIZE, check)
    assert len(file.asked) == 1


def test_every_request_after_the_first_names_the_object(asking: Callable[..., Requests]) -> None:
    reader = asking()
    file = Scripted(lambda number, tag: (b"wrong bytes" if number == 0 else RIGHT, '"e"'))
    reader.read(file, 0, SIZE, check)
    reader.read(file, 0, SIZE, check)
    assert [tag for *_, tag in file.asked] == ["", '"e"', '"e"'] and reader.tag(file) == '"e"'
    fresh = Scripted(lambda number, tag: (b"", '"f"'))
    assert (asking().tag(fresh), fresh.asked) == ('"f"', [(0, 0, "")])
    none = Scripted(lambda number, tag: (RIGHT, ""))  # a store without strong tags
    reader = asking()
    reader.read(none, 0, SIZE, check)
    reader.read(none, 0, SIZE, check)
    assert [tag for *_, tag in none.asked] == ["", ""]


def replaced(data: bytes) -> Callable[[int, str], Any]:
    def script(number: int, tag: str) -> Any:
        if number == 0:
            return RIGHT, "old"
        return Changed("412") if tag == "old" else (data, "new")

    return script


def test_the_same_bytes_in_another_object(asking: Callable[..., Requests]) -> None:
    logged: list[str] = []
    reader, file = asking(logged), Scripted(replaced(RIGHT))
    for _ in range(4):
        assert reader.read(file, 0, SIZE, check) == RIGHT
    assert [tag for *_, tag in file.asked] == ["", "old", "", "new", "new"] and reader.retries == 0
    assert len(logged) == 1 and "s3://bucket/a.tar: replaced since" in logged[0]
    assert "ETag old, now new" in logged[0]


def test_other_bytes_in_another_object(asking: Callable[..., Requests]) -> None:
    logged: list[str] = []
    reader, file = asking(logged, attempts=2), Scripted(replaced(b"wrong bytes"))
    reader.read(file, 0, SIZE, check)
    with pytest.raises(
        Damaged, match=r"checksum differs \(the object was replaced since: ETag old, now new\)"
    ):
        reader.read(file, 0, SIZE, check)
    assert logged == []


def test_closing_ends_what_waits(asking: Callable[..., Requests]) -> None:
    begun = threading.Event()

    def script(number: int, tag: str) -> Any:
        begun.set()
        return [60, RIGHT]

    reader, ended = asking(), []

    def read() -> None:
        try:
            reader.read(Scripted(script), 0, SIZE, check)
        except Closed as error:
            ended.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    reader.close()
    thread.join()
    assert len(ended) == 1
    with pytest.raises(Closed):
        reader.read(Scripted(script), 0, SIZE, check)


def test_a_local_file(asking: Callable[..., Requests], tmp_path: Path) -> None:
    logged: list[str] = []
    reader, file = asking(logged, attempts=2), Folder(tmp_path / "a")
    file.write(b"??" + RIGHT)
    assert reader.read(file, 2, SIZE, check) == RIGHT
    with pytest.raises(
        Damaged, match=r"truncated: 1 of 11 bytes came, for the object ends at byte 13 \(2 times\)"
    ):
        reader.read(file, 12, SIZE, check)
    with pytest.raises(Damaged, match="truncated: ends at byte 13"):
        reader.read(file, 13, SIZE, check)
    with pytest.raises(Damaged, match="not found"):
        reader.read(Folder(tmp_path / "b"), 0, SIZE, check)
    file.write(b"??" + RIGHT + b"!")
    assert reader.read(file, 2, SIZE, check) == RIGHT
    assert len(logged) == 1 and f"{file}: replaced since" in logged[0]
