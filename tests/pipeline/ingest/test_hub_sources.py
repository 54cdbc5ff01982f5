"""Data sets of the Hub as sources of a run, from a local server that speaks the Hub's API (`tests/web.py`)."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import tasks
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.inspect.lineage.raw import read_raw
from corpusmill.pipeline.inspect.lineage.run import RunPlaces
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.manifest import RunInputs, RunRecord
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.report import Report
from corpusmill.schemas.sources import Source
from tests.conftest import IMPORT_PATH, Serial
from tests.pipeline.filter.helpers import PROSE
from tests.pipeline.ingest.helpers import ingest
from tests.web import Answer, Hub

LINES = "".join(json.dumps({"id": f"{n}", "text": f"Text {n}. {PROSE}"}) + "\n" for n in range(40)).encode()


def parquet(first: int, last: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table(
        {"text": [f"Row {n}. {PROSE}" for n in range(first, last)], "kind": ["x"] * (last - first)}
    )
    pq.write_table(table, sink, row_group_size=25)
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    pyarrow.feather.write_feather(pa.table({"text": ["an arrow row"]}), sink)
    return sink.getvalue()


FILES = {
    "README.md": b"# The card\n", ".gitattributes": b"*.parquet lfs\n", "data/train.jsonl.gz": gzip.compress(LINES),
    "data/more.jsonl.zst": zstandard.compress(LINES.replace(b"Text", b"More")), "data/rows.parquet": parquet(0, 60),
    "data/table.csv": b"text,other\nfrom a row,1\n", "data/rows.arrow": arrow(), "data/page.txt": b"A page of text.\n",
}  # fmt: skip


def job(hub_url: str, folder: Path, **source: Any) -> Run:
    config = {
        "name": "t", "stages": ["ingest"], "sources": {"web": {"paths": [hub_url], **source}},
        "ingest": {"partition_mb": 0.0625},
    }  # fmt: skip
    tasks._stage.cache_clear()
    return Run(Recipe.model_validate(config), Folder(folder), Serial())


def test_every_format_is_read_as_from_a_folder(hub: Hub, tmp_path: Path) -> None:
    hub.repo("org/set", FILES)
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found, local = ingest("hf://datasets/org/set"), ingest(tmp_path / "data")
    assert found.texts == local.texts and len(found.texts) == 40 + 40 + 60 + 3 and not found.decisions
    assert [path.removeprefix("data/") for path in found.locators()] == local.locators()
    assert ingest("hf://datasets/org/set/data/*.jsonl.*").texts == ingest(tmp_path / "data/*.jsonl.*").texts
    assert ingest("hf://datasets/org/set/README.md").texts == ["# The card\n"], "the card, when it is named"
    assert ingest("hf://datasets/org/set/data/rows.parquet").locators()[0] == "rows.parquet#0"


def test_nothing_is_read_to_plan_and_nothing_again_afterwards(hub: Hub, tmp_path: Path) -> None:
    repo = hub.repo("org/set", FILES)
    run = job("hf://datasets/org/set", tmp_path / "run")
    planned = run.plan()
    assert hub.reads() == [], "the Hub's hashes name the content"
    first = repo.refs["main"]
    repo.commit({**FILES, "data/page.txt": b"Another text.\n"})  # between the plan and the work
    (manifest, *_) = run.execute(planned)
    assert manifest.counts.kept == 143
    texts = pq.read_table(tmp_path / "run/ingest/documents")["text"].to_pylist()
    assert "A page of text.\n" in texts, "the commit of the plan is read"
    record = RunRecord.model_validate_json((tmp_path / "run/manifest.json").read_bytes())
    inputs = RunInputs.model_validate_json((tmp_path / "run/inputs.json").read_bytes())
    assert record.revisions == inputs.revisions == {"hf://datasets/org/set@main": first}
    assert inputs.files["web/data/page.txt"][2].startswith("git-sha1:")
    assert inputs.files["web/data/rows.parquet"][2].startswith("lfs-sha256:")
    verify(Folder(tmp_path / "run"))

    read = len(hub.reads())
    repo.refs["main"] = first
    job("hf://datasets/org/set", tmp_path / "run").execute()
    assert len(hub.reads()) == read, "a second run reads nothing"
    repo.commit({**FILES, "data/page.txt": b"Another text.\n"})
    job("hf://datasets/org/set", tmp_path / "run").execute()
    assert {asked.path.rpartition("/")[2] for asked in hub.reads()[read:] if "resolve" in asked.path} <= {
        "page.txt", "table.csv", "rows.arrow",
    }, "what shares a task with the file that changed"  # fmt: skip
    assert "Another text.\n" in pq.read_table(tmp_path / "run/ingest/documents")["text"].to_pylist()
    assert (
        RunRecord.model_validate_json((tmp_path / "run/manifest.json").read_bytes()).revisions
        != record.revisions
    )


def test_a_document_is_traced_to_the_commit_that_was_read(hub: Hub, tmp_path: Path) -> None:
    repo = hub.repo("org/set", FILES)
    job("hf://datasets/org/set/data", tmp_path / "run").execute()
    first = repo.refs["main"]
    repo.commit({"data/page.txt": b"Nothing else is left.\n"})
    run = RunPlaces(str(tmp_path / "run"), lambda line: None)
    for locator in ("page.txt#0", "train.jsonl.gz#7", "rows.parquet#31"):
        (row,) = run.rows(locator)
        raw = read_raw(run, row)
        assert (raw.state, raw.note.partition(";")[0] != "gone") == ("equal", True), raw
        assert raw.file == f"hf://datasets/org/set@{first}/data/{locator.partition('#')[0]}"


def test_the_report_names_the_commit(hub: Hub, tmp_path: Path) -> None:
    commit = hub.repo("org/set", FILES).refs["main"]
    run = job("hf://datasets/org/set@main/data", tmp_path / "run")
    run.recipe = run.recipe.model_copy(update={"stages": ["ingest", "report"]})
    run.recipe_json = run.recipe.model_dump_json()
    run.execute()
    report = Report.model_validate_json((tmp_path / "run/report/report.json").read_bytes())
    assert report.reproduce.revisions == {"hf://datasets/org/set@main": commit}
    for name in ("report.html", "report/card.md"):
        assert commit in (tmp_path / "run" / name).read_text()


def test_bytes_without_the_hubs_hash_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.repo("org/set", {"a.jsonl": LINES, "b.txt": b"A page.\n"})
    run = job("hf://datasets/org/set", tmp_path / "run")
    planned = run.plan()
    hub.cdn.faults.append(lambda asked: Answer(200, LINES.replace(b"Text 39.", b"text 39.")))
    with pytest.raises(
        WorkError, match=r"sources\.web: a\.jsonl does not have the hash that the Hub gives, lfs-sha256"
    ):
        run.execute(planned)
    hub.cdn.faults.clear()
    hub.server.faults.append(
        lambda asked: (
            Answer(200, b"A pige.\n") if "resolve/" in asked.path and "b.txt" in asked.path else None
        )
    )
    with pytest.raises(WorkError, match=r"b\.txt does not have the hash that the Hub gives, git-sha1"):
        run.execute(run.plan())


def test_a_gated_file_of_a_public_listing(hub: Hub, tmp_path: Path) -> None:
    hub.repo("org/set", FILES)
    hub.server.faults.append(
        lambda asked: Answer(403, b"", {"X-Error-Code": "GatedRepo"}) if "/resolve/" in asked.path else None
    )
    with pytest.raises(UserError, match=r"hf://datasets/org/set: gated: accept its terms at"):
        job("hf://datasets/org/set/data", tmp_path / "run").execute()


def test_the_command_with_processes_of_its_own(hub: Hub, tmp_path: Path) -> None:
    hub.repo("org/set", FILES, private=True)
    command = [
        sys.executable,
        "-m",
        "corpusmill",
        "ingest",
        "hf://datasets/org/set",
        str(tmp_path / "out"),
        "--workers",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert refused.returncode == 2 and "set HF_TOKEN, if it is private or gated" in refused.stderr
    done = subprocess.run(command, env={**environment, "HF_TOKEN": hub.token}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(pq.read_table(tmp_path / "out/documents")) == 143
    written = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert hub.token not in done.stdout + done.stderr and hub.token.encode() not in written
    record = RunRecord.model_validate_json((tmp_path / "out/run.json").read_bytes())
    assert record.revisions == {"hf://datasets/org/set@main": hub.repos["org/set"].refs["main"]}


def test_what_goes_wrong_names_the_key(hub: Hub) -> None:
    hub.repo("org/set", FILES)
    hub.repo("org/gated", {"a.txt": b"text"}, gated=True)
    for path, message in (
        ("hf://datasets/org/sat", r"sources\.s\.paths: hf://datasets/org/sat: no such data set.*did you mean 'org/set'"),
        ("hf://datasets/org/set@v1", r"sources\.s\.paths: .*no revision 'v1'"),
        ("hf://datasets/org/set/data/rows.parquett", r"sources\.s\.paths: .*/rows.parquett: no such file.*'rows.parquet'"),
        ("hf://datasets/org/set/data/*.warc", r"no file matches; looked below hf://datasets/org/set@[0-9a-f]+/data"),
        ("hf://datasets/org/gated", r"gated: accept its terms"),
        ("hf://org/set", r"only data sets of the Hub"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            discover("s", Source(paths=[path]))


def test_a_large_file_is_streamed(hub: Hub) -> None:
    line = json.dumps({"text": PROSE * 20}).encode() + b"\n"
    data = line * (48 * 2**20 // len(line))
    hub.repo("org/set", {"a.jsonl": data})
    stage = job("hf://datasets/org/set", Path("/unused")).plan()[0].stage
    (unit,) = stage.units()  # type: ignore[attr-defined]
    tracemalloc.start()
    documents = sum(len(outcome.kept) for _, outcome, _ in stage.read(unit))  # type: ignore[attr-defined]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert documents == data.count(b"\n") and peak < len(data) / 4
