"""A task runs once for its key, and again when its files are not what its marker names."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.checkpoints import once, seal, unseal
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.schemas.manifest import Marker


class Work:
    """A task that counts how often it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = Folder(str(folder)), 0

    def __call__(self, key: str, read_files: bool = False) -> Marker:
        def make() -> Marker:
            self.runs += 1
            return Marker(key=key, files=[publish_bytes(self.folder, "a/data", b"some bytes")])

        return once(Marker, self.folder / "done/task.json", key, self.folder, make, read_files=read_files)


def test_it_runs_once_for_a_key(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert work("k1") == work("k1") and work.runs == 1
    assert work("k2").key == "k2" and work.runs == 2
    assert work("k2").key == "k2" and work.runs == 2


@pytest.mark.parametrize("damage", ["missing", "cut", "marker cut", "marker of something else"])
def test_what_is_not_whole_is_made_again(tmp_path: Path, damage: str) -> None:
    work = Work(tmp_path)
    made = work("k")
    data, marker = tmp_path / "a/data", tmp_path / "done/task.json"
    if damage == "missing":
        data.unlink()
    elif damage == "cut":
        data.write_bytes(b"some")
    elif damage == "marker cut":
        marker.write_bytes(marker.read_bytes()[:-3])
    else:
        marker.write_text('{"kind": "other"}')
    assert work("k") == made and work.runs == 2
    assert data.read_bytes() == b"some bytes"


def test_changed_bytes_of_the_same_size_are_noticed_where_files_are_read(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work("k")
    (tmp_path / "a/data").write_bytes(b"SOME bytes")
    work("k")
    assert work.runs == 1, "readers check these"
    work("k", read_files=True)
    assert work.runs == 2


def test_a_seal_shows_a_changed_byte() -> None:
    sealed = seal(b'{"a": 1}\n')
    assert unseal(sealed) == b'{"a": 1}\n'
    assert unseal(sealed.replace(b"1}", b"2}")) is None and unseal(b"") is None and unseal(b"no seal") is None
