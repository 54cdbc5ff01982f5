"""Tars whose every checksum fits, and whose contents do not: `verify` checks their contents, not only their bytes."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.shard.read import members, read_index, read_tokenizer
from corpusmill.schemas.shards import Block
from tests.faults.shards import changed, headers, run, small, tars  # noqa: F401 (fixtures)
from tests.pipeline.shard.helpers import rewritten

Parts = dict[str, bytearray]  # a block's payloads, by suffix


def refitted(shards: Path, of: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the index of a (source, split), and its entry in the set's list."""
    rewritten(shards, f"{of}/index.json", change)
    data = json.loads((shards / of / "index.json").read_bytes())

    def update_totals(top: dict[str, Any]) -> None:
        entry = next(e for e in [*top["sets"], *top["texts"]] if e["index"] == f"{of}/index.json")
        entry |= {name: data[name] for name in ("ntokens", "ndocs", "text_bytes") if name in entry}

    rewritten(shards, "index.json", update_totals)


def token(bpe: Bpe, lead: int, size: int) -> int:
    """One that begins so many characters and stands for so many bytes."""
    some = (bpe.lead_bytes == lead) & (bpe.byte_lengths == size) & ~bpe.inside
    some |= (bpe.lead_bytes == lead) & (bpe.byte_lengths == size) & (lead == 0)
    return int(np.flatnonzero(some)[0])


def tokens_of(parts: Parts, block: Block) -> npt.NDArray[np.uint16]:
    return np.frombuffer(parts[".tokens.npy"], np.uint16, offset=block.header)


def outside(parts: Parts, block: Block, bpe: Bpe) -> None:
    tokens_of(parts, block)[3] = 60_000


def joined(parts: Parts, block: Block, bpe: Bpe) -> None:
    tokens = tokens_of(parts, block)
    tokens[np.flatnonzero(tokens == bpe.eos_id)[0]] = token(bpe, 0, 1)


def endless(parts: Parts, block: Block, bpe: Bpe) -> None:
    tokens_of(parts, block)[-1] = token(bpe, 0, 1)


def longer(parts: Parts, block: Block, bpe: Bpe) -> None:
    tokens = tokens_of(parts, block)
    short = (bpe.lead_bytes[tokens] == 1) & (bpe.byte_lengths[tokens] == 1)
    tokens[np.flatnonzero(short)[0]] = token(bpe, 1, 3)


def later(parts: Parts, block: Block, bpe: Bpe) -> None:
    text = parts[".json"]
    at = text.index(b",0", text.index(b'"char_starts"'))
    text[at + 1 : at + 2] = b"1"


@pytest.mark.parametrize(
    ("change", "which", "message"),
    [
        (outside, 0, "token 60000 is not in the vocabulary of"),
        (joined, 0, "documents do not begin where the one before ends"),
        (endless, -1, "its last document has no end"),
        (longer, 0, "bytes of text, the index says"),
        (later, 0, "a document does not begin at its first character"),
    ],
)
def test_a_block(made: Path, tmp_path: Path, change: Any, which: int, message: str) -> None:
    shards = tmp_path / "shards"
    shutil.copytree(made / "shards", shards)
    index = read_index(Folder(shards / "web/train/index.json"))
    bpe = read_tokenizer(Folder(shards / "tokenizer.json"), index.eos_id)
    block, file = index.shardlist[0].blocks[which], shards / "web/train" / index.shardlist[0].url
    data = file.read_bytes()
    parts = {suffix: bytearray(data[at : at + size]) for suffix, at, size, _ in members(block)}
    change(parts, block, bpe)
    for suffix, at, size, _ in members(block):
        assert len(parts[suffix]) == size
        data = data[:at] + parts[suffix] + data[at + size :]
    file.write_bytes(data)

    def fit(index: dict[str, Any]) -> None:
        index["shardlist"][0]["sha256"] = hashlib.sha256(data).hexdigest()
        names = {".tokens.npy": "xxh3", ".docs.npy": "docs_xxh3", ".json": "json_xxh3"}
        index["shardlist"][0]["blocks"][which] |= {n: checksum(bytes(parts[s])) for s, n in names.items()}

    assert verify_shards(Folder(made / "shards")) == []
    refitted(shards, "web/train", fit)
    (problem,) = verify_shards(Folder(shards))
    assert problem.startswith(f"{file}: ") and message in problem


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"source":"web"', b'"source":"wob"', ".json: of wob: "),
        (b'"locator":"', b'"locator":0"', ".json: not what is said of a document"),
        (b'{"doc_id":"', b'{"doc_id":"0000', ".json: of web: 0000"),
    ],
)
def test_what_is_reported_about_a_text(run: Path, old: bytes, new: bytes, message: str) -> None:
    file = tars(run, "web/train-text")[0]
    name, at, _ = headers(file)[1]
    changed(file, lambda data: _overwrite(data, data.index(old, at), new))

    def fit(index: dict[str, Any]) -> None:
        index["shardlist"][0]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()

    refitted(run / "shards", "web/train-text", fit)
    problems = verify_shards(Folder(run / "shards"))
    assert problems and problems[0].startswith(f"{file}: {name.partition('.')[0]}{message}"), problems


def _overwrite(data: bytearray, at: int, new: bytes) -> None:
    data[at : at + len(new)] = new


@pytest.mark.parametrize("name", ["ndocs", "text_bytes"])
def test_totals_of_texts(run: Path, name: str) -> None:
    def more(index: dict[str, Any]) -> None:
        index[name] += 1
        index["shardlist"][0][name] += 1

    refitted(run / "shards", "web/train-text", more)
    (problem,) = verify_shards(Folder(run / "shards"))
    assert problem.startswith(f"{tars(run, 'web/train-text')[0]}: ") and "documents and " in problem


def test_blocks_that_are_cut_otherwise(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "shards", tmp_path / "shards")
    refitted(tmp_path / "shards", "web/train", lambda index: index.update(block_tokens=128))
    problems = verify_shards(Folder(tmp_path / "shards"))
    assert problems and all("not of 128 tokens, and not the last block" in p for p in problems), problems


@pytest.mark.parametrize("kind", ["web/train", "web/train-text"])
def test_another_tar_than_the_one_that_was_published(run: Path, kind: str) -> None:
    """Tar and lists belong together; the stage's manifest tells of another."""
    file = run / "shards/manifest.json"
    data = json.loads(file.read_bytes())
    tar = tars(run, kind)[0]
    entry = next(e for e in data["files"] if e["path"] == f"{kind}/{tar.name}")
    entry["xxh3"] = entry["xxh3"][::-1]
    file.write_text(json.dumps(data))
    recorded, other = verify(Folder(run)).problems
    assert recorded == f"{file}: checksum differs from that of {run}/manifest.json"
    assert other == f"{tar}: as its index says, but not as the stage's manifest does"
