"""`verify` on shards whose bytes are all as published: what they hold must be the documents, once, in one split."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.inspect.shards import check_shards, verify_shards
from corpusmill.pipeline.inspect.shards.contents import text_of
from corpusmill.pipeline.inspect.shards.documents import compare
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.shard.read import read_index, read_tokenizer
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.schemas.shards import BlockDocuments
from tests.faults.dedup import Main, main  # noqa: F401 (a fixture)
from tests.faults.shards import changed, run, run_recipe, small, tars  # noqa: F401 (fixtures)
from tests.pipeline.corpus import documents, partitions, words
from tests.pipeline.shard.helpers import corpus, prepared, rewritten


@pytest.fixture(scope="module")
def bpe(made: Path) -> Bpe:
    return load_bpe((made / "shards/tokenizer.json").read_bytes(), "<|endoftext|>", "test")


TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), min_size=1, max_size=4)


@given(TEXTS)
def test_tokens_are_turned_into_the_bytes_of_any_text(bpe: Bpe, texts: list[str]) -> None:
    ids, offsets = encode(bpe, pa.chunked_array([pa.array(texts, pa.large_string())]))
    for text, low, high in zip(texts, offsets[:-1], offsets[1:], strict=True):
        assert text_of(bpe, ids[low:high]) == text.encode()


def compared(made: Path, docs: pa.Table, tmp_path: Path, sample: int | None = None) -> list[str]:
    """Problems of the shards against these documents."""
    found = check_shards(Folder(made / "shards"), sample=sample)
    assert found.problems == [] and found.checked
    parts: list[Partition] = partitions(Folder(tmp_path / "documents"), docs, 3)
    return compare("shards", found, parts)


def with_text(docs: pa.Table, row: int, text: str) -> pa.Table:
    rows = docs.to_pylist()
    rows[row] |= {"text": text, "text_hash": text_hash(text)}
    return pa.Table.from_pylist(rows, docs.schema)


def test_every_document_decodes_to_its_text(made: Path, tmp_path: Path) -> None:
    docs = corpus()
    assert compared(made, docs, tmp_path) == []
    found = check_shards(Folder(made / "shards"), sample=None)
    assert found.decoded == found.documents == len(docs)
    sampled = check_shards(Folder(made / "shards"), sample=100)
    assert 60 < sampled.decoded < 140 and check_shards(Folder(made / "shards"), sample=0).decoded == 0
    assert compare("shards", sampled, partitions(Folder(tmp_path / "again"), docs, 2)) == []


def test_another_text_and_a_document_too_few_or_too_many(made: Path, tmp_path: Path) -> None:
    docs = corpus()
    ids = [doc_id.hex() for doc_id in docs["doc_id"].to_pylist()]
    (problem,) = compared(made, with_text(docs, 7, words(50, 99)), tmp_path / "a")
    assert "1 documents do not decode to their cleaned text (tokens)" in problem and ids[7] in problem
    (problem,) = compared(made, docs.slice(1), tmp_path / "b")
    assert "are not among the cleaned ones" in problem and ids[0] in problem
    (problem,) = compared(made, pa.concat_tables([docs, documents(["new"], "other")]), tmp_path / "c")
    assert "1 cleaned documents are not there (tokens)" in problem


def test_a_cluster_in_both_splits(made: Path, tmp_path: Path) -> None:
    docs = corpus()
    validation = {value.tobytes() for value in check_shards(Folder(made / "shards")).validation}
    rows = docs.to_pylist()
    one = next(row for row in rows if row["doc_id"] in validation and row["cluster_id"] is None)
    other = next(row for row in rows if row["doc_id"] not in validation and row["cluster_id"] is None)
    one["cluster_id"] = other["cluster_id"] = bytes(range(16))
    (problem,) = compared(made, pa.Table.from_pylist(rows, docs.schema), tmp_path)
    assert "1 duplicate clusters have documents in train and validation" in problem
    assert bytes(range(16)).hex() in problem


def forged(made: Path, tmp_path: Path, change: Any) -> Path:
    """The shards of a corpus in which `change(docs)` holds, published with the lists that belong to them."""
    changed_corpus = change(corpus())
    recipe, here = prepared(tmp_path, changed_corpus)
    Shards(recipe).run(here)
    return tmp_path / "shards"


def test_a_document_that_is_there_twice(made: Path, tmp_path: Path) -> None:
    docs = corpus()
    shards = forged(made, tmp_path, lambda docs: pa.concat_tables([docs, docs.slice(3, 2)]))
    problems = verify_shards(Folder(shards))
    assert any("documents are there twice" in p and "web/train/index.json" in p for p in problems), problems
    assert len(docs) == 253


def test_a_document_in_both_splits(made: Path, tmp_path: Path) -> None:
    """The lists of train name validation's tars as their own: every byte and sum is right."""
    shards = tmp_path / "shards"
    shutil.copytree(made / "shards", shards)
    index = read_index(Folder(shards / "web/validation/index.json"))
    first = index.shardlist[0]
    for end in ("", ".idx"):
        shutil.copy(shards / f"web/validation/{first.url}{end}", shards / f"web/train/{first.url}{end}")
    train = json.loads((shards / "web/train/index.json").read_bytes())
    train["shardlist"].append(json.loads(first.model_dump_json()))
    for name in ("ntokens", "ndocs", "text_bytes"):
        train[name] += getattr(first, name)
    (shards / "web/train/index.json").write_text(json.dumps(train))
    top = json.loads((shards / "index.json").read_bytes())
    entry = next(e for e in top["sets"] if e["index"] == "web/train/index.json")
    entry |= {name: train[name] for name in ("ntokens", "ndocs", "text_bytes")}
    entry["index_xxh3"] = checksum((shards / "web/train/index.json").read_bytes())
    (shards / "index.json").write_text(json.dumps(top))
    (problem,) = verify_shards(Folder(shards))
    assert f"{first.ndocs} documents are in both splits, train and validation" in problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i["shardlist"][0].update(ndocs=i["shardlist"][0]["ndocs"] + 1), "ndocs: shards add up to"),
        (lambda i: i["shardlist"][0].update(nsamples=1), "blocks and tokens"),
        (lambda i: i["shardlist"][0]["blocks"][0].update(offset=1024), "but the member before ends at 0"),
        (
            lambda i: i["shardlist"][0]["blocks"][0].update(header=64),
            "a header of 128 bytes, the index says 64",
        ),
        (lambda i: i["shardlist"][0]["blocks"][0].update(ndocs=1), "are not the 1 of the index"),
        (lambda i: i.update(eos_id=1), "eos_id 1, the set says"),
        (lambda i: i.update(split="validation"), "split validation, the set says train"),
        (lambda i: i.update(text_bytes=i["text_bytes"] + 1), "text_bytes: shards add up to"),
        (lambda i: i["shardlist"].reverse(), ""),
    ],
    ids=range(9),
)
def test_lists_that_say_something_else(made: Path, tmp_path: Path, change: Any, message: str) -> None:
    """Every checksum fits; the contents do not."""
    shutil.copytree(made / "shards", tmp_path / "shards")
    rewritten(tmp_path / "shards", "web/train/index.json", change)
    problems = verify_shards(Folder(tmp_path / "shards"))
    if not message:  # the order of tars means nothing
        assert problems == []
    else:
        assert any(message in problem for problem in problems), problems


