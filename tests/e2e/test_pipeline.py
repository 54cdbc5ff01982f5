"""The whole pipeline on a small real corpus: conservation, equal bytes, resuming, object storage."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import StageManifest
from tests.browser import check_page
from tests.e2e.cli import corpusmill, difference, published, write_recipe
from tests.e2e.killing import killed_without_workers, points
from tests.forks import Started
from tests.schemas.test_published import FILES

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def ledger_rows(run: Path) -> list[dict[str, object]]:
    return [
        row for file in sorted((run / "ledger").glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


def test_every_record_has_one_outcome(finished: Path) -> None:
    rows = ledger_rows(finished)
    manifest = StageManifest.model_validate_json((finished / "ingest/manifest.json").read_bytes())
    assert len(rows) == manifest.counts.docs_in > 500
    assert len({row["doc_id"] for row in rows}) == len(rows)
    kept = sum(row["outcome"] == "kept" for row in rows)
    last = StageManifest.model_validate_json((finished / "redact/manifest.json").read_bytes())
    assert kept == last.counts.kept
    for stage in ("ingest", "filter", "dedup", "redact"):
        assert StageManifest.model_validate_json(
            (finished / stage / "manifest.json").read_bytes()
        ).counts.docs_in


def test_every_stage_did_real_work(finished: Path) -> None:
    by_stage = {(row["outcome"], row["stage"]) for row in ledger_rows(finished)}
    assert {
        ("quarantined", "ingest"),
        ("removed", "filter"),
        ("removed", "dedup"),
        ("kept", "redact"),
    } <= by_stage


@pytest.mark.parametrize("file", FILES)
def test_each_json_of_the_run_is_as_declared(file: str, finished: Path) -> None:
    found = list(finished.glob(file))
    assert found
    for path in found:
        FILES[file].model_validate_json(path.read_bytes())


def test_verify_finds_no_problem(finished: Path) -> None:
    result = json.loads(corpusmill("verify", finished, "--json").stdout)
    assert result["problems"] == [] and result["files"] > 30


def test_verify_finds_a_flipped_bit_and_exits_1(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    tar = sorted((copy / "shards").rglob("*.tar"))[0]
    data = bytearray(tar.read_bytes())
    data[700] ^= 4
    tar.write_bytes(bytes(data))
    result = corpusmill("verify", copy, check=False)
    assert result.returncode == 1 and tar.name in result.stderr


def test_why_answers_for_documents_of_every_outcome(finished: Path) -> None:
    chosen = {}
    for row in ledger_rows(finished):
        chosen.setdefault((row["outcome"], row["stage"]), row)
    for (outcome, stage), row in chosen.items():
        assert isinstance(row["doc_id"], bytes)
        (answer,) = json.loads(corpusmill("why", row["doc_id"].hex(), "--run", finished, "--json").stdout)
        assert (answer["outcome"], answer["stage"]) == (outcome, stage)
        if outcome != "kept":
            assert answer["rule"]


def test_a_second_run_finds_everything_done(finished: Path, corpus: Path) -> None:
    recipe = finished.parent / "small.yaml"
    before = {
        f: f.stat().st_mtime_ns
        for f in finished.rglob("*")
        if f.is_file() and f.parent.name in ("documents", "ledger")
    }
    result = corpusmill("run", recipe, "--workers", "0")
    assert "nothing to do" in result.stderr
    assert before == {f: f.stat().st_mtime_ns for f in before}


@pytest.mark.browser
def test_the_report_in_a_browser(finished: Path, browser: Browser) -> None:
    """No console error, no request leaving the page, no sideways scrolling, wide or narrow."""
    check_page(browser, finished / "report.html", scripts=1)


def test_report_writes_the_same_page_again(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = (run / "report.html").read_bytes()
    corpusmill("report", run, "--set", "samples=2")
    assert (run / "report.html").read_bytes() != before
    corpusmill("report", run, "--set", "samples=1")
    assert (run / "report.html").read_bytes() == before


def test_dry_run_says_what_would_run_and_why(finished: Path) -> None:
    recipe = finished.parent / "small.yaml"
    result = corpusmill("run", recipe, "--dry-run", "--workers", "0", "--set", "tokenizer.vocab_size=2048")
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "finished" in lines["redact"] and "finished" in lines["split"]
    assert "RUN" in lines["tokenizer"] and "vocab_size" in lines["tokenizer"]
    assert "RUN" in lines["shard"] and "tokenizer" in lines["shard"]


def kill_during(recipe: Path, moment: Callable[[], bool]) -> bool:
    """Start the run with two workers, SIGKILL everything of it as soon as `moment` has come; whether it came before the end."""
    process = Started(1, "corpusmill", "run", recipe, "--workers", "2", preload="commands", session=True)
    while not process.ended() and not moment():
        time.sleep(0.01)
    killed = not process.ended()
    if killed:
        os.killpg(process.pids[0], signal.SIGKILL)
    process.end()
    return killed


def there(run: Path, pattern: str, count: int = 1) -> bool:
    return len(list(run.glob(pattern))) >= count


def test_kill_9_then_the_same_command_gives_the_same_bytes(
    finished: Path, corpus: Path, tmp_path: Path
) -> None:
    """Killed in four stages, in one of them with two workers."""
    run = tmp_path / "run"
    recipe = write_recipe(tmp_path / "small.yaml", corpus, run)
    assert killed_without_workers(run, "ingest/parts/*.json", "run", recipe, "--workers", "0")
    assert kill_during(recipe, partial(there, run, "dedup/scratch/**/*"))
    assert killed_without_workers(run, "redact/parts/*.json", "run", recipe, "--workers", "0")
    assert killed_without_workers(run, "shards/scratch/**/*.json", "run", recipe, "--workers", "0")
    corpusmill("run", recipe, "--workers", "0", env={"PYTHONHASHSEED": "1"})
    assert difference(published(finished), published(run)) == []
    assert json.loads(corpusmill("verify", run, "--json").stdout)["problems"] == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_and_any_hash_seed(
    finished: Path, corpus: Path, tmp_path: Path, workers: int
) -> None:
    recipe = write_recipe(tmp_path / "small.yaml", corpus, tmp_path / "run")
    corpusmill("run", recipe, "--workers", str(workers), env={"PYTHONHASHSEED": str(workers)})
    assert difference(published(finished), published(tmp_path / "run")) == []


@pytest.mark.slow
def test_kills_at_random_moments(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """At random shares of the files that a run publishes, so that kills fall into its work on any machine."""
    run, chance = tmp_path / "run", random.Random(0)
    recipe = write_recipe(tmp_path / "small.yaml", corpus, run)
    most = sum(1 for _ in finished.rglob("*"))
    kills = [kill_during(recipe, partial(there, run, "**/*", count)) for count in points(chance, most, 6)]
    corpusmill("run", recipe, "--workers", "0", env={"PYTHONHASHSEED": "1"})
    assert sum(kills) >= 4 and difference(published(finished), published(tmp_path / "run")) == []


@pytest.mark.s3
def test_the_same_recipe_on_object_storage(finished: Path, corpus: Path, tmp_path: Path, s3: str) -> None:
    """Input and output both on the store; every published byte as on disk."""
    there = Folder(f"{s3}/in")
    for file in sorted(corpus.rglob("*")):
        if file.is_file():
            (there / str(file.relative_to(corpus))).write(file.read_bytes())
    recipe = write_recipe(tmp_path / "small.yaml", Path("@"), f"{s3}/run")
    recipe.write_text(recipe.read_text().replace("[@/", f"[{s3}/in/"))
    corpusmill("run", recipe, "--workers", "0")
    run = Folder(f"{s3}/run")
    names = {entry.path for entry in run.list()}
    local = {
        name: data
        for name, data in published(finished).items()
        if name.startswith(("shards/", "tokenizer/", "split/"))
    }
    assert [name for name, data in local.items() if name not in names or (run / name).read() != data] == []
    assert json.loads(corpusmill("verify", run.url, "--json").stdout)["problems"] == []
