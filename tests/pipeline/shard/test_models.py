"""Shards of Unigram and WordPiece: the library's ids, every text back, characters as the texts have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import decode
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.shard.read import iter_documents, read_block, read_tokenizer
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.split.stage import Split
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from tests.pipeline.corpus import Here, contents, context, partitions, recipe
from tests.pipeline.shard.helpers import PARAMS, corpus, indexes


def built(
    folder: Path, model: str, parts: int = 2, shuffle: int | None = None, form: str = "tokens", **params: Any
) -> Folder:
    """The shards of the hard corpus."""
    made = recipe(
        ["web", "long-texts", "rare", "lone"], split={"validation_share": 0.1},
        tokenizer={"vocab_size": 700, "model": model}, shard={**PARAMS, "format": form, **params},
    )  # fmt: skip
    published = partitions(Folder(folder / "redact"), corpus(), parts, shuffle)
    for stage in (Split, Tokenizer, Shards):
        stage(made).run(context(Folder(folder), made, stage.name, published, Here(reverse=bool(shuffle))))
    return Folder(folder / "shards")


@pytest.mark.parametrize("model", ["unigram", "wordpiece"])
def test_shards_hold_the_librarys_ids_and_every_text(model: str, tmp_path: Path) -> None:
    shards = built(tmp_path, model)
    texts = {row["doc_id"].hex(): row["text"] for row in corpus().select(["doc_id", "text"]).to_pylist()}
    found = 0
    for folder, index in indexes(shards):
        bpe = read_tokenizer(shards / "tokenizer.json", index.eos_id)
        assert index.eos_id == 0 and type(bpe.tokenizer.model).__name__.lower() == model
        for document in iter_documents(folder, index):
            text = texts[document.doc_id]
            assert document.tokens.tolist() == bpe.tokenizer.encode(text, add_special_tokens=False).ids
            assert decode(bpe.tokenizer, document.tokens.tolist()) == text
            found += 1
    assert found == len(texts)
    assert verify_shards(shards) == []


@pytest.mark.parametrize("model", ["unigram", "wordpiece"])
def test_blocks_say_which_characters_they_hold(model: str, tmp_path: Path) -> None:
    """Blocks end inside of documents, and inside of characters, which then belong to both."""
    shards = built(tmp_path, model)
    texts = {row["doc_id"].hex(): row["text"] for row in corpus().select(["doc_id", "text"]).to_pylist()}
    cut = inside = 0
    for folder, index in indexes(shards):
        bpe = read_tokenizer(shards / "tokenizer.json", index.eos_id)
        pieces, bounds = bpe.pieces.data.tobytes(), bpe.pieces.bounds.tolist()
        for shard in index.shardlist:
            for block in shard.blocks:
                data = read_block(folder, shard, block)
                edges = [*data.starts.tolist(), len(data.tokens)]
                for n, doc_id in enumerate(data.documents.doc_ids):
                    ids = [i for i in data.tokens[edges[n] : edges[n + 1]].tolist() if i != index.eos_id]
                    raw = b"".join(pieces[bounds[i] : bounds[i + 1]] for i in ids)
                    first, last = data.documents.char_starts[n], data.documents.char_ends[n]
                    whole = texts[doc_id][first:last].encode()
                    assert raw in whole and len(whole) - len(raw) < 8
                    cut += first > 0
                    inside += len(whole) != len(raw)
    assert cut and inside


@pytest.mark.parametrize("model", ["unigram", "wordpiece"])
def test_partitions_change_no_byte(model: str, tmp_path: Path) -> None:
    first = contents(Path(built(tmp_path / "1", model, 1).url))
    assert contents(Path(built(tmp_path / "3", model, 3, shuffle=5).url)) == first
    assert json.loads(first["index.json"])["vocab_size"] == 700
