"""The public API: any table goes in, the command's decisions come out, and nothing heavy is imported before it is used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.__main__ import build
from corpusmill.pipeline.api.tables import write_input
from corpusmill.schemas.tables import DOCUMENTS, LEDGER
from tests.command_line import CliRunner

SENTENCE = "The harbour of town number {} was built for the merchants who came with their ships, and it is still there."
ITEM = "which of the seven rivers of the old kingdom was the first one to be crossed by a bridge of stone"
ROWS = [
    {"id": f"d{i}", "text": " ".join(SENTENCE.format(i % 30 * 7 + j) for j in range(4)), "rank": i} for i in range(40)
] + [
    {"id": "mail", "text": f"{SENTENCE.format('six')} Write to jane.doe@example.org or call +1 212 555 0123.", "rank": 1},
    {"id": "item", "text": f"{SENTENCE.format('two')} So: {ITEM}, they asked.", "rank": 2},
    {"id": "empty", "text": "", "rank": 3},
    {"id": "short", "text": "too short", "rank": 4},
]  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS)


def as_pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS)


def as_polars() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


def as_duckdb() -> Any:
    return pytest.importorskip("duckdb").from_arrow(TABLE)


def as_datasets() -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(ROWS)


def as_batches() -> Any:
    return (batch for batch in TABLE.to_batches(max_chunksize=7))


def test_importing_it_imports_nothing_heavy() -> None:
    code = """
