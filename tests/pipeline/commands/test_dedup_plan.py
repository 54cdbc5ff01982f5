"""`dedup-plan`: from numbers, from a finished stage, and with mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.commands.dedup import dedup_plan
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.schemas.manifest import Counts, PartitionManifest, PublishedFile, StageManifest
from tests.command_line import CliRunner
from tests.pipeline.dedup.helpers import docs_of, partitions

NUMBERS = ["--documents", "10e9", "--bytes-per-document", "3000"]


def run(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(dedup_plan)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def mistake(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def finished_stage(folder: Path, texts: list[str], count: int) -> str:
    root = Folder(folder)
    found = partitions(root, docs_of(texts), count)
    for part in found:
        counts = Counts(
            docs_in=part.rows, kept=part.rows, bytes_in=part.text_bytes, bytes_kept=part.text_bytes
        )
        file = PublishedFile(path=f"documents/{part.name}.parquet", rows=part.rows, bytes=1, xxh3=part.xxh3)
        manifest = PartitionManifest(partition=part.name, key="k", counts=counts, files=[file])
        publish_bytes(root, f"parts/{part.name}.json", manifest.model_dump_json().encode())
    stage = StageManifest(
        stage="ingest", version="1", key="k", params={}, inputs={}, partitions=[p.name for p in found],
        counts=Counts(),
    )  # fmt: skip
    publish_bytes(root, "manifest.json", stage.model_dump_json().encode())
    return str(folder)


def test_a_plan_from_numbers() -> None:
    text = run(*NUMBERS, "--workers", "100", "--similarity", ".8", "--recall", ".95")
    assert "dedup of 10e9 documents, 30 TB of text" in text and "13 bands x 7 rows" in text
    assert "exceeded  driver: " in text and "ingest.partition_mb" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("exceeded"))


def test_settings_reach_the_solver() -> None:
    found: dict[str, Any] = json.loads(run(*NUMBERS, "--set", "num_perm=256", "--recall", "0.99", "--json"))
    assert (found["estimate"]["bands"], found["estimate"]["rows"]) == (26, 8)
    same = json.loads(run(*NUMBERS, "--set", "dedup.num_perm=256", "--set", "recall=0.99", "--json"))
    assert same == found


def test_a_small_run_exceeds_nothing() -> None:
    text = run("--documents", "1e5", "--bytes-per-document", "2000", "--workers", "2", "--local")
    assert text.rstrip().endswith("no limit is exceeded")


def test_a_look_at_real_partitions(tmp_path: Path) -> None:
    texts = [f"page {i} of the book with a few words that are its own {i * i} {i * 7}" for i in range(60)]
    folder = finished_stage(tmp_path / "a", texts + texts[:20], 4)
    seen = json.loads(run(folder, "--json"))["corpus"]
    assert seen["documents"] == 80 and seen["partitions"] == 4 and seen["looked_at"] == 60
    more = json.loads(run(folder, "--documents", "8000", "--json"))["corpus"]
    assert more["documents"] == 8000 and more["text_bytes"] == pytest.approx(100 * seen["text_bytes"])


def test_the_plan_of_partitions_cut_again(tmp_path: Path) -> None:
    """`--partition-mb` plans as if IN had been ingested so: the same corpus in other partitions."""
    texts = [f"page {i} of the book with a few words that are its own {i * i} {i * 7}" for i in range(60)]
    folder = finished_stage(tmp_path / "a", texts, 4)
    as_cut = json.loads(run(folder, "--json"))
    size = as_cut["corpus"]["text_bytes"]
    for wanted in (1, 10):
        megabytes = size / wanted / 2**20 * 1.001
        found = json.loads(run(folder, "--partition-mb", f"{megabytes:.9f}", "--json"))
        assert found["corpus"] == as_cut["corpus"] | {"partitions": wanted}
        tasks = {step["name"]: step["tasks"] for step in found["estimate"]["steps"]}
        assert tasks["signatures"] == wanted
    larger = json.loads(run(folder, "--documents", "6000", "--partition-mb", f"{megabytes:.9f}", "--json"))
    assert larger["corpus"]["partitions"] == 1000


def test_bands_that_promise_less_are_warned_of() -> None:
    assert "warning: dedup.recall 0.95 is not promised: 14 bands" in run(
        *NUMBERS, "--set", "preset=datatrove"
    )
    assert "warning" not in run(*NUMBERS)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "give IN, or both --documents and --bytes-per-document" in mistake("--documents", "1e6")
    assert "did you mean 'num_perm'" in mistake(*NUMBERS, "--set", "num_perms=3")
    assert "not the folder of a finished stage" in mistake(str(tmp_path))
    assert "--documents: -5 must be greater than 0" in mistake("--documents=-5", "--bytes-per-document", "9")
    assert "raise dedup.num_perm to" in mistake(*NUMBERS, "--similarity", "0.05", "--recall", "0.999")
