"""What counts as text, in which source and split it is, and the errors otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.train.data.texts.inputs import Inputs, is_text, survey
from tests.train.conftest import write_shards
from tests.train.data.texts.helpers import tokenizer_file, tokenizer_json, write_ours, write_tar


def sets(inputs: Inputs) -> dict[str, list[str]]:
    return {one.name: [tar.path for tar in one.tars] for one in inputs.sets}


def test_what_is_text(tmp_path: Path) -> None:
    tokens = write_shards(Folder(tmp_path / "tokens"), {"wiki": 1})
    ours = write_ours(tmp_path / "ours", {("web", "train"): [["a"]]}, tokenizer_json())
    write_tar(tmp_path / "foreign/a/b.tar", ["a"])
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/a.tar.gz").write_bytes(b"")
    assert is_text(str(ours)) and is_text(str(ours / "index.json")) and is_text(f"file://{tmp_path}/foreign")
    assert is_text(str(tmp_path / "packed"))  # `survey` says what is wrong with it
    assert not is_text(tokens.url) and not is_text(str(tmp_path / "none"))
    (tmp_path / "foreign/index.json").write_text("{}")
    assert not is_text(str(tmp_path / "foreign"))


def test_sources_and_splits_of_a_folder_of_tars(tmp_path: Path) -> None:
    tokenizer, folder = tokenizer_file(tmp_path / "t"), tmp_path / "c4.en"
    for path in ("b.tar", "a.tar", "notes.txt"):
        write_tar(folder / path, ["a"])
    assert sets(survey(str(folder), tokenizer)) == {"c4-en-train": ["a.tar", "b.tar"]}
    shutil.rmtree(folder)
    for path in (
        "web/0.tar",
        "books/train/1.tar",
        "books/train/0.tar",
        "books/validation/0.tar",
        "v/validation/0.tar",
    ):
        write_tar(folder / path, ["a"])
    assert sets(survey(str(folder), tokenizer)) == {
        "books-train": ["train/0.tar", "train/1.tar"], "books-validation": ["validation/0.tar"],
        "v-validation": ["validation/0.tar"], "web-train": ["0.tar"],
    }  # fmt: skip
    assert sets(survey(str(folder / "books"), tokenizer)) == {
        "books-train": ["train/0.tar", "train/1.tar"], "books-validation": ["validation/0.tar"],
    }  # fmt: skip


def test_the_key_follows_what_identifies_the_input(tmp_path: Path) -> None:
    tokenizer, folder = tokenizer_file(tmp_path / "t"), tmp_path / "web"
    write_tar(folder / "a.tar", ["a"])
    keys = [survey(str(folder), tokenizer).key("1", 8)]
    assert survey(str(folder), tokenizer).key("1", 8) == keys[0]
    keys += [survey(str(folder), tokenizer).key("2", 8), survey(str(folder), tokenizer).key("1", 9)]
    keys += [survey(str(folder), tokenizer_file(tmp_path / "u", size=280)).key("1", 8)]
    write_tar(folder / "b.tar", ["a"])
    keys += [survey(str(folder), tokenizer).key("1", 8)]
    (folder / "b.tar").unlink()
    write_tar(folder / "a.tar", ["b"])
    keys += [survey(str(folder), tokenizer).key("1", 8)]
    ours = write_ours(tmp_path / "ours", {("web", "train"): [["a"]]}, tokenizer_json())
    keys += [survey(str(ours), None).key("1", 8)]
    shutil.copytree(ours, tmp_path / "copy")
    assert survey(str(tmp_path / "copy"), None).key("1", 8) == keys[-1]
    assert survey(str(ours), tokenizer).key("1", 8) == keys[-1]  # the same tokenizer
    keys += [survey(str(ours), tokenizer_file(tmp_path / "u", size=280)).key("1", 8)]
    assert len(set(keys)) == len(keys)


def refused(folder: Path, tokenizer: str | None, what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        survey(str(folder), tokenizer)
    assert "\n" not in str(caught.value)


def test_a_users_mistakes_get_one_line(tmp_path: Path) -> None:
    tokenizer = tokenizer_file(tmp_path / "t")
    refused(tmp_path / "none", tokenizer, "none: no index.json and no .tar there")
    write_tar(tmp_path / "web/a.tar", ["a"])
    refused(
        tmp_path / "web",
        None,
        "data.tokenizer: .* holds tars of text without an index; name the tokenizer.json",
    )
    refused(tmp_path / "web", str(tmp_path / "nothing.json"), "nothing.json: no such file")
    (tmp_path / "web/b.tar.gz").write_bytes(b"")
    refused(tmp_path / "web", tokenizer, r"b.tar.gz: compressed tars are not read; unpack it to .tar first")
    write_tar(tmp_path / "deep/a/b/c.tar", ["a"])
    refused(tmp_path / "deep", tokenizer, "deep/a/b/c.tar: tars lie in <source>/")
    for name in ("a.b", "a-b"):
        write_tar(tmp_path / "twice" / name / "0.tar", ["a"])
    refused(tmp_path / "twice", tokenizer, "the folders 'a-b' and 'a.b' are both source 'a-b'; rename one")
    for number, name in enumerate(("日本", "scratch", "x" * 61)):
        write_tar(tmp_path / str(number) / name / "0.tar", ["a"])
        refused(tmp_path / str(number), tokenizer, f"the folder '{name}' cannot name a source")
    with pytest.raises(UserError, match="unknown kind of URL 'ftp://'"):
        survey("ftp://host/a", tokenizer)
    tokens = write_shards(Folder(tmp_path / "tokens"), {"wiki": 1})
    refused(Path(tokens.url), tokenizer, "a shard set without text shards")


def test_an_index_that_is_not_the_one_named(tmp_path: Path) -> None:
    ours = write_ours(tmp_path / "ours", {("web", "train"): [["a"]]}, tokenizer_json())
    index = ours / "web/train-text/index.json"
    before = index.read_bytes()
    index.write_bytes(before + b" ")
    with pytest.raises(WorkError, match="train-text/index.json: changed since"):
        survey(str(ours), None)
    index.unlink()
    with pytest.raises(WorkError, match="train-text/index.json: missing"):
        survey(str(ours), None)
    index.write_bytes(before)
    (ours / "tokenizer.json").write_bytes(tokenizer_json(280))
    with pytest.raises(WorkError, match="tokenizer.json: not the tokenizer that .* names"):
        survey(str(ours), None)
    (ours / "tokenizer.json").unlink()
    with pytest.raises(WorkError, match="tokenizer.json: missing, though the set's index.json names it"):
        survey(str(ours), None)
    (ours / "tokenizer.json").write_bytes(tokenizer_json())
    index.write_bytes(b"{}")
    top = (ours / "index.json").read_text()
    (ours / "index.json").write_text(top.replace(checksum(before), checksum(b"{}")))
    with pytest.raises(WorkError, match="train-text/index.json: not a TextIndex: "):
        survey(str(ours), None)