def test_character_ranges_that_are_not_those_of_the_tokens(made: Path, tmp_path: Path) -> None:
    """A block's `.json` of the same length, with its sums made to fit."""
    shards = tmp_path / "shards"
    shutil.copytree(made / "shards", shards)
    file = tars(tmp_path)[0]
    index = read_index(Folder(shards / "web/train/index.json"))
    shard = index.shardlist[0]
    block = shard.blocks[0]
    low, high = block.json_offset, block.json_offset + block.json_size
    documents_there = BlockDocuments.model_validate_json(file.read_bytes()[low:high])
    ends = documents_there.char_ends
    wrong = (
        documents_there.model_copy(update={"char_ends": [ends[0] - 1, *ends[1:]]}).model_dump_json().encode()
    )
    assert len(wrong) == block.json_size
    changed(file, lambda data: data.__setitem__(slice(low, high), wrong))
    import hashlib

    def fit(data: dict[str, Any]) -> None:
        data["shardlist"][0]["blocks"][0]["json_xxh3"] = checksum(wrong)
        data["shardlist"][0]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()

    rewritten(shards, "web/train/index.json", fit)
    (problem,) = verify_shards(Folder(shards))
    assert problem == f"{file}: {block.key}: 1 character ranges are not those of the tokens"


def test_tokens_composed_by_the_tokenizer(small: Path, tmp_path: Path) -> None:
    """With NFC the tokens stand for composed text: it is composed texts that they are held to."""
    folder = tmp_path / "nfc"
    folder.mkdir()
    for name in ("web", "books"):
        lines = [json.loads(line) for line in (small / f"{name}.jsonl").read_text().splitlines()]
        text = [json.dumps({**line, "text": "e\u0301 " + line["text"]}) + "\n" for line in lines]
        (folder / f"{name}.jsonl").write_text("".join(text))
    run_recipe(folder, folder / "run", "tokenizer.nfc=true")
    result = verify(Folder(folder / "run"), sample=None)
    assert result.problems == [] and result.decoded > 60 and result.notes == []
    assert read_tokenizer(Folder(folder / "run/shards/tokenizer.json"), 0).nfc


def test_documents_that_are_not_there_are_reported(run: Path) -> None:
    shutil.rmtree(run / "dedup")
    result = verify(Folder(run))
    assert (
        result.decoded == 0
        and len(result.notes) == 1
        and "not held to the cleaned documents" in result.notes[0]
    )
    assert not [problem for problem in result.problems if "/shards/" in problem]


def test_the_command_tells_speed_and_sample(
    run: Path, main: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = main("verify", run, "--sample", "5")
    assert code == 0
    changed(tars(run)[0], lambda data: data.__delitem__(slice(-1, None)))
    code, error = main("verify", run, "--all")
    assert code == 1 and "truncated" in error and error.count("\n") == 1


def test_a_tokenizer_without_the_end_of_documents(made: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer with a special token 399"):
        read_tokenizer(Folder(made / "shards/tokenizer.json"), 399)


def test_memory_does_not_grow_with_the_tar(tmp_path: Path) -> None:
    """One tar of some or of many blocks: what is held is a block, not the tar."""
    sizes, peaks = [], []
    for count in (20, 160):
        recipe, here = prepared(
            tmp_path / str(count), documents([words(2500, i) for i in range(count)], "web"), block_tokens=4096,
            shard_mb=256,
        )  # fmt: skip
        Shards(recipe).run(here)
        shards = tmp_path / str(count) / "shards"
        (file,) = (shards / "web/train").glob("*.tar")
        verify_shards(Folder(shards))
        tracemalloc.start()
        assert verify_shards(Folder(shards)) == []
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(file.stat().st_size)
    assert sizes[1] > sizes[0] + 1_500_000
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 4, (sizes, peaks)
