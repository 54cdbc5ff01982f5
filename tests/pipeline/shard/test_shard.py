"""Shards: every token back to its text, the same bytes for any partitions and after any kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe import load
from corpusmill.pipeline.bpe.load import decode, load_bpe
from corpusmill.pipeline.engine.document_hash import read_validation_groups, split_of
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.shard.read import iter_documents, read_block
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.shard.write import Tokenizer, gather
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.corpus import Here, contents
from tests.pipeline.shard.helpers import build, corpus, indexes, prepared


def test_every_document_is_there_once_and_decodes_to_its_text(made: Path) -> None:
    docs = corpus()
    texts = {i.hex(): t for i, t in zip(docs["doc_id"].to_pylist(), docs["text"].to_pylist(), strict=True)}
    sources = {
        i.hex(): s for i, s in zip(docs["doc_id"].to_pylist(), docs["source"].to_pylist(), strict=True)
    }
    mask = split_of(docs, read_validation_groups(Folder(made / "split")))
    validation = {i.hex() for i in docs.filter(pa.array(mask))["doc_id"].to_pylist()}
    bpe = load_bpe((made / "shards/tokenizer.json").read_bytes(), "<|endoftext|>", "test")
    seen = []
    for folder, index in indexes(Folder(made / "shards")):
        found = list(iter_documents(folder, index))
        assert len(found) == index.ndocs
        assert sum(len(doc.tokens) + 1 for doc in found) == index.ntokens
        assert sum(len(texts[doc.doc_id].encode()) for doc in found) == index.text_bytes
        for doc in found:
            assert decode(bpe.tokenizer, doc.tokens.tolist()) == texts[doc.doc_id]
            assert sources[doc.doc_id] == index.source
            assert (doc.doc_id in validation) == (index.split == "validation")
        seen += [doc.doc_id for doc in found]
    assert sorted(seen) == sorted(texts)


def test_characters_are_those_that_the_tokens_stand_for(made: Path) -> None:
    docs = corpus()
    texts = {i.hex(): t for i, t in zip(docs["doc_id"].to_pylist(), docs["text"].to_pylist(), strict=True)}
    bpe = load_bpe((made / "shards/tokenizer.json").read_bytes(), "<|endoftext|>", "test")
    names = {index: token for token, index in bpe.tokenizer.get_vocab().items()}
    from corpusmill.common.hugging_face import token_bytes

    inside = 0
    for folder, index in indexes(Folder(made / "shards")):
        ends: dict[str, int] = {}
        for shard in index.shardlist:
            for block in shard.blocks:
                data = read_block(folder, shard, block)
                assert len(data.tokens) == index.block_tokens or block is shard.blocks[-1]
                edges = [*data.starts.tolist(), len(data.tokens)]
                parts = zip(
                    data.documents.doc_ids, data.documents.char_starts, data.documents.char_ends, strict=True
                )
                for place, (doc, low, high) in enumerate(parts):
                    ids = [
                        t for t in data.tokens[edges[place] : edges[place + 1]].tolist() if t != bpe.eos_id
                    ]
                    raw = b"".join(token_bytes(names[t]) for t in ids)
                    # A piece of a character at either end belongs to the character, which is counted whole.
                    assert (
                        raw in texts[doc][low:high].encode()
                        and len(texts[doc][low:high].encode()) - len(raw) <= 6
                    )
                    assert low in (ends.get(doc, 0), ends.get(doc, 0) - 1)
                    inside += low == ends.get(doc, 0) - 1
                    ends[doc] = high
        assert all(high == len(texts[doc]) for doc, high in ends.items())
    assert inside  # the corpus cuts a character somewhere, or the case above was not tried


@pytest.mark.parametrize(("parts", "shuffle"), [(1, None), (2, None), (7, None), (7, 5)])
def test_partitions_and_task_order_change_no_byte(
    made: Path, tmp_path: Path, parts: int, shuffle: int | None
) -> None:
    build(tmp_path, corpus(), parts, shuffle)
    assert contents(tmp_path / "shards") == contents(made / "shards")


def test_documents_are_shuffled_and_another_seed_shuffles_otherwise(made: Path, tmp_path: Path) -> None:
    folder, index = indexes(Folder(made / "shards"))[-2]
    order = [doc.doc_id for doc in iter_documents(folder, index)]
    corpus_order = [i.hex() for i in corpus()["doc_id"].to_pylist() if i.hex() in set(order)]
    assert index.source == "web" and order != corpus_order and order != sorted(order)
    recipe_, here = prepared(tmp_path, corpus())
    other = Recipe.model_validate({**recipe_.model_dump(), "seed": 1})
    Shards(other).run(Context(**{**here.__dict__, "recipe": other}))
    assert {
        d.doc_id
        for d in iter_documents(
            Folder(tmp_path / "shards/web/train"), indexes(Folder(tmp_path / "shards"))[-2][1]
        )
    } == set(order)
    assert [d.doc_id for d in iter_documents(*indexes(Folder(tmp_path / "shards"))[-2])] != order


def test_kills_change_no_byte(made: Path, tmp_path: Path) -> None:
    whole = contents(made / "shards")
    stage, here = prepared(tmp_path, corpus())
    for stop in (1, 2, 4, 5, 8):
        with pytest.raises(KeyboardInterrupt):
            Shards(stage).run(Context(**{**here.__dict__, "scheduler": Here(stop_after=stop)}))
        assert not (tmp_path / "shards/index.json").exists()
    Shards(stage).run(here)
    assert contents(tmp_path / "shards") == whole


@pytest.mark.parametrize("lost", ["*.tar", "*.idx", "index.json", "done.json", "key.json", "scratch"])
def test_lost_files_are_made_again(made: Path, tmp_path: Path, lost: str) -> None:
    import shutil

    stage, here = prepared(tmp_path, corpus())
    with pytest.raises(KeyboardInterrupt):  # the markers of phase 1 and some of phase 2
        Shards(stage).run(Context(**{**here.__dict__, "scheduler": Here(stop_after=7)}))
    _lose(tmp_path / "shards", lost)
    Shards(stage).run(here)
    assert contents(tmp_path / "shards") == contents(made / "shards")
    _lose(tmp_path / "shards", lost)
    Shards(stage).run(here)
    assert contents(tmp_path / "shards") == contents(made / "shards")
    if lost == "scratch":
        shutil.rmtree(tmp_path / "shards")


def _lose(folder: Path, pattern: str) -> None:
    import shutil

    for file in sorted(folder.rglob(pattern))[::2]:
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def test_a_damaged_token_file_is_not_used(tmp_path: Path) -> None:
    stage, here = prepared(tmp_path, corpus())
    with pytest.raises(KeyboardInterrupt):
        Shards(stage).run(Context(**{**here.__dict__, "scheduler": Here(stop_after=3)}))
    file = sorted((tmp_path / "shards/scratch/tokens").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(WorkError, match="bytes changed"):
        Shards(stage).run(here)


def test_documents_that_are_in_no_shard_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.shard.write.gather", lambda routed: gather(routed)[1:])
    stage, here = prepared(tmp_path, corpus())
    with pytest.raises(WorkError, match=r"shard: 253 documents came in, 252 are in the shards"):
        Shards(stage).run(here)
    assert not (tmp_path / "shards/index.json").exists()


def test_other_parameters_leave_no_old_shard(made: Path, tmp_path: Path) -> None:
    stage, here = prepared(tmp_path, corpus(), shard_mb=0.002)
    Shards(stage).run(here)
    many = len(list((tmp_path / "shards").rglob("*.tar")))
    other, there = prepared(tmp_path, corpus())
    Shards(other).run(there)
    assert contents(tmp_path / "shards") == contents(made / "shards")
    assert len(list((tmp_path / "shards").rglob("*.tar"))) < many


def test_a_finished_run_does_nothing(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, here = _again(made)
    monkeypatch.setattr(Here, "map", lambda *_: pytest.fail("worked again"))
    files, counters = Shards(stage).run(here)
    assert counters["documents"] == len(corpus())
    assert {f.path for f in files} == set(contents(made / "shards"))
    for file in files:
        assert (made / "shards" / file.path).stat().st_size == file.bytes


def _again(made: Path) -> tuple[Recipe, Context]:
    return prepared(made, corpus())


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    stage, here = prepared(tmp_path, corpus())
    file = tmp_path / "tokenizer/tokenizer.json"
    content = json.loads(file.read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 70_000, "content": "<|far|>"})
    content["model"]["vocab"]["<|far|>"] = 70_000
    file.write_text(json.dumps(content))
    Shards(stage).run(here)
    for folder, index in indexes(Folder(tmp_path / "shards")):
        assert (index.dtype, index.vocab_size) == ("uint32", 70_001)
        assert read_block(folder, index.shardlist[0], index.shardlist[0].blocks[0]).tokens.dtype == np.uint32
    assert verify_shards(Folder(tmp_path / "shards")) == []


def test_empty_splits_are_left_out(made: Path) -> None:
    names = [index.name for _, index in indexes(Folder(made / "shards"))]
    assert names[:-2] == [
        "lone-train",
        "long-texts-train",
        "long-texts-validation",
        "rare-train",
        "rare-validation",
    ]
    names = names[-2:]
    assert names == ["web-train", "web-validation"]


def test_several_shards_and_their_counts(made: Path) -> None:
    for _, index in indexes(Folder(made / "shards")):
        assert [s.url for s in index.shardlist] == [
            f"{index.name}-{i:06d}.tar" for i in range(len(index.shardlist))
        ]
        assert index.ntokens == sum(block.ntokens for s in index.shardlist for block in s.blocks)
    assert len(indexes(Folder(made / "shards"))[-2][1].shardlist) > 1


def test_a_stage_in_one_process_loads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, loaded = load.library, []

    def noted(data: bytes, where: str) -> Any:
        loaded.append(where)
        return library(data, where)

    stage, here = prepared(tmp_path, corpus())
    monkeypatch.setattr(load, "library", noted)
    file = tmp_path / "tokenizer/tokenizer.json"
    file.write_bytes(file.read_bytes() + b" \n \n")  # bytes that no other test has loaded
    Shards(stage).run(here)
    assert len(here.partitions) > 1
    assert loaded == [str(Folder(file))]


def test_errors_name_the_users_file(made: Path, tmp_path: Path) -> None:
    given = Folder(tmp_path / "mine.json")
    with pytest.raises(UserError, match=r"mine\.json: no special token '</s>' to end documents"):
        Tokenizer(Folder(made / "shards/tokenizer.json"), "</s>", given).load()
