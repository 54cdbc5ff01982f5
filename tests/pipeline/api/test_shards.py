"""Published shards by `webdataset`: on disk and in a store, tokens and text, in workers of a DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import corpusmill
from corpusmill.common.storage import Folder
from tests.pipeline.shard.helpers import build, corpus, indexes


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened")
    build(folder, corpus(), format="both", shard_mb=0.02)
    return folder / "shards"


def keys(samples: Any) -> list[str]:
    return [sample["__key__"] for sample in samples]


def test_tokens_are_those_of_the_index(shards: Path) -> None:
    lists = [index for _, index in indexes(Folder(shards)) if index.split == "train"]
    samples = list(corpusmill.open_shards(str(shards)))
    assert keys(samples) == [
        block.key for index in lists for shard in index.shardlist for block in shard.blocks
    ]
    assert sum(len(sample["tokens.npy"]) for sample in samples) == sum(index.ntokens for index in lists)
    assert all(len(sample["docs.npy"]) == len(sample["json"]["doc_ids"]) for sample in samples)


def test_text_of_one_source(shards: Path) -> None:
    samples = list(corpusmill.open_shards(str(shards), format="text", sources=["web"]))
    assert samples and {sample["json"]["source"] for sample in samples} == {"web"}
    assert all(isinstance(sample["txt"], str) for sample in samples)


@pytest.mark.s3
def test_in_a_store_by_spawned_workers(shards: Path, s3: str) -> None:
    for entry in Folder(shards).list():
        (Folder(s3) / entry.path).write((Folder(shards) / entry.path).read())
    loader: Any = DataLoader(
        corpusmill.open_shards(s3), batch_size=None, num_workers=2, multiprocessing_context="spawn",
        worker_init_fn=corpusmill.register_stores,
    )  # fmt: skip
    assert sorted(keys(loader)) == sorted(keys(corpusmill.open_shards(str(shards))))


def test_mistakes_name_what_is_there(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(corpusmill.UserError, match="no train shards of tokens of 'wep'; did you mean 'web'"):
        corpusmill.open_shards(str(shards), sources=["wep"])
    with pytest.raises(corpusmill.UserError, match="no shards there"):
        corpusmill.open_shards(str(tmp_path))
