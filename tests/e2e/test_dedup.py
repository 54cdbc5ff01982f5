"""`corpusmill dedup` as a user runs it, in processes of its own: one result for any number of workers, any cut of
the input and any kills.

Which files show the cut of the input into partitions: those named after one (`documents/`, `decisions/`,
`removals/`, `ledger/`), and in `plan.json` the estimate, which comes of a look at some partitions. Everything else
is the same bytes for any cut, and everything at all for the same cut.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from tests.conftest import shared
from tests.e2e.cli import corpusmill, difference
from tests.e2e.killing import (
    Killing,
    Unbroken,
    Watched,
    arguments,
    finished,
    made_up,
    points,
    rows,
    steps,
    write_lines,
)  # fmt: skip


@pytest.fixture(scope="session")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of one corpus: `a.jsonl` and `b.jsonl`."""

    def make(folder: Path) -> None:
        texts = made_up(1)
        write_lines(folder / "a.jsonl", texts[:900], 0)
        write_lines(folder / "b.jsonl", texts[900:], 900)

    return shared(tmp_path_factory, "crawl", make)


@pytest.fixture(scope="session")
def unbroken(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """(output folder, most files at once) of a run with two workers."""

    def make(folder: Path) -> None:
        out = folder / "out"
        (folder / "most").write_text(str(Unbroken(arguments(crawl, out), str(out)).most))

    folder = shared(tmp_path_factory, "unbroken", make)
    return folder / "out", int((folder / "most").read_text())


def test_the_corpus_is_worth_it(unbroken: tuple[Path, int]) -> None:
    out, most = unbroken
    counters = json.loads((out / "quality.json").read_text())["counters"]
    assert counters["exact_removed"] > 50 and counters["near_removed"] > 200
    assert len(list((out / "documents").glob("*.parquet"))) > 10 and most > 150
    assert not (out / "scratch").exists(), "a finished stage needs no intermediate files"
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


@pytest.mark.parametrize(
    "workers", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_any_number_of_workers_and_any_hash_seed(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path, workers: int
) -> None:
    """Every published byte."""
    corpusmill(
        *arguments(crawl, tmp_path / "out", workers=workers), env={"PYTHONHASHSEED": str(17 * workers + 1)}
    )
    assert difference(finished(unbroken[0]), finished(tmp_path / "out")) == []


@pytest.mark.parametrize(("megabytes", "count"), [(64, 1), (1.5, 2), (0.345, 7)])
def test_any_number_of_partitions(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path, megabytes: float, count: int
) -> None:
    """The same documents, the same decisions, the same bytes of what names no partition."""
    whole, out = unbroken[0], tmp_path / "out"
    cut = f"ingest.partition_mb={megabytes}"
    corpusmill(*arguments(crawl, out, "--quiet", workers=0, cut=cut))
    assert len(list((out / "documents").glob("*.parquet"))) == count
    assert (out / "clusters.parquet").read_bytes() == (whole / "clusters.parquet").read_bytes()
    for name in ("quality.json", "plan.json"):
        mine, theirs = (json.loads((side / name).read_text()) | {"estimate": None} for side in (out, whole))
        assert mine == theirs, name
    for name in ("documents", "decisions", "ledger", "removals"):
        mine, theirs = (sorted(rows(side / name), key=lambda row: row["doc_id"]) for side in (out, whole))
        assert mine == theirs, name


@pytest.mark.slow
def test_the_driver_killed_at_random_moments(crawl: Path, unbroken: tuple[Path, int], tmp_path: Path) -> None:
    """In one folder, each time further on, alone and with its workers in turn; workers left alone end by themselves and
    do no harm."""
    expected, most = unbroken
    out = tmp_path / "out"
    killing = Killing(arguments(crawl, out), str(out))
    whole = itertools.cycle((True, False))
    killing.at(points(random.Random(1), most, 6), lambda: next(whole))
    assert len(killing.kills) >= 5 and len(set(killing.kills)) >= 4, killing.kills
    assert {"sketch", "edges"} <= frozenset.union(*killing.kills)
    killing.finish()
    assert difference(finished(expected), finished(out)) == []
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


@pytest.mark.slow
def test_the_driver_killed_once_anywhere(crawl: Path, unbroken: tuple[Path, int], tmp_path: Path) -> None:
    """Killed once, in a folder of its own; the next run goes on."""
    expected, most = unbroken
    generator = random.Random(100)
    killing = Killing(arguments(crawl, tmp_path / "out"), str(tmp_path / "out"))
    killing.at([generator.randint(most // 5, most - 1)], lambda: generator.random() < 0.5)
    assert killing.kills
    killing.finish()
    assert difference(finished(expected), finished(tmp_path / "out")) == []


@pytest.mark.slow
def test_a_worker_killed_at_ten_random_moments(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path
) -> None:
    """The run goes on with a new worker, and ends well."""
    expected, most = unbroken
    generator = random.Random(7)
    out = tmp_path / "out"
    watched = Watched(arguments(crawl, out, "--set", "cluster.retries=10"), str(out))
    seen = []
    for count in points(generator, most, 10):
        if not watched.wait_for(count):
            break
        if workers := watched.workers():
            os.kill(generator.choice(workers), signal.SIGKILL)
            seen.append(frozenset(steps(watched.files())))
    assert len(seen) >= 5 and len(set(seen)) >= 3, seen
    watched.finish()
    assert difference(finished(expected), finished(out)) == []


@pytest.mark.slow
@pytest.mark.parametrize("files", [0, 200], ids=["the first", "those that replace others"])
def test_workers_killed_while_they_start(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path, files: int
) -> None:
    """As by a machine short of memory: others take their place, or the run ends with a one-line error. It
    does not wait for ever for a worker that never comes."""
    out = tmp_path / "out"
    watched = Watched(arguments(crawl, out), str(out), spawn=True)
    assert watched.wait_for(files)
    old = set(watched.workers(busy=False))
    for worker in old:
        os.kill(worker, signal.SIGKILL)
    killed: set[int] = set()
    while not watched.process.ended() and len(killed) < 2:
        for worker in set(watched.workers(busy=False)) - old - killed:
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
    code, error = watched.end()
    if code:
        assert code == 1 and error.startswith("error: ") and error.count("\n") == 1, error
        Watched(arguments(crawl, out), str(out)).finish()
    assert difference(finished(unbroken[0]), finished(out)) == []


@pytest.mark.slow
@pytest.mark.s3
def test_output_on_object_storage_after_a_kill(crawl: Path, unbroken: tuple[Path, int], s3: str) -> None:
    expected, most = unbroken
    generator = random.Random(9)
    out = Folder(f"{s3}/out")
    killing = Killing(arguments(crawl, out.url), out.url)
    killing.at([generator.randint(most // 2, most * 4 // 5)], lambda: True)
    assert killing.kills
    corpusmill(*arguments(crawl, out.url, workers=0))
    local = finished(expected)
    there = {entry.path for entry in out.list()}
    assert not any(path.startswith("scratch/") for path in there)
    assert [name for name, data in local.items() if name not in there or (out / name).read() != data] == []
    assert json.loads(corpusmill("verify", out.url, "--json").stdout)["problems"] == []
