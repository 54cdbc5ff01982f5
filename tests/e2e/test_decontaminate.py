"""`corpusmill decontaminate` and the stage in a recipe, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.schemas.decontamination import Contamination, EvaluationIndex, TouchedItem
from corpusmill.schemas.report import Report
from tests.e2e.cli import corpusmill, difference, published
from tests.pipeline.decontaminate.helpers import ANSWER, QUESTION, SHORT, write_set

FILLER = (
    "The harbour of the town was built in the year of the great frost, and its walls are made of grey stone. "
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty documents in two files; four hold an item."""
    write_set(
        tmp_path / "evals",
        [
            {"question": QUESTION, "answer": "289", "id": "long"},
            {"question": SHORT, "answer": ANSWER, "id": "short"},
        ],
    )
    (tmp_path / "docs").mkdir()
    for file in range(2):
        texts = [f"Page {file} of {i}. {FILLER * (i % 5 + 2)}" for i in range(20)]
        texts[7] += f"\n\n{QUESTION.upper()}\n\nWrite to jane.doe@example.org about page {file}. {FILLER * 2}"
        texts[11] = f"{file}. {SHORT} {ANSWER}. " + FILLER
        rows = [json.dumps({"id": f"{file}-{i}", "text": text}) for i, text in enumerate(texts)]
        (tmp_path / f"docs/{file}.jsonl").write_text("\n".join(rows))
    return tmp_path


def test_on_ones_own_files(corpus: Path) -> None:
    out = corpus / "out"
    command = ("decontaminate", corpus / "docs", out, "--against", corpus / "evals", "--workers", "0")
    result = json.loads(corpusmill(*command, "--json").stdout)
    assert result["stages"]["decontaminate"]["counts"]["removed"] == 4
    assert result["stages"]["decontaminate"]["counters"]["items_contaminated"] == 2
    (found,) = json.loads((out / "contamination.json").read_text())["sets"]
    assert (found["set"], found["items"], found["contaminated"], found["documents"]) == ("riddles", 2, 2, 4)
    assert [json.loads(line)["id"] for line in (out / "touched_items.jsonl").read_text().splitlines()] == [
        "long",
        "short",
    ]
    (answer,) = json.loads(corpusmill("why", "1-7", "--run", out, "--json").stdout)
    assert (answer["outcome"], answer["rule"]) == ("removed", "decontaminate.question")
    assert "riddles#long" in answer["detail"]
    rows = [row for f in (out / "ledger").glob("*.parquet") for row in pq.read_table(f).to_pylist()]
    assert [row["outcome"] for row in rows].count("removed") == 4 and len(rows) == 40
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []
    before = published(out)
    again = corpusmill(*command)
    assert "everything is finished and valid" in again.stderr and difference(before, published(out)) == []


