"""The split's part of the page: the sentence, a row a source, the histograms, the notes."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.report.page import _similarity, environment
from corpusmill.pipeline.split.stage import Split
from tests.pipeline.corpus import Here, context, documents, partitions, recipe, words


def similarity(tmp: Path, **params: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    made = recipe(["web"], split={"validation_share": 0.3, **params})
    texts = [words(40, i // 2) for i in range(40)]
    parts = partitions(Folder(tmp / "redact"), documents(texts), 2)
    Split(made).run(context(Folder(tmp), made, "split", parts))
    folder = tmp / "split"
    there = (folder / "similarity.json").exists()
    return (
        json.loads((folder / "split.json").read_text()),
        json.loads((folder / "similarity.json").read_text()) if there else None,
    )


def section(split: dict[str, Any], found: dict[str, Any] | None) -> str:
    charts = {"similarity": _similarity(found, "jaccard"), "inside": _similarity(found, "inside")}
    page = (
        environment()
        .get_template("split.html.j2")
        .render(f={"split": split, "similarity": found}, charts=charts)
    )
    return page


def plain(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_sentence_the_row_and_the_histogram_are_there(tmp_path: Path) -> None:
    split, found = similarity(tmp_path)
    assert found is not None and found["jaccard"]["max"] == 1.0
    page = section(split, found)
    assert found["sentence"] in plain(page)
    row = found["sources"]["web"]
    assert row["worst"][0]["validation"] in page and row["worst"][0]["train"] in page
    assert f'<td class="num">{row["jaccard"]["above"]}</td>' in page
    counts = found["histogram"]["jaccard"]
    assert sum(counts) == found["compared"]
    assert f"<title>0.95 to 1: {counts[-1]} documents</title>" in page


def test_notes_are_shown_escaped_and_nothing_is_measured_without_validation(tmp_path: Path) -> None:
    split, found = similarity(tmp_path, similarity_mb=0)
    assert found is None
    page = section({**split, "notes": ["a <b> note"]}, None)
    assert "a &lt;b&gt; note" in page and "was not measured" in page
    assert "was not measured" in section({"sources": {}}, None)  # of an older run
    assert plain(section({}, None)) == ""


def test_a_run_shows_it(tmp_path: Path) -> None:
    """Through the runner: from text to the page."""
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps({"text": words(40, i)}) + "\n" for i in range(30)))
    made = recipe(["web"], stages=["ingest", "split", "report"], split={"validation_share": 0.3})
    source = made.sources["web"].model_copy(update={"paths": [str(raw)]})
    made = made.model_copy(update={"sources": {"web": source}})
    run = Run(made, Folder(tmp_path / "run"), Here())
    run.execute(run.plan())
    found = json.loads((tmp_path / "run/split/similarity.json").read_text())
    assert found["sentence"] in plain((tmp_path / "run/report/report.html").read_text())
    assert json.loads((tmp_path / "run/report/report.json").read_text())["similarity"] == found
