"""Text shards of the pipeline, tokenised by the loader: the token shards that the pipeline writes itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.shards import check_shards, verify_shards
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.shard.read import iter_documents
from corpusmill.schemas.shards import INDEX
from corpusmill.train.data.texts import token_set as module
from corpusmill.train.data.texts.inputs import is_text
from corpusmill.train.data.texts.token_set import token_set
from tests.e2e.cli import corpusmill
from tests.pipeline.corpus import documents
from tests.pipeline.shard.helpers import build, corpus, indexes
from tests.train.data.texts.helpers import tokenizer_file, tokenizer_json, write_ours

BLOCK = 256  # as in tests.pipeline.shard.helpers


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_TOKENS", BLOCK)


def texts() -> pa.Table:
    odd = ["", "\r\n\r\n", "e\u0301 ﬁ\u200b", "\0", "x" * 3000, "日本語👩🏽‍🚀" * 200]
    return pa.concat_tables([corpus(), documents(odd, "lone").slice(1)])


def test_text_shards_give_the_tokens_of_both(tmp_path: Path) -> None:
    text = build(tmp_path / "text", texts(), format="text")
    both = build(tmp_path / "both", texts(), format="both")
    assert is_text(text.url) and not is_text(both.url)
    folder = token_set(text.url, str(tmp_path / "cache"))
    ours, theirs = indexes(folder), indexes(both)
    assert [index.name for _, index in ours] == [index.name for _, index in theirs]
    for (place, index), (other, wanted) in zip(ours, theirs, strict=True):
        assert (index.ndocs, index.ntokens, index.text_bytes, index.dtype, index.vocab_size, index.eos_id) == (
            wanted.ndocs, wanted.ntokens, wanted.text_bytes, wanted.dtype, wanted.vocab_size, wanted.eos_id
        )  # fmt: skip
        found = {one.doc_id: one.tokens.tolist() for one in iter_documents(place, index)}
        assert found == {one.doc_id: one.tokens.tolist() for one in iter_documents(other, wanted)}
    assert verify_shards(folder) == []


def test_a_tar_has_the_bytes_that_the_pipeline_gives_it(tmp_path: Path) -> None:
    """With a tar for each source and split, so that both cut at the same documents."""
    both = build(tmp_path, texts(), format="both", shard_mb=256.0)
    folder = token_set(both.url, str(tmp_path / "cache"))
    names = [entry.path for entry in both.list() if "-text/" not in entry.path]
    names = [name for name in names if name.endswith((".tar", ".tar.idx", f"/{INDEX}", "tokenizer.json"))]
    assert len([name for name in names if name.endswith(".tar")]) == len(indexes(both)) > 4
    assert [name for name in names if (folder / name).read() != (both / name).read()] == []


def test_verify_accepts_it_and_names_damage(tmp_path: Path) -> None:
    text = build(tmp_path / "text", texts(), format="text")
    folder = token_set(text.url, str(tmp_path / "cache"))
    assert verify(folder).problems == []
    corpusmill("verify", folder.url)  # exit code 0
    tar = next(Path(folder.url).rglob("*.tar"))
    data = bytearray(tar.read_bytes())
    data[700] ^= 1
    tar.write_bytes(data)
    assert any(str(tar) in problem for problem in verify(folder).problems)
    assert corpusmill("verify", folder.url, check=False).returncode == 1


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), min_size=1, max_size=12),
       st.integers(2, 30), st.booleans())  # fmt: skip
def test_characters_are_those_that_verify_counts(
    tmp_path_factory: pytest.TempPathFactory, some: list[str], block: int, nfc: bool
) -> None:
    tmp = tmp_path_factory.mktemp("any")
    ours = write_ours(tmp / "in", {("web", "train"): [some]}, tokenizer_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_TOKENS", block)
        folder = token_set(str(ours), str(tmp / "cache"), tokenizer=tokenizer_file(tmp / "t", nfc=nfc))
    found = check_shards(Folder(folder.url), sample=None)
    assert found.problems == [] and found.decoded == len(some)
