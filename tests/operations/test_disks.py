"""Disks that become full or read-only, before a run and in the middle of it: one line that says what to do, and then the same command
goes on to the same bytes, of a pipeline as of a training."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench._chaos_faults import fill, lock
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import preflight
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.pipeline.engine.planning.estimate import Terms, plan
from corpusmill.pipeline.engine.planning.forecast import Shape
from corpusmill.schemas.recipe import Recipe
from tests.e2e.cli import corpusmill, difference, published, write_recipe
from tests.e2e.test_train import write_config
from tests.forks import Finished, launch

TIMES = ("tokens_per_second", "loader_stall", "memory_mib", "mfu")


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own, of 4 MB or as many as the test's parameter says."""
    place = tmp_path / "disk"
    place.mkdir()
    size = f"size={getattr(request, 'param', 4)}m"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", place], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def when(pattern: str, what: str, disk: str, *arguments: str) -> None:
    """`corpusmill ARGUMENTS` in this process; as soon as a path on the disk fits `pattern` it becomes `full` or `read-only`."""
    from corpusmill.__main__ import main

    def watch() -> None:
        while next(Path(disk).glob(pattern), None) is None:
            time.sleep(0.002)
        while not (fill(Path(disk)) if what == "full" else lock(Path(disk))):
            time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()
    sys.argv = ["corpusmill", *arguments]
    main()


def disturbed(
    pattern: str, what: str, disk: Path, *arguments: str | Path, preload: str = "commands"
) -> Finished:
    return launch(1, f"{__name__}:when", pattern, what, disk, *arguments, preload=preload)


def one_line(failed: Finished, *parts: str) -> None:
    """Exit code 1, no traceback, and a last line with these parts."""
    assert failed.returncode == 1 and "Traceback" not in failed.stderr, failed.stderr
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert all(part in line for part in parts), line
    assert failed.stderr.rstrip().endswith(line)


def free(disk: Path) -> None:
    (disk / "filler").unlink()


FULL = "no space is left on its disk; free some and give the same command again: finished work is kept"


def test_a_disk_that_is_too_small(disk: Path, tmp_path: Path) -> None:
    file = tmp_path / "docs.jsonl"
    with file.open("w") as out:
        for n in range(20_000):
            out.write(f'{{"text": "{n} {"some words of a text " * 50}"}}\n')
    for options in ((), ("--dry-run",)):
        recipe = tmp_path / "r.yaml"
        recipe.write_text(f"name: r\noutput: {disk}/out\nsources: {{web: {{paths: [{file}]}}}}\n")
        failed = corpusmill("run", recipe, "--workers", "0", *options, check=False)
        assert (
            failed.returncode == 2 and "are free on its disk; give an output on a larger one" in failed.stderr
        )
    assert not (disk / "out").exists()


def test_what_was_written_before_needs_no_more_space(disk: Path) -> None:
    """A run that filled its disk goes on with as little space as the rest of its work needs."""
    recipe = Recipe.model_validate({"name": "r", "sources": {"web": {"paths": ["/x"]}}, "stages": ["ingest"]})
    out = Folder(disk / "out")
    ingest = load_stage("ingest", recipe)
    todo = [Planned(ingest, out / "ingest", "key", {})]
    shape = Shape(6e6, 6e6, 1, 1, 1)
    needed = plan([ingest], shape, Terms(1, False), 1, 3000).model_copy(update={"disk_bytes": 3_600_000})
    assert preflight.check_space(out, needed, todo) == []
    (disk / "other").write_bytes(bytes(3_400_000))
    with pytest.raises(UserError, match="give an output on a larger one"):
        preflight.check_space(out, needed, todo)
    (disk / "other").write_bytes(bytes(2_000_000))
    assert "are free on its disk" in preflight.check_space(out, needed, todo)[0]  # it may do
    (disk / "other").unlink()
    (out / "ingest/documents/a.parquet").write(bytes(3_400_000))
    assert preflight.check_space(out, needed, todo) == []


def test_a_disk_that_cannot_be_written(disk: Path, corpus: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"name: r\noutput: {disk}/out\nsources: {{web: {{paths: [{corpus}/planted]}}}}\n")
    dry = corpusmill("run", recipe, "--workers", "0", "--dry-run", check=False)
    assert dry.returncode == 2 and f"{disk} cannot be written to; give another output" in dry.stderr
    failed = corpusmill("run", recipe, "--workers", "0", check=False)
    assert failed.returncode == 1 and "its disk is read-only; make it writable" in failed.stderr


@pytest.mark.parametrize("disk", [64], indirect=True)
def test_a_run_whose_disk_becomes_full_and_read_only(
    disk: Path, corpus: Path, finished: Path, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "small.yaml", corpus, disk / "run")
    command = ("run", recipe, "--workers", "0")
    one_line(disturbed("run/ingest/parts/*.json", "full", disk, *command), f"{disk}/run", FULL)
    free(disk)
    one_line(disturbed("run/ledger/*.parquet", "read-only", disk, *command), f"{disk}/run", "is read-only")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    one_line(disturbed("run/shards/scratch/**/*.json", "full", disk, *command), f"{disk}/run", FULL)
    free(disk)
    corpusmill(*command)
    assert difference(published(finished), published(disk / "run")) == []


@pytest.mark.parametrize("disk", [8], indirect=True)
def test_a_training_whose_disk_becomes_full(disk: Path, finished: Path, tmp_path: Path) -> None:
    rows, weights = [], []
    for place in (tmp_path, disk):
        config = write_config(place, finished / "shards", place / "out")
        command = ("train", config, "--set", "log.every=1")
        if place == disk:
            one_line(
                disturbed("out/checkpoints/*/manifest.json", "full", disk, *command, preload="train"),
                f"{disk}/out",
                FULL,
            )
            free(disk)
        corpusmill(*command)
        lines = (place / "out/metrics.jsonl").read_text().splitlines()
        rows.append([{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines])
        newest = max((place / "out/checkpoints").iterdir())
        weights.append({file.name: file.read_bytes() for file in newest.glob("*.safetensors")})
    assert len(rows[0]) == 60 and rows[0] == rows[1] and weights[0] == weights[1] != {}
