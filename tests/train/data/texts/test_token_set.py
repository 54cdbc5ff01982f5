"""Texts become a token set: nothing is lost silently, no damage is skipped."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import doc_id
from corpusmill.train.data.shards import open_shards
from corpusmill.train.data.texts import token_set as module
from corpusmill.train.data.texts.token_set import token_set
from tests.train.data.texts.conftest import BLOCK, make
from tests.train.data.texts.helpers import (
    documents,
    library,
    quarantine,
    tar_of,
    texts,
    tokenizer_file,
    tokenizer_json,
    write_ours,
    write_tar,
)

# --- what is written


def expected(data: bytes, source: str, path: str, some: list[str]) -> list[tuple[str, list[int], int]]:
    known = library(data)
    return [
        (doc_id(source, f"{path}#doc{i}").hex(), known.encode(text, add_special_tokens=False).ids, len(text))
        for i, text in enumerate(some)
    ]


def test_documents_keep_their_order_ids_tokens_and_characters(foreign: Path) -> None:
    folder = make(foreign)
    data = tokenizer_json()
    web = [one for i in range(4) for one in expected(data, "web", f"{i}.tar", texts(40, i))]
    found = documents(folder)
    assert sorted(found) == ["books", "web"]
    assert [(one.doc_id, one.tokens, one.chars[-1][1]) for one in found["web"]] == web
    long = found["books"][10]
    assert len(long.chars) > 5 and long.chars[0][0] == 0
    known = library(data)
    text, joined = texts(1, 7, 900)[0], 0
    ids = known.encode(text, add_special_tokens=False).ids
    for (begin, end), after in zip(long.chars, [*long.chars[1:], (len(text), 0)], strict=True):
        assert begin <= joined <= end and after[0] in (end, end - 1)  # a character may lie in both
        joined = end
    assert long.tokens == ids and joined == len(text)
    assert found["books"][9].tokens == [] and found["books"][9].chars == [(0, 0)]  # the empty one
    assert [one.tokens for one in documents(folder, "validation")["books"]] == [
        known.encode(text, add_special_tokens=False).ids for text in texts(5, 20)
    ]


def test_the_set_says_what_it_holds(foreign: Path) -> None:
    folder = make(foreign)
    opened = open_shards(folder.url)
    assert opened.tokenizer() == tokenizer_json() and opened.set.dtype == "uint16"
    index = opened.train["web"].index
    assert [shard.url for shard in index.shardlist] == [f"web-train-{i:06d}.tar" for i in range(4)]
    assert index.text_bytes == sum(len(text.encode()) for i in range(4) for text in texts(40, i))
    assert index.ndocs == 160 and index.block_tokens == BLOCK
    manifest = json.loads((folder / "manifest.json").read())
    read = (foreign / "web/0.tar").read_bytes()
    assert manifest["inputs"]["web-train/0.tar"] == hashlib.sha256(read).hexdigest()
    tokens = sum(
        source.index.ntokens for splits in (opened.train, opened.validation) for source in splits.values()
    )
    assert manifest["counters"] == {"samples": 187, "documents": 187, "quarantined": 0, "tokens": tokens}


def test_our_own_text_shards(tmp_path: Path) -> None:
    some = [texts(20, 1), texts(30, 2)]
    ours = write_ours(
        tmp_path / "ours", {("web", "train"): some, ("web", "validation"): [["held out"]]}, tokenizer_json()
    )
    folder = token_set(str(ours / "index.json"), str(tmp_path / "cache"))
    known = library(tokenizer_json())
    assert [(one.doc_id, one.tokens) for one in documents(folder)["web"]] == [
        (doc_id("web", f"train/{number}#{row}").hex(), known.encode(text, add_special_tokens=False).ids)
        for number, tar in enumerate(some)
        for row, text in enumerate(tar)
    ]
    assert len(documents(folder, "validation")["web"]) == 1 and (folder / "quarantine.jsonl").read() == b""
    other = token_set(str(ours), str(tmp_path / "cache"), tokenizer=tokenizer_file(tmp_path / "t", size=280))
    assert other != folder and open_shards(other.url).tokenizer() == tokenizer_json(280)


def test_a_vocabulary_beyond_uint16(foreign: Path) -> None:
    content = json.loads(tokenizer_json())
    content["added_tokens"][0]["id"] = content["model"]["vocab"]["<|endoftext|>"] = 70_000
    (foreign.parent / "tokenizer.json").write_text(json.dumps(content))
    folder = make(foreign)
    assert open_shards(folder.url).set.dtype == "uint32" and len(documents(folder)["web"]) == 160


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PIECE = st.one_of(
    TEXT, st.sampled_from(["", "\r\n", "the of\r\n" * 40, "日本" * 60, "e\u0301", "<|endoftext|>", "\0"])
)


@settings(max_examples=40)
@given(
    st.lists(st.lists(PIECE, max_size=6), min_size=1, max_size=3).filter(any),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
)
def test_any_documents(
    tmp_path_factory: pytest.TempPathFactory, tars: list[list[str]], block: int, nfc: bool, ours: bool
) -> None:
    tmp = tmp_path_factory.mktemp("any")
    data = tokenizer_json(nfc=nfc)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_TOKENS", block)
        if ours:
            write_ours(tmp / "in", {("web", "train"): tars}, data)
        for number, some in enumerate(tars if not ours else []):
            write_tar(tmp / f"in/web/{number}.tar", some)
        folder = token_set(str(tmp / "in"), str(tmp / "cache"), tokenizer=tokenizer_file(tmp / "t", nfc=nfc))
    known = library(data)
    found = documents(folder)["web"]
    whole = [text for some in tars for text in some]
    assert [one.tokens for one in found] == [
        known.encode(text, add_special_tokens=False).ids for text in whole
    ]
    for one, text in zip(found, whole, strict=True):
        plain = known.normalizer.normalize_str(text) if nfc else text
        assert known.decode(one.tokens, skip_special_tokens=False) == plain
        assert one.chars[0][0] == 0 and one.chars[-1][1] == len(plain)
        assert all(
            after[0] in (end, end - 1) for (_, end), after in zip(one.chars, one.chars[1:], strict=False)
        )
    index = open_shards(folder.url).train["web"].index
    assert all(b.ntokens == block for shard in index.shardlist for b in shard.blocks[:-1])
    shutil.rmtree(tmp)


# --- what is no document


def test_bad_samples_are_quarantined_counted_and_listed(foreign: Path) -> None:
    members = [("ok.txt", b"fine"), ("bad.txt", b"a\xff"), ("none.jpg", b""), ("j.json", b'{"text": "json"}'),
               ("empty.json", b"{}"), ("ok.txt", b"again"), ("x.txt", b""), ("ok.txt", b"a third time")]  # fmt: skip
    (foreign / "web/1.tar").write_bytes(tar_of(members))
    logged: list[str] = []
    tokenizer = str(foreign.parent / "tokenizer.json")
    folder = token_set(str(foreign), str(foreign.parent / "cache"), tokenizer=tokenizer, log=logged.append)
    assert [(one["source"], one["tar"], one["key"], one["reason"]) for one in quarantine(folder)] == [
        ("web", "1.tar", "bad", "not UTF-8: byte 1 of .txt"),
        ("web", "1.tar", "none", "no text: neither .txt nor .json"),
        ("web", "1.tar", "empty", "no text: no string 'text' in its .json"),
        ("web", "1.tar", "ok", "its key was there before"),
        ("web", "1.tar", "ok", "its key was there before"),
    ]
    counters = json.loads((folder / "manifest.json").read())["counters"]
    assert counters["samples"] == counters["documents"] + counters["quarantined"] == 120 + 27 + 8
    assert counters["quarantined"] == 5
    assert any(
        "web-train-000001: 3 documents, " in line and "5 samples quarantined" in line for line in logged
    )
    assert logged[-1] == f"texts: 5 samples are not documents: {folder / 'quarantine.jsonl'} lists them"
    assert sum(one.doc_id == doc_id("web", "1.tar#ok").hex() for one in documents(folder)["web"]) == 1


def test_a_name_that_is_no_utf8_is_a_key_as_well(foreign: Path) -> None:
    (foreign / "web/1.tar").write_bytes(tar_of([("\udcffa.txt", b"fine"), ("\udcffb.txt", b"\xff")]))
    folder = make(foreign)
    assert doc_id("web", "1.tar#\udcffa").hex() in [one.doc_id for one in documents(folder)["web"]]
    assert [one["key"] for one in quarantine(folder)] == ["\udcffb"]


def test_a_tar_without_a_document_is_an_empty_one(foreign: Path) -> None:
    (foreign / "web/1.tar").write_bytes(tar_of([("a.jpg", b"\xff")]))
    folder = make(foreign)
    assert len(documents(folder)["web"]) == 120 and len(quarantine(folder)) == 1


def test_no_documents_at_all_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.tar").write_bytes(tar_of([("a.jpg", b"\xff")]))
    tokenizer_file(tmp_path)
    for _ in range(2):
        with pytest.raises(WorkError, match="quarantine.jsonl: none of 1 tars has a text; it says why"):
            make(tmp_path / "in")


# --- damage


def cut_at_a_member(data: bytes) -> bytes:
    return data[: 1024 * 7]  # header and payload are 512 bytes each


def cut_in_a_header(data: bytes) -> bytes:
    return data[: 1024 * 7 + 100]


def zeroed_header(data: bytes) -> bytes:
    return data[: 1024 * 7] + bytes(512) + data[1024 * 7 + 512 :]


def flipped_in_a_header(data: bytes) -> bytes:
    return data[: 1024 * 7 + 150] + b"~" + data[1024 * 7 + 151 :]


DAMAGES: dict[Callable[[bytes], bytes], str] = {
    cut_at_a_member: "truncated: it ends at byte 7168 without the zeros",
    cut_in_a_header: "truncated: it ends inside the header at byte 7168",
    zeroed_header: "zeros at byte 7168 where a header should be",
    flipped_in_a_header: "header at byte 7168 is damaged",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("ours", [False, True])
def test_a_damaged_tar_is_named(tmp_path: Path, damage: Callable[[bytes], bytes], ours: bool) -> None:
    tokenizer_file(tmp_path)
    if ours:
        folder = write_ours(tmp_path / "in", {("web", "train"): [texts(20)]}, tokenizer_json())
        file = folder / "web/train-text/web-train-text-000000.tar"
    else:
        file = write_tar(tmp_path / "in/web/0.tar", texts(20))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(WorkError, match=f"{file}: {DAMAGES[damage]}"):
        make(tmp_path / "in")
    assert not list((tmp_path / "cache").rglob("*.tar")) and not list(
        (tmp_path / "cache").rglob("index.json")
    )


def test_a_flipped_byte_of_a_text_of_ours_is_noticed(tmp_path: Path) -> None:
    ours = write_ours(tmp_path / "in", {("web", "train"): [texts(20)]}, tokenizer_json())
    file = ours / "web/train-text/web-train-text-000000.tar"
    data = bytearray(file.read_bytes())
    data[515] ^= 1
    file.write_bytes(data)
    with pytest.raises(WorkError, match=rf"{file}: changed since its index was written \(sha256 differs\)"):
        token_set(str(ours), str(tmp_path / "cache"))
    file.write_bytes(bytes(data) + bytes(512))
    with pytest.raises(WorkError, match=rf"{file}: \d+ bytes, \d+ were expected"):
        token_set(str(ours), str(tmp_path / "cache"))


def test_a_tar_that_is_not_there(tmp_path: Path) -> None:
    ours = write_ours(tmp_path / "in", {("web", "train"): [["a"]]}, tokenizer_json())
    (ours / "web/train-text/web-train-text-000000.tar").unlink()
    with pytest.raises(WorkError, match="web-train-text-000000.tar: missing, though its index names it"):
        token_set(str(ours), str(tmp_path / "cache"))


def test_a_sample_of_ours_whose_key_is_no_id(tmp_path: Path) -> None:
    ours = write_ours(tmp_path / "in", {("web", "train"): [["a"]]}, tokenizer_json())
    (ours / "web/train-text/web-train-text-000000.tar").write_bytes(
        tar_of([("name.txt", b"a"), ("n.json", b"")])
    )
    with pytest.raises(WorkError, match="'name' is not a doc_id"):
        token_set(str(ours), str(tmp_path / "cache"))


def test_an_index_that_counts_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_ours(tmp_path / "in", {("web", "train"): [["a", "b"]]}, tokenizer_json())
    inputs = module.survey(str(ours), None)
    tar = inputs.sets[0].tars[0]
    listed = tar.listed.model_copy(update={"nsamples": 3})  # type: ignore[union-attr]
    object.__setattr__(tar, "listed", listed)
    monkeypatch.setattr(module, "survey", lambda url, tokenizer: inputs)
    with pytest.raises(WorkError, match="2 documents, its index says 3"):
        token_set(str(ours), str(tmp_path / "cache"))


def test_a_tar_that_changes_while_it_is_read(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = module.survey(str(foreign), str(foreign.parent / "tokenizer.json"))
    monkeypatch.setattr(module, "survey", lambda url, tokenizer: inputs)
    time.sleep(0.01)
    write_tar(foreign / "books/train/0.tar", [*texts(9, 10), "", texts(1, 7, 900)[0]])
    with pytest.raises(WorkError, match="books/train/0.tar: changed while it was read"):
        make(foreign)
