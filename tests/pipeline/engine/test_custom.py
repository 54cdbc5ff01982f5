"""A stage of one's own: rows of the ledger, edits, keys, and a line for every mistake."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.custom import find_function, of_kept, stage
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.engine.stage import Outcome, check_conservation
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.inspect.why import explain, why
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS
from tests.conftest import Serial

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc
from corpusmill.pipeline.engine.custom import stage
from corpusmill.pipeline.engine.stage import Outcome, decisions

CONSTANT = 3

def short(docs, limit=12):
    kept = docs.filter(pc.invert(pc.match_substring(docs["text"], "spam")))
    texts = [text[:limit] for text in kept["text"].to_pylist()]
    return kept.set_column(kept.column_names.index("text"), "text", pa.array(texts))

@stage(version="7")
def marked(docs):
    return docs

def own_reasons(docs):
    hit = pc.match_substring(docs["text"], "spam")
    ids = docs["doc_id"].filter(hit).to_pylist()
    rows = [{"doc_id": i, "outcome": "quarantined", "stage": "?", "rule": "own.spam", "value": 1.0} for i in ids]
    return Outcome(docs.filter(pc.invert(hit)), decisions(rows))

def a_list(docs): return [1]
def broken(docs): return docs.no_such_thing
def twice(docs): return pa.concat_tables([docs, docs])
def lost(docs): return Outcome(docs.slice(1), decisions([]))
def column(docs): return docs.append_column("mine", docs["text"])
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    name = f"own_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name
    sys.modules.pop(name, None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def recipe(tmp_path: Path, entry: Any, **changes: Any) -> Recipe:
    texts = ["one of the texts", "spam of any kind", "short"]
    (tmp_path / "in.jsonl").write_text(
        "".join(f'{{"id": "{i}", "text": "{t}"}}\n' for i, t in enumerate(texts))
    )
    config = {"name": "t", "sources": {"s": {"paths": [str(tmp_path / "in.jsonl")]}}, "stages": ["ingest", entry], **changes}  # fmt: skip
    return validate(Recipe, config, "recipe.yaml").importing_from(str(tmp_path))


def run(tmp_path: Path, entry: Any) -> Run:
    return Run(recipe(tmp_path, entry), Folder(tmp_path / "run"), Serial(), replace=True)


def test_what_it_drops_and_changes_is_in_the_ledger(tmp_path: Path, module: str) -> None:
    entry = {"python": f"{module}:short", "version": "1"}
    manifests = {m.stage: m for m in run(tmp_path, entry).execute()}
    counts, counters = manifests["short"].counts, manifests["short"].counters
    assert (counts.docs_in, counts.kept, counts.removed) == (3, 2, 1)
    assert counters == {"removed": 1, "edited": 1}
    kept = pq.read_table(tmp_path / "run/short/documents")
    assert kept["text"].to_pylist() == ["one of the t", "short"]
    assert kept["text_hash"].to_pylist() == [text_hash("one of the t"), text_hash("short")]
    assert verify(Folder(tmp_path / "run")).problems == []
    (row,) = why(Folder(tmp_path / "run"), "1")
    assert (row["outcome"], row["stage"], row["rule"]) == ("removed", "short", "short")
    assert "removed     at short by short" in explain(row)
    (row,) = why(Folder(tmp_path / "run"), "0")
    assert row["edits"] == [{"stage": "short", "kind": "short", "offset": 12, "length": 4, "written": 0}]


def test_its_key_is_of_name_version_and_params(tmp_path: Path, module: str) -> None:
    def planned(**changes: Any) -> list[str]:
        entry = {"python": f"{module}:short", "version": "1", **changes}
        return [p.why for p in run(tmp_path, entry).plan() if p.name == changes.get("name", "short")]

    run(tmp_path, {"python": f"{module}:short", "version": 1}).execute()
    assert planned() == [""]
    assert planned(version="2") == ["code changed: version 1 -> 2"]
    assert planned(params={"limit": 3}) == ["parameters changed: params"]
    assert planned(name="other") == ["not run yet"]


def test_a_decorated_function_brings_its_version(tmp_path: Path, module: str) -> None:
    manifests = run(tmp_path, {"python": f"{module}:marked"}).execute()
    assert next(m.version for m in manifests if m.stage == "marked") == "7"


def test_decisions_of_its_own(tmp_path: Path, module: str) -> None:
    run(tmp_path, {"python": f"{module}:own_reasons", "version": "1"}).execute()
    (row,) = why(Folder(tmp_path / "run"), "1")
    found = (row["outcome"], row["stage"], row["rule"], row["value"])
    assert found == ("quarantined", "own_reasons", "own.spam", 1.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"python": "no_such_module:f", "version": "1"}, "stages: no_such_module:f: no module no_such_module in "),
        ({"python": "M:nothing", "version": "1"}, "stages: M:nothing: M has no nothing"),
        ({"python": "M:CONSTANT", "version": "1"}, "stages: M:CONSTANT: CONSTANT is a int, not a function"),
        ({"python": "M:short"}, "stages: M:short: version: missing; give one that"),
        ({"python": "M:short", "version": "1", "params": {"limits": 3}}, "cannot be called with a table and its params: "),
        ({"python": "M:a_list", "version": "1"}, "-000: must return the table of"),
        ({"python": "M:broken", "version": "1"}, r"M.py, line 25: AttributeError: 'pyarrow.lib.Table' object has no"),
        ({"python": "M:twice", "version": "1"}, "returned a document twice (by doc_id)"),
        ({"python": "M:lost", "version": "1"}, "3 documents in, 2 kept, but 0 removed or quarantined"),
        ({"python": "M:column", "version": "1"}, "returned a column that documents do not have: mine"),
        ({"python": "M", "version": "1"}, "recipe.yaml: stages.1.python: 'M' must be module:function"),
        ({"python": "M:short", "versoin": "1"}, "stages.1.versoin: unknown key; did you mean 'version'?"),
        ({"python": "M:short", "version": "1", "name": "dedup"}, "the name 'dedup' is taken"),
        ("filtr", "stages.1: 'filtr' is not allowed; did you mean 'filter'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, module: str, entry: Any, message: str) -> None:
    if isinstance(entry, dict):
        entry = {**entry, "python": re.sub(r"\bM\b", module, entry["python"])}
    with pytest.raises((UserError, WorkError)) as caught:
        run(tmp_path, entry).execute()
    assert message in str(caught.value).replace(module, "M") and "\n" not in str(caught.value)


def test_a_stage_of_ones_own_stands_before_the_global_ones(tmp_path: Path, module: str) -> None:
    entry = {"python": f"{module}:short", "version": "1"}
    with pytest.raises(UserError, match="short come before split"):
        recipe(tmp_path, "split", stages=["ingest", "split", entry])


@pytest.mark.parametrize(("column", "kind"), [([{"a": 1}], "struct"), ([b"\xff"], "binary")])
def test_a_column_of_another_type_is_named(column: list[Any], kind: str) -> None:
    """One that Arrow cannot cast at all, and one with a value that is no text."""
    row = {
        "doc_id": doc_id("s", "a"),
        "source": "s",
        "locator": "a",
        "text": "a",
        "text_hash": text_hash("a"),
    }
    docs = pa.Table.from_pylist([{n: row.get(n) for n in DOCUMENTS.names}], schema=DOCUMENTS)
    kept = docs.select(["doc_id"]).append_column("text", pa.array(column))
    with pytest.raises(WorkError, match=f"^here: text: is {kind}.*, must be large_string$"):
        of_kept(docs, kept, "mine", "here")


def test_order_and_columns_do_not_matter() -> None:
    texts = ["a", "b", "c"]
    rows = [
        {"doc_id": doc_id("s", t), "source": "s", "locator": t, "text": t, "text_hash": text_hash(t)} for t in texts
    ]  # fmt: skip
    docs = pa.Table.from_pylist([{n: r.get(n) for n in DOCUMENTS.names} for r in rows], schema=DOCUMENTS)
    kept = docs.take([2, 0]).select(["text", "doc_id"])
    outcome = of_kept(docs, kept, "mine", "here")
    assert outcome.kept.equals(docs.take([0, 2])) and check_conservation("here", 3, outcome) == (1, 0)
    same = of_kept(docs, docs.filter(pc.equal(docs["text"], "none")), "mine", "here")
    assert check_conservation("here", 3, same) == (3, 0) and isinstance(same, Outcome)


def test_the_decorator_changes_nothing_else() -> None:
    def own(docs: pa.Table) -> pa.Table:
        return docs

    assert stage(version="1")(own) is own
    with pytest.raises(UserError, match="no module nothing"):
        find_function("nothing:here", {}, [])
