"""Transforms as stages of a recipe: what they change, what the ledger says of it, and that partitions make no difference."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.perturb import parse
from corpusmill.pipeline.transforms import noise, normalize
from tests.e2e.cli import corpusmill
from tests.e2e.killing import made_up, write_lines

RECIPE = """\
name: changed
sources: {{made: {{paths: [{folder}/docs.jsonl]}}}}
ingest: {{partition_mb: {size}}}
stages:
  - ingest
  - {{python: "corpusmill.pipeline.transforms:normalize", params: {{quotes: true, case: upper}}}}
  - {{python: "corpusmill.pipeline.transforms:noise", params: {{perturb: "typos:0.1", share: 0.25}}}}
  - split
cluster: {{workers: 0}}
"""


def table(*texts: str) -> pa.Table:
    ids = [number.to_bytes(16, "big") for number in range(len(texts))]
    return pa.table({"doc_id": pa.array(ids, pa.binary(16)), "text": pa.array(texts, pa.large_string())})


@given(st.lists(st.text(max_size=30), max_size=4), st.sampled_from(["nfc", "nfkc", "nfd", "nfkd"]))
def test_unicode_forms_are_those_of_python(texts: list[str], form: str) -> None:
    found = normalize(table(*texts), unicode=form)["text"].to_pylist()
    # Arrow's tables of Unicode may be newer than Python's: of characters that both know.
    known = [all(unicodedata.category(one) != "Cn" for one in text) for text in texts]
    wanted = [unicodedata.normalize(form.upper(), text) for text in texts]
    assert [one for one, fine in zip(found, known, strict=True) if fine] == [
        one for one, fine in zip(wanted, known, strict=True) if fine
    ]


def test_what_is_written_in_several_forms_has_one() -> None:
    text = "\u201cIt\u2019s\u201d \u2014 5\u22123\u00a0=\u20092\u200b, \ufb01ne\u00b2"
    assert normalize(table(text), unicode="")["text"].to_pylist() == [text]
    found = normalize(table(text), quotes=True, dashes=True, spaces=True)["text"][0].as_py()
    assert found == '"It\'s" - 5-3 = 2, \ufb01ne\u00b2'
    assert (
        normalize(table(found), unicode="nfkc", case="upper")["text"][0].as_py() == '"IT\'S" - 5-3 = 2, FINE2'
    )
    for given_, message in (
        ({"unicode": "utf8"}, 'is none of "", nfc, nfkc, nfd, nfkd'),
        ({"case": "title"}, 'is none of "", lower, upper'),
    ):
        with pytest.raises(UserError, match=message):
            normalize(table(text), **given_)


def test_noise_changes_its_share_of_the_documents() -> None:
    docs = table(*["the quick brown fox jumps over the lazy dog"] * 2000)
    found = noise(docs, "typos:0.1", share=0.25)["text"].to_pylist()
    changed = [row for row, text in enumerate(found) if text != docs["text"][row].as_py()]
    assert len(changed) / 2000 == pytest.approx(0.25, abs=0.03)
    by = parse("typos:0.1")
    for row in changed[:20]:
        assert found[row] == by.apply(docs["text"][row].as_py(), docs["doc_id"][row].as_py().hex())
    # Partitions make no difference.
    parts = [noise(part, "typos:0.1", share=0.25)["text"].to_pylist() for part in (docs[:700], docs[700:])]
    assert parts[0] + parts[1] == found
    assert noise(docs, "case:0")["text"].equals(docs["text"])
    with pytest.raises(UserError, match=r"noise.perturb typo:1: no such kind; did you mean 'typos'"):
        noise(docs, "typo:1")


def test_in_a_recipe_every_change_is_an_edit_of_the_ledger(tmp_path: Path) -> None:
    write_lines(tmp_path / "docs.jsonl", made_up(5)[:120], 0)
    runs = []
    for size in (0.02, 8):
        recipe, out = tmp_path / f"recipe-{size}.yaml", tmp_path / f"run-{size}"
        recipe.write_text(RECIPE.format(folder=tmp_path, size=size))
        corpusmill("run", recipe, "--set", f"output={out}")
        documents = pa.concat_tables(
            [pq.read_table(file) for file in sorted((out / "noise/documents").glob("*.parquet"))]
        )
        runs.append(documents.sort_by("doc_id").select(["doc_id", "text"]))
    assert runs[0].equals(runs[1]) and len(runs[0]) > 50
    texts = runs[0]["text"].to_pylist()
    assert all(text == text.upper() for text in texts)
    counts = [
        json.loads((tmp_path / f"run-8/{name}/manifest.json").read_text()) for name in ("normalize", "noise")
    ]
    assert (
        counts[0]["counters"]["edited"] == len(texts) and 0 < counts[1]["counters"]["edited"] < len(texts) / 2
    )
    assert all(one["counts"]["removed"] == 0 for one in counts)
    doc = runs[0]["doc_id"][0].as_py().hex()
    (answer,) = json.loads(corpusmill("why", doc, "--run", tmp_path / "run-8", "--json").stdout)
    assert answer["outcome"] == "kept" and "normalize" in {edit["stage"] for edit in answer["edits"]}


def test_a_wrong_parameter_is_one_line(tmp_path: Path) -> None:
    write_lines(tmp_path / "docs.jsonl", made_up(5)[:10], 0)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path, size=8).replace("typos:0.1", "typos:7"))
    done = corpusmill("run", recipe, "--set", f"output={tmp_path / 'run'}", check=False)
    assert done.returncode and "must be typos:RATE with a rate from 0 to 1" in done.stderr.splitlines()[-1]
