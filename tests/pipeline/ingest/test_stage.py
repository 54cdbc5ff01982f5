"""The stage as the runner sees it: units, partitions, identity, keys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.ingest.builder import PartitionBuilder
from corpusmill.pipeline.ingest.stage import STAGE, Ingest
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.ingest.helpers import ingest, ingest_recipe


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two kinds of files, 300 documents of about 1 KB, some of them bad."""
    root = tmp_path / "corpus"
    root.mkdir()
    for n in range(3):
        lines = [
            json.dumps({"id": f"{n}-{i}", "text": f"document {n} {i} " + "wörter " * 140}) for i in range(90)
        ]
        lines[17] = "{broken"
        lines[40] = json.dumps({"text": "   "})
        (root / f"part{n}.jsonl").write_text("\n".join(lines) + "\n")
    for n in range(30):
        (root / f"note{n:02}.md").write_text(f"# Note {n}\n\n" + "some text. " * 90)
    return root


def test_ids_and_texts_are_the_same_for_any_partition_size(corpus: Path) -> None:
    results = [ingest(corpus, params={"partition_mb": size}) for size in (64, 0.05, 0.004, 0.0001)]
    first = sorted((doc["doc_id"], doc["text"]) for doc in results[0].docs)
    assert len(first) == 3 * 88 + 30
    gone = sorted((row["doc_id"], row["rule"], row["detail"]) for row in results[0].decisions)
    for result in results[1:]:
        assert sorted((doc["doc_id"], doc["text"]) for doc in result.docs) == first
        assert sorted((row["doc_id"], row["rule"], row["detail"]) for row in result.decisions) == gone
    assert [len(result.names) for result in results] == sorted(len(result.names) for result in results)
    assert len(results[0].names) == 1 and len(results[-1].names) >= 294


def test_partitions_are_no_larger_than_asked(corpus: Path) -> None:
    for size in (0.004, 0.05):
        result = ingest(corpus, params={"partition_mb": size})
        for table in result.tables:
            total = sum(len(text.as_py().encode()) for text in table["text"])
            assert total <= size * 2**20 or len(table) == 1
        assert result.names == sorted(result.names) and len(set(result.names)) == len(result.names)


def test_builder_holds_at_most_a_partition_and_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"text": "x" * (700 + 37 * (i % 11))}) for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    most = 0
    original = PartitionBuilder.flush_batch

    def watched(self: PartitionBuilder) -> object:  # what waits is most before it is cleaned
        nonlocal most
        waiting = self._pending.table()["text"].to_pylist() if self._pending.rows else []
        most = max(most, self._bytes + sum(map(len, waiting)))
        return original(self)

    monkeypatch.setattr(PartitionBuilder, "flush_batch", watched)
    ingest(tmp_path, params={"partition_mb": 0.1, "max_record_mb": 0.02})
    assert 0 < most <= 0.12 * 2**20


def test_small_files_share_a_unit_big_ones_have_their_own(tmp_path: Path) -> None:
    for name, size in (("a", 20), ("b", 20), ("c", 5000), ("d", 10), ("e", 10)):
        (tmp_path / f"{name}.txt").write_text("x" * size)
    recipe = Recipe.model_validate(
        {
            "name": "t",
            "sources": {"s": {"paths": [str(tmp_path)]}, "u": {"paths": [str(tmp_path / "a.txt")]}},
            "ingest": {"partition_mb": 1000 / 2**20},
        }
    )
    units = Ingest(recipe).units()
    assert [[file.path for file in unit.files] for unit in units] == [
        ["a.txt", "b.txt"],
        ["c.txt"],
        ["d.txt", "e.txt"],
        ["a.txt"],
    ]
    assert [unit.source for unit in units] == ["s", "s", "s", "u"]
    names = [unit.name for unit in units]
    assert [name.rpartition("-")[0] for name in names] == ["00-a_txt", "00-c_txt", "00-d_txt", "01-a_txt"]
    assert names == sorted(names)


def test_same_bytes_whatever_the_hash_seed(corpus: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from tests.pipeline.ingest.helpers import ingest\n"
        "from corpusmill.pipeline.engine.publish import publish_table; from corpusmill.common.storage import Folder\n"
        "r = ingest(sys.argv[1], params={'partition_mb': 0.05})\n"
        "print(r.names, r.raw, sorted(r.counters.items()), r.decisions)\n"
        "out = Folder(sys.argv[2])\n"
        "print([publish_table(out, f'{i}.parquet', t).xxh3 for i, t in enumerate(r.tables)])\n"
        "print(r.stage.inputs(), r.stage.key_params())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(corpus), str(tmp_path / "out")],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1 and len(outputs.pop()) > 1000


def test_key_has_what_changes_documents_and_not_where_they_lie(corpus: Path) -> None:
    def key(**source: object) -> object:
        config = {"name": "t", "sources": {"s": {"paths": [str(corpus)], **source}}}
        return Ingest(Recipe.model_validate(config)).key_params()

    assert key() == key(priority=3, license="MIT", paths=[str(corpus / "part0.jsonl")])
    assert key() != key(text_column="body")
    assert key() != key(format="text")
    assert "resiliparse" in str(key())


def test_stage_is_found_by_name_and_imports_no_reader_early() -> None:
    recipe = Recipe.model_validate({"name": "t", "sources": {"s": {"paths": ["x"]}}})
    assert isinstance(load_stage("ingest", recipe), STAGE)
    code = (
        "import corpusmill.pipeline.ingest.stage, sys\n"
        "heavy = ('fastwarc', 'resiliparse', 'ftfy', 'trafilatura', 'torch', 'dask')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_inputs_refreshes_the_known_files(corpus: Path) -> None:
    stage = ingest(corpus / "part0.jsonl").stage
    hashes = stage.inputs()
    assert list(hashes) == ["s/part0.jsonl"]
    saved = json.loads(json.dumps(stage.known_inputs))
    assert saved["s/part0.jsonl"][2] == hashes["s/part0.jsonl"]
    again = Ingest(stage.recipe)
    again.known_inputs = {path: tuple(entry) for path, entry in saved.items()}
    assert again.inputs() == hashes


def test_our_own_partitions_keep_identity(corpus: Path, tmp_path: Path) -> None:
    before = ingest(corpus)
    publish_table(Folder(tmp_path / "out"), "p.parquet", before.tables[0])
    for settings in ({}, {"format": "documents"}):
        recipe = {"name": "t", "sources": {"other": {"paths": [str(tmp_path / "out")], **settings}}}
        after = ingest_recipe(recipe)
        assert pa.concat_tables(after.tables).equals(before.tables[0])


def test_a_unit_without_a_record_gives_one_empty_partition(data_dir: Path) -> None:
    result = ingest(data_dir / "web/warc_samples/warcio-example-digest.warc")  # requests only
    assert [name[-4:] for name in result.names] == ["-000"] and not result.docs and not result.decisions
    assert result.counters["skipped/request"] == 4


@pytest.mark.s3
def test_object_storage_gives_the_same_documents(corpus: Path, s3: str) -> None:
    for path in corpus.iterdir():
        (Folder(s3) / "corpus" / path.name).write(path.read_bytes())
    here, there = ingest(corpus), ingest(f"{s3}/corpus")
    assert pa.concat_tables(there.tables).equals(pa.concat_tables(here.tables))
    assert there.raw == here.raw
