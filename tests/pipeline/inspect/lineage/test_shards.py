"""Blocks by address, tokens as characters, and documents found by their hash: on a set with every hard case."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.shards import Address, Requests, Shards, parse
from corpusmill.pipeline.inspect.lineage.show import found_in_words
from corpusmill.pipeline.inspect.lineage.trace import Tracer
from corpusmill.pipeline.inspect.locate import BlockList
from corpusmill.pipeline.shard.read import members
from corpusmill.schemas.shards import TAKEDOWNS, Takedown, TextSetEntry
from tests.pipeline.shard.helpers import build, corpus, indexes

SEED = purpose_seed(0, "shard")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return build(tmp_path_factory.mktemp("shards"), corpus())


@pytest.fixture(scope="module")
def texts() -> dict[bytes, str]:
    docs = corpus()
    return dict(zip(docs["doc_id"].to_pylist(), docs["text"].to_pylist(), strict=True))


def every_block(folder: Folder) -> list[Address]:
    return [
        Address(shard.url.removesuffix(".tar"), str(number), 0, block.ntokens - 1)
        for _, index in indexes(folder)
        for shard in index.shardlist
        for number, block in enumerate(shard.blocks)
    ]


@pytest.mark.slow
def test_every_token_is_the_characters_that_it_says(folder: Folder, texts: dict[bytes, str]) -> None:
    """All tokens of all blocks, in one stretch and one by one; also where a block ends inside a character."""
    shards = Shards(folder)
    made: dict[bytes, bytes] = {}
    partial = 0
    for address in every_block(folder):
        block = shards.block(address)
        stretches = shards.stretches(block, address)
        assert [s.first for s in stretches] == block.documents.token_starts
        assert [s.start for s in stretches] == block.documents.char_starts
        assert [s.end for s in stretches] == block.documents.char_ends
        for whole in stretches:
            for at in range(whole.first, whole.last + 1):
                (one,) = shards.stretches(block, address._replace(first=at, last=at))
                part, text = shards.vocabulary.bytes_of(int(block.tokens[at])), texts[whole.doc_id]
                assert one.doc_id == whole.doc_id and one.ends == (
                    int(block.tokens[at]) == shards.index.eos_id
                )
                before = len(made.setdefault(one.doc_id, b""))
                made[one.doc_id] += part
                if one.ends:
                    assert one.start == one.end == len(text)
                    continue
                assert part in text[one.start : one.end].encode() and one.start < one.end
                # The first and last bytes of the token are of the first and last character.
                assert len(text[: one.start].encode()) <= before < len(text[: one.start + 1].encode())
                assert len(text[: one.end - 1].encode()) < before + len(part) <= len(text[: one.end].encode())
                partial += part != text[one.start : one.end].encode()
    assert made == {doc_id: text.encode() for doc_id, text in texts.items()} and partial > 100


def test_one_request_a_block(folder: Folder) -> None:
    """And one, once, for the list of its (source, split)."""
    shards = Shards(folder)
    assert shards.vocabulary.bytes_of(shards.index.eos_id) == b""
    with pytest.raises(WorkError, match="no token 99999, which is in the shards"):
        shards.vocabulary.bytes_of(99_999)
    asked = shards.requests.count
    shards.block(parse("web-train-000000:0:0"))
    assert asked == 2 and shards.requests.count == 4
    shards.block(parse("web-train-000000:1:0"))
    shards.block(parse("web-train-000001:0:0"))
    assert shards.requests.count == 6


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("wib-train-000000:0:0", "did you mean 'web-train'"),
        (
            "web-train-000999:0:0",
            r"no such shard in .*; of that set there is web-train-000000 to web-train-0000\d\d$",
        ),
        (
            "web-train-000000:99999:0",
            r"has \d+ blocks, 0 to \d+, or by key web-train-000000-000000 to web-train-000000-",
        ),
        ("web-train-000000:0:99999", "256 tokens, 0 to 255"),
        ("web-train-000000:x:0", r"has \d+ blocks, 0 to"),
        ("web-train-000000:-1:0", r"has \d+ blocks, 0 to"),
        ("web-train-000000:²:0", r"has \d+ blocks, 0 to"),
        ("web-train-000000:other-000000:0", r"has \d+ blocks, 0 to"),
    ],
)
def test_addresses_that_are_not_there(folder: Folder, address: str, message: str) -> None:
    shards = Shards(folder)
    with pytest.raises(UserError, match=message) as error:
        shards.stretches(shards.block(parse(address)), parse(address))
    assert "\n" not in str(error.value)


def test_shards_of_texts_have_no_tokens(folder: Folder) -> None:
    shards = Shards(folder)
    entry = shards.index.sets[0]
    text = TextSetEntry(**entry.model_dump(exclude={"ntokens"}))
    shards.index = shards.index.model_copy(update={"texts": [text]})
    address = parse(f"{entry.source}-{entry.split}-text-000000:0:0")
    with pytest.raises(UserError, match="holds texts, not tokens"):
        list(Tracer(shards, None).trace(address))


def test_no_shards_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no shards there"):
        _ = Shards(Folder(tmp_path)).index
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(UserError, match="not a shard set"):
        _ = Shards(Folder(tmp_path)).index


def test_a_tar_that_is_another_one(folder: Folder, tmp_path: Path) -> None:
    """Found out by the checksums of what lies at the offsets, and by the tokenizer's."""
    shutil.copytree(folder.url, tmp_path / "s")
    tar = tmp_path / "s/web/train/web-train-000000.tar"
    tar.write_bytes(b"\x01" * 512 + tar.read_bytes())
    with pytest.raises(WorkError, match=r"web-train-000000\.tar: .*checksum differs; `corpusmill verify`"):
        Shards(Folder(tmp_path / "s")).block(parse("web-train-000000:0:0"))
    with pytest.raises(WorkError, match=r"web-train-000000\.tar: .*checksum differs"):
        Finder(Shards(Folder(tmp_path / "s")), None).find("ff" * 16)
    (tmp_path / "s/tokenizer.json").write_text("{}")
    with pytest.raises(WorkError, match="checksum differs"):
        _ = Shards(Folder(tmp_path / "s")).vocabulary


