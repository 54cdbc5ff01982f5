"""Where given documents are in finished shards: every segment, of tokens and of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.locate import holding
from corpusmill.pipeline.shard.read import read_block
from corpusmill.schemas.tables import HOLDING
from tests.conftest import Serial
from tests.pipeline.shard.helpers import build, corpus, indexes


def test_every_segment_of_tokens_and_of_text(tmp_path: Path) -> None:
    shards = build(tmp_path, corpus(), format="both")
    docs = corpus().to_pylist()
    chosen = {row["doc_id"]: row for row in [*docs[3:200:17], *docs[240:250], docs[-1]]}
    wanted = []
    for folder, index in indexes(shards):
        for shard in index.shardlist:
            for block in shard.blocks:
                answer = read_block(folder, shard, block).documents
                for doc_id, low, high in zip(
                    answer.doc_ids, answer.char_starts, answer.char_ends, strict=True
                ):
                    if bytes.fromhex(doc_id) in chosen:
                        tar = f"{index.source}/{index.split}/{shard.url}"
                        wanted.append((bytes.fromhex(doc_id), tar, block.key, low, high))
    assert len(wanted) > len(chosen) + 5, "some of them are cut by blocks"
    table = holding(shards, sorted(chosen), Serial())
    assert table.schema == HOLDING
    found = [tuple(row.values()) for row in table.to_pylist()]
    assert found == sorted(found)
    assert [row for row in found if "-text/" not in row[1]] == sorted(wanted)
    texts = [row for row in found if "-text/" in row[1]]
    assert [(row[0], *row[2:]) for row in texts] == [
        (doc_id, doc_id.hex(), 0, len(row["text"])) for doc_id, row in sorted(chosen.items())
    ]
    for doc_id, tar, *_ in texts:
        assert doc_id.hex().encode() in (shards / tar).read()


def test_nobody_and_no_shards(made: Path, tmp_path: Path) -> None:
    assert len(holding(Folder(made / "shards"), [bytes(16)], Serial())) == 0
    assert len(holding(Folder(made / "shards"), [], Serial())) == 0
    one = [row["doc_id"] for row in corpus().to_pylist()[3:5]]
    held = holding(Folder(made / "shards"), one, Serial())
    assert len(held) >= 2 and held == holding(Folder(made), one, Serial()), "a run is as good as its shards"
    with pytest.raises(UserError, match="no shards there"):
        holding(Folder(tmp_path), [bytes(16)], Serial())
