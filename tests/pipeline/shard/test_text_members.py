"""Text shards: a document a sample, its bytes those that `tarfile` and `orjson` would have written."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.ids import text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.read import iter_documents, read_set
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.pipeline.shard.text_members import COLUMNS, HASHES, STRINGS, rendered
from corpusmill.schemas.shards import TextDocument, TextIndex, TextSetEntry
from corpusmill.schemas.tables import DOCUMENTS
from tests.pipeline.corpus import contents, documents
from tests.pipeline.shard.helpers import build, corpus, indexes, prepared

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
row = st.fixed_dictionaries(
    {
        "doc_id": st.binary(min_size=16, max_size=16), "text": any_text, "source": any_text, "locator": any_text,
        "text_hash": st.binary(min_size=16, max_size=16),
        "cluster_id": st.none() | st.binary(min_size=16, max_size=16),
        **dict.fromkeys(("source_id", "url", "date", "language", "metadata"), st.none() | any_text),
    }
)  # fmt: skip


def plainly(rows: list[dict[str, object]]) -> list[bytes]:
    """The samples, by `tarfile` and `orjson`."""
    samples = []
    for one in rows:
        about = {"doc_id": one["doc_id"].hex()}  # type: ignore[attr-defined]
        about |= {name: one[name] or "" for name in STRINGS}
        about |= {name: one[name].hex() if one[name] else "" for name in HASHES}  # type: ignore[attr-defined]
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, data in (("txt", str(one["text"]).encode()), ("json", orjson.dumps(about))):
                info = tarfile.TarInfo(f"{about['doc_id']}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            end = tar.offset
        samples.append(out.getvalue()[:end])
    return samples


@given(st.lists(row, max_size=6), st.integers(0, 3))
def test_samples_are_what_tarfile_and_orjson_write(rows: list[dict[str, object]], cut: int) -> None:
    table = pa.Table.from_pylist(rows, schema=pa.schema([DOCUMENTS.field(name) for name in COLUMNS]))
    chunks = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    words, offsets = rendered(chunks)
    data = words.tobytes()
    samples = [data[8 * a : 8 * b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    assert samples == plainly(rows)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with both kinds of shards; not to be written to."""
    tmp = tmp_path_factory.mktemp("texts")
    build(tmp, corpus(), format="both", shard_mb=0.02)
    return tmp / "shards"


def sets(shards: Path) -> Iterator[tuple[TextSetEntry, Path, TextIndex]]:
    for entry in read_set(Folder(shards)).texts:
        file = shards / entry.index
        yield entry, file.parent, TextIndex.model_validate_json(file.read_bytes())


def samples_of(folder: Path, index: TextIndex) -> Iterator[tuple[str, str, TextDocument]]:
    for shard in index.shardlist:
        with tarfile.open(folder / shard.url) as tar:
            members = tar.getmembers()
            for text, about in zip(members[::2], members[1::2], strict=True):
                key = text.name.removesuffix(".txt")
                assert about.name == f"{key}.json"
                raw = tar.extractfile(about).read()  # type: ignore[union-attr]
                content = tar.extractfile(text).read().decode()  # type: ignore[union-attr]
                yield key, content, TextDocument.model_validate_json(raw)


def test_every_document_is_a_sample_once(texts: Path) -> None:
    wanted = {one["doc_id"].hex(): one for one in corpus().to_pylist()}
    seen = []
    for entry, folder, index in sets(texts):
        found = list(samples_of(folder, index))
        assert len(found) == index.ndocs == entry.ndocs == sum(s.nsamples for s in index.shardlist)
        assert sum(len(text.encode()) for _, text, _ in found) == index.text_bytes == entry.text_bytes
        for key, text, about in found:
            assert text == wanted[key]["text"]
            assert (about.doc_id, about.source, about.locator) == (key, index.source, wanted[key]["locator"])
            assert about.text_hash == text_hash(text).hex()
        seen += [key for key, _, _ in found]
    assert sorted(seen) == sorted(wanted)


def test_text_and_tokens_come_in_the_same_order(texts: Path) -> None:
    by_name = {
        index.name: [key for key, _, _ in samples_of(folder, index)] for _, folder, index in sets(texts)
    }
    tokens = {
        f"{index.name}-text": [doc.doc_id for doc in iter_documents(folder, index)]
        for folder, index in indexes(Folder(texts))
    }
    assert by_name == tokens and len(by_name) == 7


def test_indexes_say_what_is_there(texts: Path) -> None:
    many = 0
    for _, folder, index in sets(texts):
        many = max(many, len(index.shardlist))
        for shard in index.shardlist:
            data = (folder / shard.url).read_bytes()
            assert (shard.filesize, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            offsets = np.frombuffer((folder / f"{shard.url}.idx").read_bytes(), dtype="<u8").tolist()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                infos = tar.getmembers()
                assert offsets == [*(info.offset for info in infos[::2]), tar.offset]
        content = json.loads((folder / "index.json").read_bytes())
        assert (content["__kind__"], content["wids_version"]) == ("wids-shard-index-v1", 1)
    assert many > 1


def test_tokens_are_the_same_with_and_without_text(texts: Path, tmp_path: Path) -> None:
    build(tmp_path / "tokens", corpus(), shard_mb=0.02)
    build(tmp_path / "text", corpus(), format="text", shard_mb=0.02)
    alone, only = contents(tmp_path / "tokens/shards"), contents(tmp_path / "text/shards")
    both = contents(texts)
    assert set(alone) | set(only) == set(both)
    differ = {name for one in (alone, only) for name in one if one[name] != both[name]}
    assert differ == {"index.json"}
    assert read_set(Folder(tmp_path / "text/shards")).sets == []


@pytest.mark.parametrize(("parts", "shuffle"), [(1, None), (7, 5)])
def test_partitions_and_task_order_change_no_byte(
    texts: Path, tmp_path: Path, parts: int, shuffle: int | None
) -> None:
    build(tmp_path, corpus(), parts, shuffle, format="both", shard_mb=0.02)
    assert contents(tmp_path / "shards") == contents(texts)


def test_another_format_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    docs = documents(["one", "two"], "lone")
    build(tmp_path, docs, format="both")
    made, here = prepared(tmp_path, docs, format="text")
    Shards(made).run(here)
    names = set(contents(tmp_path / "shards")) - {"index.json", "tokenizer.json"}
    assert names and all(name.split("/")[1].endswith("-text") for name in names)


def test_plain_webdataset_reads_them(texts: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    for _, folder, index in sets(texts):
        urls = [str(folder / shard.url) for shard in index.shardlist]
        found = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
        expected = [(key, text, about.model_dump()) for key, text, about in samples_of(folder, index)]
        assert [(one["__key__"], one["txt"], one["json"]) for one in found] == expected