def test_no_token_of_a_damaged_block_is_reported(folder: Folder, tmp_path: Path) -> None:
    """A flipped bit in any member, another tar in its place, one that was cut, or one that is gone: each is one line
    with the tar's name and what to do. Undamaged neighbours are still reported."""
    shutil.copytree(folder.url, tmp_path / "s")
    tar = tmp_path / "s/web/train/web-train-000000.tar"
    whole = tar.read_bytes()
    (line,) = (
        block
        for _, index in indexes(folder)
        for shard in index.shardlist
        for block in shard.blocks
        if block.key == "web-train-000000-000001"
    )

    def refused(message: str) -> None:
        with pytest.raises(WorkError, match=message) as error:
            Shards(Folder(tmp_path / "s")).block(parse("web-train-000000:1:0"))
        assert str(error.value).startswith(f"{tar}: ") and "\n" not in str(error.value)
        assert "`corpusmill verify`" in str(error.value)

    for suffix, offset, size, _ in members(line):
        at = offset + size - 1
        tar.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused(f"{line.key}{suffix}: checksum differs")
        assert len(Shards(Folder(tmp_path / "s")).block(parse("web-train-000000:0:0")).tokens) == 256
    tar.write_bytes((tmp_path / "s/web/train/web-train-000001.tar").read_bytes())
    refused("checksum differs")
    tar.write_bytes(whole[: line.offset + 100])
    refused("truncated")
    tar.unlink()
    refused("not there, but the set lists it")


def test_the_list_of_another_set_is_refused(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder.url, tmp_path / "s")
    shutil.copy(tmp_path / "s/web/validation/index.json", tmp_path / "s/web/train/index.json")
    shards = Shards(Folder(tmp_path / "s"))
    with pytest.raises(WorkError, match=r"web/train/index\.json: not the list that .*; `corpusmill verify`"):
        shards.block(parse("web-train-000000:0:0"))
    with pytest.raises(WorkError, match=r"web/train/index\.json: not the list that"):
        Finder(shards, None).find("ff" * 16)