import sys
import corpusmill
heavy = {"torch", "numpy", "pyarrow", "numba", "dask", "pydantic", "typer"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert set(corpusmill.__all__) <= set(dir(corpusmill))
import corpusmill.train
assert "torch" not in sys.modules and callable(corpusmill.train)
for name in corpusmill.__all__:
    assert callable(getattr(corpusmill, name)), name
try:
    corpusmill.no_such_name
except AttributeError as error:
    assert str(error) == "module 'corpusmill' has no attribute 'no_such_name'"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("make", [as_pandas, as_polars, as_duckdb, as_datasets, as_batches])
def test_every_kind_of_table_gives_the_same(make: Callable[[], Any]) -> None:
    """The same ids too: how a table is cut into batches does not matter."""
    wanted, found = corpusmill.dedup(TABLE), corpusmill.dedup(make())
    for table, other in zip(wanted, found, strict=True):
        assert other.equals(table)
    assert len(wanted.kept) + len(wanted.decisions) == len(ROWS)
    assert {"d30", "d39", "empty"} & set(wanted.decisions["source_id"].to_pylist())


def command(name: str, tmp_path: Path, *options: str) -> tuple[pa.Table, pa.Table]:
    """(documents, ledger) of the command on the same table."""
    pq.write_table(TABLE, tmp_path / "table.parquet")
    out = tmp_path / "out"
    arguments = [name, str(tmp_path / "table.parquet"), str(out), "--workers", "0", "--quiet", *options]
    result = CliRunner().invoke(build(), arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return pq.read_table(out / "documents"), pq.read_table(out / "ledger")


def by_command(name: str, evals: Path, table: Any, **options: Any) -> Any:
    function = getattr(corpusmill, name)
    return function(table, str(evals), **options) if name == "decontaminate" else function(table, **options)


@pytest.mark.parametrize(
    ("name", "options", "params"),
    [
        ("filter", ["--rules", "gopher_quality", "--set", "filter.language=null"], {"rules": ["gopher_quality"], "language": None}),
        ("dedup", ["--similarity", "0.7"], {"similarity": 0.7}),
        ("decontaminate", ["--ngram", "10", "--min-words", "5"], {"ngram": 10, "min_words": 5}),
        ("redact", ["--replacement", "tag"], {}),
    ],
)  # fmt: skip
def test_decisions_are_the_commands(
    tmp_path: Path, name: str, options: list[str], params: dict[str, Any]
) -> None:
    evals = tmp_path / "evals.jsonl"
    evals.write_text(json.dumps({"question": ITEM, "answer": "the third"}) + "\n")
    more = ["--against", str(evals)] if name == "decontaminate" else []
    documents, ledger = command(name, tmp_path, *options, *more)
    result = by_command(name, evals, TABLE, **params)
    assert result.kept.equals(documents.cast(DOCUMENTS))
    decided = ledger.filter(pc.or_(pc.not_equal(ledger["outcome"], "kept"), pc.is_valid(ledger["edits"])))
    assert result.decisions.equals(decided.cast(LEDGER))
    assert len(result.decisions) >= 2
    outcomes = result.decisions["outcome"].to_pylist()
    assert len(TABLE) == len(result.kept) + outcomes.count("removed") + outcomes.count("quarantined")


def test_a_result_goes_into_the_next_function_with_its_ids() -> None:
    first = corpusmill.dedup(TABLE)
    second = corpusmill.redact(first.kept)
    assert second.kept["doc_id"].equals(first.kept["doc_id"])
    assert second.kept["cluster_id"].equals(first.kept["cluster_id"])
    parts = corpusmill.split(second.kept, validation_share=0.2, min_documents=2)
    assert len(parts.train) + len(parts.validation) == len(second.kept) and len(parts.validation) >= 2


def test_filter_measures_every_document_that_came_in() -> None:
    result = corpusmill.filter(TABLE, rules=["gopher_quality"], language=None, toxicity=None, quality=None)
    assert len(result.signals) == len(ROWS) - 1 and "gopher.word_count" in result.signals.column_names
    assert len(result.kept) < len(result.signals)
    alone = corpusmill.signals(TABLE, rules=["gopher_quality"], language=None, toxicity=None, quality=None)
    assert alone.equals(result.signals)


def test_sources_are_distinguished() -> None:
    table = TABLE.append_column("source", pa.array(["a-1", "b_2"] * (len(ROWS) // 2)))
    kept = corpusmill.ingest(table).kept
    assert sorted(set(kept["source"].to_pylist())) == ["a-1", "b_2"]
    assert kept.filter(pc.equal(kept["source_id"], "d3"))["source"].to_pylist() == ["b_2"]


def test_tokenizer_tokens_shards_and_questions(tmp_path: Path) -> None:
    tokenizer = corpusmill.train_tokenizer(TABLE, vocab_size=300)
    text = ROWS[0]["text"]
    assert tokenizer.decode(tokenizer.encode(text)) == text and tokenizer.vocab_size == 300
    tokenizer.save(tmp_path / "tokenizer.json")
    assert corpusmill.load_tokenizer(tmp_path).eos_id == tokenizer.eos_id
    encoded = corpusmill.encode(TABLE, tokenizer, eos=True)
    assert len(encoded) == len(ROWS) - 1
    row = encoded.filter(pc.equal(encoded["source_id"], "d0"))["tokens"][0].as_py()
    assert row == [*tokenizer.encode(text).tolist(), tokenizer.eos_id]
    shards = corpusmill.shard(TABLE, tmp_path / "shards", tokenizer, block_tokens=256)
    assert sum(entry["ndocs"] for entry in shards.index_json["sets"]) == len(encoded)
    assert corpusmill.verify(shards.url).problems == []
    (answer,) = corpusmill.why(shards.url, "empty")
    assert answer["outcome"] == "quarantined"
    (found,) = corpusmill.find(shards.url, "d0")
    traced = corpusmill.trace(shards.url, found["places"][0]["address"], raw=False)
    assert [one["doc_id"] for one in traced] == [found["doc_id"]]


def test_signatures_of_similar_texts_are_similar() -> None:
    """That they are those of datasketch is shown in tests/pipeline/dedup."""
    found = corpusmill.signatures(TABLE, num_perm=64)
    assert found.shape == (len(ROWS), 64) and found.dtype == np.uint32
    assert (found[0] == found[30]).all() and (found[0] != found[1]).mean() > 0.1
    assert (corpusmill.signatures(as_batches(), num_perm=64) == found).all()


def test_a_recipe_from_a_program(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    config = {
        "name": "own", "output": str(tmp_path / "run"), "sources": {"s": {"paths": [str(tmp_path / "in.parquet")]}},
        "stages": ["ingest", "dedup"],
    }  # fmt: skip
    run = corpusmill.Recipe.of(config).run(workers=0)
    assert run.counts["dedup"].removed >= 10 and len(run.ledger()) == len(ROWS)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(config))
    again = corpusmill.Recipe.load(recipe, ["dedup.minhash=false"]).run(workers=0, replace=True)
    assert again.counts["dedup"].kept >= run.counts["dedup"].kept


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([{"text": "a"}], "a dict is not a table"),
        ("text", "a str is not a table"),
        (pa.table({"body": ["a"]}), "no column 'text' \\(columns: body\\)"),
        ([], "no tables"),
        ([pa.table({"text": ["a"]}), pa.table({"text": ["b"], "x": [1]}).select(["x"])], "no column 'text'"),
        ([pa.table({"text": ["a"], "x": [1]}), pa.table({"text": ["b"]})], "tables of different columns: text, x, and then text"),
        (pa.table({"text": ["a"], "source": ["../x"]}), "source '../x': a name may contain only"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_one_line(tmp_path: Path, documents: Any, message: str) -> None:
    with pytest.raises(corpusmill.UserError, match=message):
        write_input(documents, tmp_path, "text")


def test_a_wrong_parameter_names_the_nearest() -> None:
    with pytest.raises(corpusmill.UserError, match="dedup.similarty: unknown key; did you mean 'similarity'"):
        corpusmill.dedup(TABLE, similarty=0.8)
