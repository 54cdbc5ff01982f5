"""Our shards in the hands of those that others read them with: the same samples, in the same order."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.export import export
from corpusmill.pipeline.shard.read import iter_documents, read_block, read_index
from corpusmill.schemas.shards import TextIndex
from tests.pipeline.corpus import Here
from tests.pipeline.shard.foreign import environments
from tests.pipeline.shard.foreign.scripts.common import digest
from tests.pipeline.shard.helpers import build, corpus, indexes
from tests.pipeline.shard.test_text_members import samples_of

pytestmark = pytest.mark.slow
KINDS = ["train", "train-text"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token and text shards, several of each in `web`; not to be written to."""
    tmp = tmp_path_factory.mktemp("foreign")
    build(tmp, corpus(), format="both", shard_mb=0.02)
    return tmp / "shards"


def wanted(folder: Path) -> list[Any]:
    """What a foreign reader should tell of the shards of a folder."""
    if folder.name.endswith("-text"):
        texts = TextIndex.model_validate_json((folder / "index.json").read_bytes())
        return [[key, text, about.model_dump()] for key, text, about in samples_of(folder, texts)]
    index = read_index(Folder(folder) / "index.json")
    found = []
    for shard in index.shardlist:
        for block in shard.blocks:
            data = read_block(Folder(folder), shard, block)
            found.append([block.key, digest(data.tokens), data.starts.tolist(), data.documents.doc_ids])
    return found


def braces(folder: Path) -> str:
    """All tars of a folder, in the notation of webdataset."""
    tars = sorted(folder.glob("*.tar"))
    assert len(tars) > 1
    return f"{folder}/{tars[0].name[:-10]}{{000000..{len(tars) - 1:06d}}}.tar"


@pytest.mark.parametrize("kind", KINDS)
def test_plain_webdataset(shards: Path, kind: str) -> None:
    folder = shards / "web" / kind
    assert environments.answer(environments.readers(), "plain_webdataset", braces(folder)) == wanted(folder)


@pytest.mark.parametrize("how", ["streaming", "whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_hugging_face(shards: Path, tmp_path: Path, kind: str, how: str) -> None:
    folder = shards / "web" / kind
    python = environments.readers()
    assert environments.answer(python, "hugging_face", folder / "*.tar", how, tmp_path) == wanted(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_wids(shards: Path, tmp_path: Path, kind: str) -> None:
    folder = shards / "web" / kind
    python = environments.readers()
    assert environments.answer(python, "old_wids", folder / "index.json", tmp_path) == wanted(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_energon(shards: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    shutil.copytree(shards / "web" / kind, folder)
    same, samples = environments.answer(environments.megatron(), "energon", folder)
    assert same and samples == wanted(shards / "web" / kind)


def test_megatron_core(shards: Path, tmp_path: Path) -> None:
    export(Folder(shards), Folder(tmp_path), "megatron", Here())
    for folder, index in indexes(Folder(shards)):
        documents = [[*doc.tokens.tolist(), index.eos_id] for doc in iter_documents(folder, index)]
        reported = environments.answer(environments.megatron(), "megatron_core", tmp_path / index.name)
        assert reported == [[digest(doc) for doc in documents], list(range(len(documents) + 1))]


def test_datatrove(shards: Path, tmp_path: Path) -> None:
    export(Folder(shards), Folder(tmp_path), "datatrove", Here())
    length = 64
    folder, index = indexes(Folder(shards))[-2]
    size = str(np.dtype(index.dtype).itemsize)
    reported = environments.answer(
        environments.datatrove(), "datatrove_folder", tmp_path / index.name, str(length), size
    )
    windows = []
    for shard in index.shardlist:
        whole = [read_block(folder, shard, block) for block in shard.blocks]
        tokens = np.concatenate([block.tokens for block in whole]).astype(np.int64)
        ends = np.append(0, np.flatnonzero(tokens == index.eos_id) + 1)
        begins = np.repeat(ends[:-1], np.diff(ends))
        positions = np.arange(len(tokens)) - begins
        for low in range(0, len(tokens) - length, length + 1):
            places = positions[low : low + length + 1].copy()
            cut = begins[low : low + length + 1] < low  # begun in the window before: counted from its edge
            places[cut] = np.arange(length + 1)[cut]
            windows.append([tokens[low : low + length + 1].tolist(), places.tolist()])
    assert reported == windows


@pytest.mark.parametrize("kind", KINDS)
def test_webshart(shards: Path, tmp_path: Path, kind: str) -> None:
    export(Folder(shards), Folder(tmp_path), "webshart", Here())
    found = {}
    for tar in sorted((shards / "web" / kind).glob("*.tar")):
        with tarfile.open(tar) as opened:
            for info in opened:
                data = opened.extractfile(info).read()  # type: ignore[union-attr]
                found[info.name] = hashlib.sha256(data).hexdigest()
    reported = environments.answer(
        environments.readers(), "webshart_discovery", shards / "web" / kind, tmp_path / "web" / kind
    )
    assert reported == found