@pytest.mark.parametrize("seed", [SEED, SEED + 1, None])
def test_every_document_is_found(folder: Folder, seed: int | None) -> None:
    """By the order of hashes in a few reads; with another seed perhaps not, then by reading the document lists of all blocks."""
    most = 0
    for place, index in indexes(folder):
        tars = [shard.model_dump() for shard in index.shardlist]
        where: dict[str, list[int]] = {}
        entry = next(
            e for e in Shards(folder).index.sets if (e.source, e.split) == (index.source, index.split)
        )
        output = BlockList(place, entry, Requests(), None, tars)
        for at in range(output.count):
            for doc_id in output.documents(at).doc_ids:
                where.setdefault(doc_id, []).append(at)
        for doc_id, wanted in where.items():
            requests = Requests()
            listed = BlockList(place, entry, requests, seed, tars)
            by_order = list(listed.holding(bytes.fromhex(doc_id)))
            most = max(most, requests.count - len(wanted)) if output.count > 20 else most
            assert by_order == wanted or (seed != SEED and by_order == [])
            assert [at for at, _ in listed.searched({bytes.fromhex(doc_id)})] == wanted
        for absent in (bytes(16), b"\xff" * 16, b"\x80" * 16):
            assert list(BlockList(place, entry, Requests(), seed, tars).holding(absent)) == []
    if seed == SEED:
        assert 0 < most <= 8


def test_finding_without_a_run(folder: Folder, texts: dict[bytes, str]) -> None:
    """Only doc_ids are known there; every place is given, and with characters only their tokens."""
    shards = Shards(folder)
    finder = Finder(shards, None)
    with pytest.raises(UserError, match="without the run"):
        finder.find("https://example.org/")
    assert finder.find("ff" * 16)[0].places == []
    for doc_id, text in [*texts.items()][::17]:
        (found,) = finder.find(doc_id.hex())
        assert found.places[0].start == 0 and found.places[-1].end == len(text) and found.places[-1].ends
        assert [p.ends for p in found.places[:-1]] == [False] * (len(found.places) - 1)
        for start, end in ((0, 1), (len(text) // 2, len(text) // 2 + 7), (len(text) - 1, len(text))):
            (part,) = finder.find(doc_id.hex(), (start, end))
            if not text[start:end] or start < 0:
                continue
            data = b""
            for place in part.places:
                address = parse(place.address)
                block = shards.block(address)
                (stretch,) = shards.stretches(block, address)
                assert (stretch.start, stretch.end) == (place.start, place.end)
                data += b"".join(
                    shards.vocabulary.bytes_of(int(t)) for t in block.tokens[place.first : place.last + 1]
                )
            assert text[start:end].encode() in data


def test_what_was_taken_down_is_reported_as_gone(folder: Folder, tmp_path: Path) -> None:
    """And since when, without reading every block; a log that cannot be read is a one-line error."""
    shutil.copytree(folder.url, tmp_path / "s")
    log, doc_id = tmp_path / "s" / TAKEDOWNS, "0f" * 16
    entry = Takedown(request="r", time="2026-01-02T03:04:05Z", doc_ids=[doc_id], shards=[], tokens=1)
    log.write_text(entry.model_dump_json() + "\n")
    shards = Shards(Folder(tmp_path / "s"))
    (found,) = Finder(shards, None).find(doc_id)
    assert found.places == [] and found.taken == entry.time
    assert shards.requests.count == 2 + len(shards.index.sets)
    assert "no tokens   taken out of the shards at 2026-01-02T03:04:05Z" in found_in_words(found)
    (other,) = Finder(shards, None).find("f0" * 16)
    assert other.taken is None and "no shard has any" in found_in_words(other)
    for line in ("{}", "not JSON", entry.model_copy(update={"doc_ids": ["x"]}).model_dump_json()):
        log.write_text(line + "\n")
        with pytest.raises(WorkError, match=r"takedowns\.jsonl: line 1: not a takedown") as error:
            Finder(shards, None).find(doc_id)
        assert "\n" not in str(error.value)
