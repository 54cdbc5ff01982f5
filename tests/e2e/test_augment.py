"""Copies of documents through a whole run: in the shards, in the accounts, on the train side alone, and gone when their parents go."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.e2e.cli import corpusmill, difference
from tests.e2e.killing import Killing, finished, no_one_left, rows

MODULE = """
def shorten(texts, words=200):
    # Fails for some texts.
    return [None if len(text) % 5 == 0 else " ".join(text.split()[:words]) for text in texts]

def broken(texts):
    raise OSError("cannot be reached")
"""
RECIPE = """\
name: small
output: {out}
seed: 3
sources:
  books: {{paths: [{root}/examples/corpus/sources/books]}}
  speeches: {{paths: [{root}/examples/corpus/sources/speeches]}}
ingest: {{partition_mb: 0.5}}
stages: [ingest, split, tokenizer, augment, shard, report]
split: {{validation_share: 0.1, min_documents: 2}}
tokenizer: {{vocab_size: 512, sample_mb: 0.5}}
shard: {{format: both, block_tokens: 4096}}
augment:
  copies:
    - {{perturb: "typos:0.02", share: 0.3, times: 2}}
    - {{python: "shortens_texts_in_a_test:{function}", version: 1, share: 0.5, sources: [books]}}
"""


def recipe_in(folder: Path, function: str = "shorten") -> Path:
    (folder / "shortens_texts_in_a_test.py").write_text(MODULE)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(out=folder / "run", root=ROOT, function=function))
    return recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("augmented")
    corpusmill("run", recipe_in(folder), "--workers", "0")
    return folder / "run"


def account(run: Path) -> list[dict[str, Any]]:
    return rows(run / "augment/copies")


def test_the_copies_are_in_the_shards_and_every_one_is_accounted_for(run: Path) -> None:
    summary = json.loads((run / "augment/augment.json").read_text())
    copies = account(run)
    for by, outcomes in summary["by"].items():
        mine = [row["outcome"] for row in copies if row["by"] == by]
        assert outcomes == {name: mine.count(name) for name in ("made", "unchanged", "failed")}
        assert outcomes["made"] > 30
    assert summary["by"]["shortens_texts_in_a_test:shorten@1"]["failed"] > 3
    made = [row for row in copies if row["outcome"] == "made"]
    sets = {(s["source"], s["split"]): s for s in json.loads((run / "shards/index.json").read_text())["sets"]}
    assert ("books-augmented", "validation") not in sets and ("speeches-augmented", "validation") not in sets
    for source in ("books-augmented", "speeches-augmented"):
        count = sum(row["source"] == source for row in made)
        assert sets[source, "train"]["ndocs"] == count == summary["sources"][source]["train"]["docs"]
    # The ledger is of the input's records alone, and the tokenizer did not see copies.
    assert (
        len(rows(run / "ledger"))
        == json.loads((run / "ingest/manifest.json").read_text())["counts"]["docs_in"]
    )
    assert json.loads(corpusmill("verify", run, "--json").stdout)["problems"] == []
    assert "Copies made of documents to train on" in (run / "report.html").read_text()
    assert json.loads((run / "report/report.json").read_text())["augmented"] == summary


def test_a_copy_can_be_asked_for(run: Path) -> None:
    copy = next(row for row in account(run) if row["outcome"] == "made" and row["by"] == "typos:0.02")
    name, parent = copy["doc_id"].hex(), copy["parent"].hex()
    (found,) = json.loads(corpusmill("why", name, "--run", run, "--json").stdout)
    assert (found["parent"], found["outcome"], found["stage"]) == (parent, "kept", "augment")
    (of_parent,) = json.loads(corpusmill("why", parent, "--run", run, "--json").stdout)
    assert name in [one["doc_id"] for one in of_parent["copies"]] and len(of_parent["copies"]) >= 2
    (place,) = json.loads(corpusmill("find", name, "--run", run, "--json").stdout)["documents"]
    first = place["places"][0]
    address = f"{first['tar'].rpartition('/')[2].removesuffix('.tar')}:{first['block']}:{first['first']}"
    text = corpusmill("trace", address, "--run", run).stdout
    assert f"a copy that augment made by typos:0.02 of the document {parent}" in text
    failed = next(row for row in account(run) if row["outcome"] == "failed")
    (found,) = json.loads(corpusmill("why", failed["doc_id"].hex(), "--run", run, "--json").stdout)
    assert (found["rule"], found["outcome"]) == ("augment.failed", "failed") and "gave none" in found[
        "detail"
    ]


def test_copies_go_with_their_parents_and_are_not_made_again(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    recipe = recipe_in(tmp_path)
    shutil.copytree(run, folder)
    copy = next(row for row in account(folder) if row["outcome"] == "made" and row["by"] == "typos:0.02")
    mine = {
        row["doc_id"].hex()
        for row in account(folder)
        if row["parent"] == copy["parent"] and row["outcome"] == "made"
    }
    names = tmp_path / "names.txt"
    names.write_text(copy["parent"].hex())
    result = json.loads(corpusmill("takedown", names, "--run", folder, "--json", "--workers", "0").stdout)
    assert set(result["doc_ids"]) == {copy["parent"].hex(), *mine}
    assert json.loads(corpusmill("verify", folder, "--json").stdout)["problems"] == []
    corpusmill(
        "run", recipe, "--workers", "0", "--replace", "--set", f"output={folder}",
        "--set", "augment.copies=[{perturb: 'typos:0.03', share: 1}]",
    )  # fmt: skip
    again = account(folder)
    assert len(again) > 100 and copy["parent"] not in [row["parent"] for row in again]
    assert json.loads(corpusmill("verify", folder, "--json").stdout)["problems"] == []


def test_killed_and_resumed_on_workers_the_bytes_are_the_same(run: Path, tmp_path: Path) -> None:
    recipe, broken = recipe_in(tmp_path), tmp_path / "broken"
    killing = Killing(
        ["run", str(recipe), "--set", f"output={broken}", "--workers", "2"], str(broken / "augment")
    )
    killing.at([8], lambda: True)
    assert len(killing.kills) == 1
    corpusmill("run", recipe, "--set", f"output={broken}", "--workers", "0")
    assert all(no_one_left(group) for group in killing.groups)
    whole = {name: data for name, data in finished(run).items() if not name.startswith("lineage/")}
    assert difference(whole, finished(broken)) == []


def test_a_function_that_fails_for_all_stops_the_run_with_its_reason(tmp_path: Path) -> None:
    result = corpusmill("run", recipe_in(tmp_path, "broken"), "--workers", "0", check=False)
    assert result.returncode == 1
    assert (
        "augment: shortens_texts_in_a_test:broken@1: all " in result.stderr
        and "copies failed" in result.stderr
    )
    details = {row["detail"] for row in account(tmp_path / "run") if row["by"].endswith("broken@1")}
    assert details == {"OSError at shortens_texts_in_a_test.py, line 7"}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("augment.copies=[{perturb: 'typo:0.1', share: 0.1}]", "typo:0.1: no such kind; did you mean 'typos'"),
        ("augment.copies=[{python: 'no_module_of_that_name:f', version: 1, share: 0.1}]", "no module no_module_of_that_name"),
        ("augment.copies=[{perturb: 'typos:0.1', share: 0.1, sources: [book]}]", "'book' is not a source; did you mean 'books'"),
        ("stages=[ingest,split,tokenizer,shard,augment]", "stages: augment must come before shard"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_any_work(tmp_path: Path, setting: str, reason: str) -> None:
    result = corpusmill("run", recipe_in(tmp_path), "--workers", "0", "--set", setting, check=False)
    assert result.returncode == 2 and reason in result.stderr.replace("\n", " ")
    assert not (tmp_path / "run/ingest/documents").exists()