def test_in_a_recipe_for_any_number_of_workers(corpus: Path) -> None:
    """The stage runs where the recipe names files, after deduplication, and its table stands in the report."""
    (corpus / "recipe.yaml").write_text(
        f"""\
name: clean
sources: {{web: {{paths: [{corpus}/docs]}}}}
ingest: {{partition_mb: 0.01}}
decontaminate: {{against: [{corpus}/evals/*.jsonl], action: cut}}
"""
    )
    planned = json.loads(
        corpusmill("run", corpus / "recipe.yaml", "--workers", "0", "--dry-run", "--json").stdout
    )
    names = [entry["stage"] for entry in planned]
    assert names[:5] == ["ingest", "filter", "dedup", "decontaminate", "redact"]
    runs = []
    for workers in ("0", "2"):
        run = corpus / f"run{workers}"
        stages = ("--set", "stages=[ingest, decontaminate, redact, report]", "--set", f"output={run}")
        corpusmill("run", corpus / "recipe.yaml", *stages, "--workers", workers)
        runs.append(published(run))
    assert difference(*runs) == [] and any(name.startswith("decontaminate/matches/") for name in runs[0])
    again = ("run", corpus / "recipe.yaml", *stages, "--workers", "0", "--dry-run", "--json")
    plan = json.loads(corpusmill(*again).stdout)
    assert not any(entry["run"] for entry in plan)
    assert json.loads(corpusmill("verify", run, "--json").stdout)["problems"] == []
    Contamination.model_validate_json((run / "decontaminate/contamination.json").read_bytes())
    EvaluationIndex.model_validate_json((run / "decontaminate/index/index.json").read_bytes())
    touched = (run / "decontaminate/touched_items.jsonl").read_bytes().splitlines()
    assert len([TouchedItem.model_validate_json(line) for line in touched]) == 2
    Report.model_validate_json((run / "report/report.json").read_bytes())
    figures = json.loads((run / "report/report.json").read_text())
    step = next(step for step in figures["flow"] if step["stage"] == "decontaminate")
    assert step["docs_in"] == step["kept"] + step["removed"] and step["bytes_kept"] < step["bytes_in"]
    assert figures["contamination"]["sets"][0]["contaminated"] == 2
    assert 'id="contamination"' in (run / "report.html").read_text()
    assert "llama" not in json.dumps(figures["contamination"]).lower()
    (answer,) = json.loads(corpusmill("why", "1-7", "--run", run, "--json").stdout)
    assert answer["outcome"] == "kept"
    assert [edit["kind"] for edit in answer["edits"]] == ["decontaminate.question", "email"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", [], "holds no evaluation items"),
        ('{"question": ', [], "riddles.jsonl:1: not JSON"),
        ('{"q": "a"}', [], "--fields question=FIELD"),
        ('{"q": "a"}', ["--fields", "question=p"], "no field 'p' for question"),
        ('{"question": "Why so?"}', [], "none of 1 items can be looked for"),
        ('{"question": "Why so?"}', ["--fields", "question"], "must be ROLE=FIELD"),
        ('{"question": "Why so?"}', ["--min-words", "14"], "exceeds ngram"),
        ('{"question": "Why so?"}', ["--action", "keep"], "'keep' is not allowed"),
    ],
)
def test_a_mistake_is_reported_in_a_line(
    corpus: Path, content: str, options: list[str], message: str
) -> None:
    (corpus / "evals/riddles.jsonl").write_text(content)
    result = corpusmill(
        "decontaminate", corpus / "docs", corpus / "out", "--against", corpus / "evals", "--workers", "0", "-q", *options,
        check=False,
    )  # fmt: skip
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_without_against_it_says_so(corpus: Path) -> None:
    result = corpusmill("decontaminate", corpus / "docs", corpus / "out", check=False)
    assert result.returncode == 2 and "decontaminate.against: missing" in result.stderr


def test_passages_stand_beside_the_items(corpus: Path) -> None:
    out, page = corpus / "out", corpus / "passages.html"
    changed = " ".join("umber" if i % 10 == 9 else word for i, word in enumerate(QUESTION.split()))
    (corpus / "docs/0.jsonl").write_text(
        json.dumps({"id": "near", "text": f"{FILLER * 3}{changed}? {FILLER}"})
    )
    corpusmill("decontaminate", corpus / "docs", out, "--against", corpus / "evals", "--workers", "0")
    found = json.loads(corpusmill("passages", out, "--doc", "near", "--json").stdout)
    (row,) = found["passages"]
    assert (row["passage"], row["text"]) == (changed + "?", QUESTION)
    assert (row["item"], row["part"], row["near"]) == ("long", "question", True)
    assert next(words for differs, words in row["left"] if differs).split()[0] == "umber"
    shown = corpusmill("passages", out, "--set", "riddles", "--html", page).stdout
    assert "riddles#short, question" in shown and "river floods" in shown and str(page) in shown
    text = page.read_text()
    assert "<mark>umber</mark>" in text and "http" not in text.replace("http-equiv", "")
    wrong = corpusmill("passages", out, "--set", "other", check=False)
    assert "found: riddles" in wrong.stderr
    (corpus / "evals").rename(corpus / "moved")
    assert "give the files with --against" in corpusmill("passages", out, check=False).stderr
    assert QUESTION[:20] in corpusmill("passages", out, "--against", corpus / "moved").stdout
