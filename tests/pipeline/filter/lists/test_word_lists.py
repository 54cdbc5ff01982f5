from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.lists.list_files import list_hashes, read_entries
from corpusmill.pipeline.filter.lists.url_kernels import find, keys
from corpusmill.pipeline.filter.lists.word_lists import WordLists
from corpusmill.pipeline.filter.text.view import text_buffers, view_of
from corpusmill.schemas.filter import FilterParams, WordList
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage, without_models


def counted(folder: Path, lines: str, texts: list[str], allow: str | None = None) -> list[int]:
    (folder / "w.txt").write_text(lines, encoding="utf-8")
    files = {"files": [str(folder / "w.txt")]}
    if allow is not None:
        (folder / "allow.txt").write_text(allow, encoding="utf-8")
        files["allow"] = [str(folder / "allow.txt")]
    lists = WordLists({"mine": WordList.model_validate(files)})
    values = lists.measure(view_of(*text_buffers(pa.array(texts, pa.large_string()))))
    counts: list[int] = values["mine.listed_words"].tolist()
    return counts


def test_a_list_of_words(tmp_path: Path) -> None:
    texts = ["A Bad word", "badly", "very   BAD thing", "a very bad thing"]
    assert counted(tmp_path, "# mine\n\nBAD\n  very   bad thing \n", texts) == [1, 0, 1, 2]


def test_allowed_entries_are_taken_off(tmp_path: Path) -> None:
    assert counted(tmp_path, "bad\nworse\n", ["bad worse"], allow="BAD\nunknown\n") == [1]
    with pytest.raises(
        UserError, match="filter.word_lists.mine: every entry is also in the files of `allow`"
    ):
        counted(tmp_path, "bad\n", [""], allow="bad\n")


def test_c4_badwords_judges_and_the_list_is_in_the_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("orchards\n")
    given = without_models(rules=["c4_badwords"], word_lists={"c4_badwords": [str(path)]})
    outcome = apply(documents([PROSE, "orchardss"]), **given)
    assert [(d["rule"], d["value"]) for d in outcome.decisions.to_pylist()] == [("c4_badwords.words_max", 1)]
    before = stage(**given).key_params()["lists"]
    path.write_text("orchard\n")
    assert stage(**given).key_params()["lists"] != before
    assert list(before) == ["filter.word_lists.c4_badwords.files"]
    assert len(apply(documents([PROSE]), **given).kept) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"# nothing\n\n", "has no entry"),
        (b"\xff\xfe", "not a text file in UTF-8"),
    ],
)
def test_files_that_cannot_be_used(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "w.txt").write_bytes(content)
    with pytest.raises(UserError) as error:
        read_entries("filter.word_lists.mine", [str(tmp_path / "w.txt")], str)
    assert message in str(error.value) and "filter.word_lists.mine" in str(error.value)
    assert str(tmp_path / "w.txt") in str(error.value) and "\n" not in str(error.value)


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "w.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfone\r\ntwo\none\n"))
    assert read_entries("x", [str(path)], str) == ["one", "two"]
    path.write_bytes(gzip.compress(b"one")[:-3])
    with pytest.raises(UserError, match="not a gzip file, or a damaged one"):
        read_entries("x", [str(path)], str)


def test_names_and_short_form() -> None:
    params = FilterParams.model_validate({"word_lists": {"a": ["x"], "b": {"files": ["y"], "allow": ["z"]}}})
    assert params.word_lists["a"].files == ["x"] and params.word_lists["b"].allow == ["z"]
    with pytest.raises(ValueError, match="small letters"):
        FilterParams.model_validate({"word_lists": {"A-b": ["x"]}})
    with pytest.raises(UserError, match=r"filter.word_lists.a.files: x: no such file"):
        list_hashes(params)


@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True),
    others=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
)
def test_keys_are_found_and_nothing_else(entries: list[str], others: list[str]) -> None:
    table = keys(entries)
    for text in entries + others:
        data = text_buffers(pa.array(["x", text], pa.large_string()))[0]
        number = find(table, data, 1, len(data))
        assert number == (entries.index(text) if text in entries else -1)
