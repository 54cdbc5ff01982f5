"""The disk cache: its size, what goes first, restarts, several at once, files that are not its own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.data.cache import DiskCache, Range, object_hash

OF = object_hash(Folder("s3://b/a.tar"), '"e"')


def ranges(count: int, of: str = OF) -> list[Range]:
    return [Range(of, 1000 * number, 100) for number in range(count)]


def held(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_what_is_put_is_there_after_a_restart(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "new/folder"), 10_000)
    for number, place in enumerate(ranges(5)):
        cache.put(place, memoryview(bytes([number]) * 100))
    again = DiskCache(str(tmp_path / "new/folder"), 10_000)
    assert [again.get(place) for place in ranges(5)] == [bytes([number]) * 100 for number in range(5)]
    assert again.get(Range(OF, 1000, 99)) is None
    assert again.get(Range(object_hash(Folder("s3://b/a.tar"), '"f"'), 1000, 100)) is None  # another ETag
    assert again.get(Range(object_hash(Folder("s3://c/a.tar"), '"e"'), 1000, 100)) is None  # another store
    again.drop(ranges(1)[0])
    assert again.get(ranges(1)[0]) is None


def test_the_size_holds_across_restarts(tmp_path: Path) -> None:
    for restart in range(4):
        cache = DiskCache(str(tmp_path), 1550)
        for place in ranges(30, object_hash(Folder("s3://b/a.tar"), str(restart))):
            cache.put(place, bytes(100))
            assert held(tmp_path) <= 1550
    assert held(tmp_path) >= 1400
    DiskCache(str(tmp_path), 500)
    assert held(tmp_path) <= 500
    DiskCache(str(tmp_path), 500).put(Range(OF, 0, 501), bytes(501))
    assert not (tmp_path / Range(OF, 0, 501).name).exists()  # larger than all of it


def test_threads_together_keep_to_the_size(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 1600)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda place: cache.put(place, bytes(100)), ranges(300)))
    assert 700 < held(tmp_path) <= 1600  # what is being written counts twice for a moment


def test_what_is_used_last_goes_first_and_the_unknown_before_it(tmp_path: Path) -> None:
    unknown = ranges(3, object_hash(Folder("s3://b/old.tar"), ""))
    uses = {
        place: float("inf") if number == 4 else number * 7 % 10 for number, place in enumerate(ranges(12))
    }

    def use(some: Sequence[Range]) -> list[float | None]:
        return [uses.get(place) for place in some]

    cache = DiskCache(str(tmp_path), 1000, use)
    for age, place in enumerate([*unknown, *ranges(7)]):
        cache.put(place, bytes(100))
        os.utime(tmp_path / place.name, (0, age))
    gone = []
    for place in ranges(12)[7:]:
        before = {file.name for file in tmp_path.iterdir()}
        cache.put(place, bytes(100))
        [name] = before - {file.name for file in tmp_path.iterdir()}
        gone.append(name)
    known = [
        ranges(12)[number].name for number in (4, 7)
    ]  # never used; used at 9, as the two that stay for their lane_position
    assert gone == [*(place.name for place in unknown), *known]


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    """Each notices what the others wrote after 1/16 of the size."""
    caches = [DiskCache(str(tmp_path), 16_000) for _ in range(3)]
    for number in range(200):
        caches[number % 3].put(Range(OF, number, 100), bytes(100))
        assert held(tmp_path) <= 16_000 * (1 + 3 / 16)
    assert caches[0].get(Range(OF, 199, 100)) == caches[1].get(Range(OF, 199, 100)) == bytes(100)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(bytes(5000))
    (tmp_path / "99999-1.part").write_bytes(bytes(100))
    (tmp_path / "99999-2.part").write_bytes(bytes(100))
    os.utime(tmp_path / "99999-2.part", (0, time.time() - 7200))  # of a killed process
    cache = DiskCache(str(tmp_path), 400)
    for place in ranges(9):
        cache.put(place, bytes(100))
    names = {file.name for file in tmp_path.iterdir()}
    assert {"notes.txt", "99999-1.part"} < names and "99999-2.part" not in names
    assert len(names) == 2 + 3  # what another process is writing counts


def test_a_disk_that_fails_is_reported_once(tmp_path: Path) -> None:
    messages: list[str] = []
    cache = DiskCache(str(tmp_path / "cache"), 1000, log=messages.append)
    cache.put(ranges(1)[0], bytes(100))
    (tmp_path / "cache" / ranges(1)[0].name).unlink()
    (tmp_path / "cache").rmdir()
    for place in ranges(3):
        cache.put(place, bytes(100))
    assert len(messages) == 1 and "blocks are no longer kept there: No such file" in messages[0]
    assert cache.get(ranges(1)[0]) is None


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"data\.fetch\.cache: .*file/x: cannot be used: Not a directory; give"
    ):
        DiskCache(str(tmp_path / "file/x"), 1000)
