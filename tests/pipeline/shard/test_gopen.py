"""`s3://` for plain webdataset, and shards straight to an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import PART, Folder
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.shard.read import gopen, register
from corpusmill.pipeline.shard.stage import Shards
from tests.pipeline.corpus import Here, contents
from tests.pipeline.shard.helpers import build, corpus, indexes, prepared


def test_shards_on_an_object_store_are_those_of_a_disk(s3: str, tmp_path: Path) -> None:
    build(tmp_path, corpus(), format="both", shard_mb=0.02)
    made, here = prepared(tmp_path, corpus(), format="both", shard_mb=0.02)
    target = Folder(s3)
    for stop in (2, 9):  # it goes on at the tar
        with pytest.raises(KeyboardInterrupt):
            Shards(made).run(
                Context(**{**here.__dict__, "folder": target, "scheduler": Here(stop_after=stop)})
            )
        assert not (target / "index.json").exists()
    Shards(made).run(Context(**{**here.__dict__, "folder": target}))
    there = {e.path: (target / e.path).read() for e in target.list() if not e.path.startswith("scratch/")}
    assert there == contents(tmp_path / "shards")

    webdataset = pytest.importorskip("webdataset")
    register()
    folder, index = indexes(target)[-2]
    last = len(index.shardlist) - 1
    url = f"{folder}/{index.name}-{{000000..{last:06d}}}.tar"
    found = list(webdataset.WebDataset(url, shardshuffle=False).decode())
    assert last and [one["__key__"] for one in found] == [b.key for s in index.shardlist for b in s.blocks]
    with pytest.raises(FileNotFoundError):
        gopen(f"{folder}/none.tar").read()


def test_an_upload_of_many_parts_is_seen_when_it_is_whole(s3: str) -> None:
    target = Folder(s3) / "large"
    piece = bytes(range(256)) * 4096
    with pytest.raises(WorkError, match="the disk that it came from went away"), target.create() as stream:
        for _ in range(2 * PART // len(piece) + 3):
            stream.write(piece)
        raise OSError("the disk that it came from went away")
    assert not target.exists()
    with target.create() as stream:
        for _ in range(2 * PART // len(piece) + 3):
            stream.write(piece)
        assert not target.exists()
    assert target.read() == piece * (2 * PART // len(piece) + 3)


def test_only_reading() -> None:
    with pytest.raises(ValueError, match="reading only"):
        gopen("s3://bucket/a.tar", "wb")
