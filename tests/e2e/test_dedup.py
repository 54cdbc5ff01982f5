"""`corpusmill dedup` as a user runs it, in processes of its own: one result for any number of workers, any cut of
the input and any kills; an index that grows and shrinks; the shards that a takedown names.

Which files show the cut of the input into partitions: those named after one (`documents/`, `decisions/`,
`removals/`, `ledger/`), and in `plan.json` the estimate, which comes of a look at some partitions. Everything else
is the same bytes for any cut, and everything at all for the same cut.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from schemas.storage import Folder
from tests.conftest import ROOT
from tests.e2e.cli import corpusmill, difference, published

pytestmark = pytest.mark.xdist_group("e2e")

DOCUMENTS = 1500
CUT = "ingest.partition_mb=0.12"  # of the corpus: about 20 partitions, and so some hundreds of tasks


def made_up(seed: int) -> list[str]:
    """Texts, a good half of them copies or near-copies of others; short, empty and wordless ones among them."""
    generator = random.Random(seed)
    vocabulary = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(5000)]
    texts = ["", "", "one", "One", "!?", "!?", "a b c"]
    while len(texts) < DOCUMENTS:
        text = generator.choices(vocabulary, k=generator.randint(20, 400))
        texts.append(" ".join(text))
        for _ in range(generator.choice([0, 0, 1, 2, 5])):
            for _ in range(generator.randint(0, 4)):
                text[generator.randrange(len(text))] = generator.choice(vocabulary)
            texts.append(" ".join(text))
    generator.shuffle(texts)
    return texts[:DOCUMENTS]


def write_lines(file: Path, texts: Sequence[str], first: int, without: frozenset[int] = frozenset()) -> None:
    """One record a line, numbered from `first`; those of `without` are no records, so that all others keep
    their place and their ids."""
    lines = [
        "gone" if number in without else json.dumps({"id": f"n{number}", "text": text})
        for number, text in enumerate(texts, first)
    ]
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of one corpus: `a.jsonl` and `b.jsonl`."""
    folder = tmp_path_factory.mktemp("crawl")
    texts = made_up(1)
    write_lines(folder / "a.jsonl", texts[:900], 0)
    write_lines(folder / "b.jsonl", texts[900:], 900)
    return folder


def arguments(crawl: Path, out: str | Path, *more: str, workers: int = 2, cut: str = CUT) -> list[str]:
    return [
        "dedup", str(crawl / "a.jsonl"), str(crawl / "b.jsonl"), str(out), "--id-column", "id", "--set", cut,
        "--workers", str(workers), *more,
    ]  # fmt: skip


def finished(run: Path) -> dict[str, bytes]:
    """What is published but `run.json`, which names the index; not what a writer that was killed had begun
    (`name#1`), which readers leave out."""
    return {name: data for name, data in published(run).items() if "#" not in name and name != "run.json"}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


class Watched:
    """A command in a session of its own, watched by the files that appear in some folders."""

    def __init__(self, command: Sequence[str], *folders: str) -> None:
        self.folders = [Folder(folder) for folder in folders]
        self.started = time.monotonic()
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "corpusmill", *command, "--quiet"], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env=env, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def files(self) -> list[str]:
        return [entry.path for folder in self.folders for entry in folder.list()]

    def wait_for(self, count: int) -> bool:
        """Until there are so many files; whether it lives then."""
        while self.process.poll() is None:
            if len(self.files()) >= count:
                return self.process.poll() is None
            time.sleep(0.005)
        return False

    def workers(self, busy: bool = True) -> list[int]:
        """The process ids of its Dask workers; `busy`: of those that have had a task."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                try:
                    line = Path(f"/proc/{child}/cmdline").read_bytes()
                    loaded = Path(f"/proc/{child}/maps").read_bytes()
                except OSError:
                    continue
                if b"multiprocessing.spawn" in line and (b"libarrow" in loaded or not busy):
                    found.append(child)
        return found

    def kill(self, whole: bool) -> None:
        """SIGKILL the driver, with all of its workers or alone."""
        if whole:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        try:
            error = self.process.communicate(timeout=150)[1]
        except subprocess.TimeoutExpired:
            self.kill(True)
            raise
        assert self.process.returncode == 0, error.decode()


def no_one_left(group: int) -> bool:
    """Whether every process of a killed driver's group ends by itself, and soon."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    return False


def steps(files: Sequence[str]) -> set[str]:
    """The steps whose files are there: folders of `scratch` and of the output."""
    found = set()
    for path in files:
        parts = path.split("/")
        found.add(parts[1] if parts[0] in ("scratch", "records") and len(parts) > 2 else parts[0])
    return found


class Killing:
    """A command killed at random moments: one more share of the files each time."""

    def __init__(self, command: Sequence[str], *folders: str) -> None:
        self.command, self.folders = command, folders
        self.kills: list[frozenset[str]] = []  # the steps whose files were there
        self.groups: list[int] = []

    def at(self, points: Sequence[int], whole: Callable[[], bool]) -> None:
        for count in points:
            watched = Watched(self.command, *self.folders)
            if watched.wait_for(count):
                watched.kill(whole())
                self.kills.append(frozenset(steps(watched.files())))
            self.groups.append(watched.process.pid)

    def finish(self) -> None:
        """The command once more, to its end; nothing of the killed ones is left then."""
        Watched(self.command, *self.folders).finish()
        assert all(no_one_left(group) for group in self.groups)


def points(generator: random.Random, most: int, count: int) -> list[int]:
    """One random number in each of `count` equal parts of 1 to `most`."""
    return [1 + int(most * (i + generator.random()) / count) for i in range(count)]


class Unbroken:
    """A run that was left alone: its folder, and the most files that it ever had there."""

    def __init__(self, command: Sequence[str], *folders: str) -> None:
        watched = Watched(command, *folders)
        self.most = 0
        while watched.process.poll() is None:
            self.most = max(self.most, len(watched.files()))
            time.sleep(0.01)
        watched.finish()


@pytest.fixture(scope="module")
def unbroken(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """(output folder, most files at once) of a run with two workers."""
    out = tmp_path_factory.mktemp("unbroken") / "out"
    yield out, Unbroken(arguments(crawl, out), str(out)).most


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
@pytest.mark.parametrize("whole", [True, False], ids=["with its workers", "alone"])
def test_the_driver_killed_at_ten_random_moments(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path, whole: bool
) -> None:
    """In one folder, each time further on; its workers, left alone, end by themselves and do no harm."""
    expected, most = unbroken
    out = tmp_path / "out"
    killing = Killing(arguments(crawl, out), str(out))
    killing.at(points(random.Random(int(whole)), most, 10), lambda: whole)
    assert len(killing.kills) >= 8 and len(set(killing.kills)) >= 4, killing.kills
    assert {"sketch", "edges"} <= frozenset.union(*killing.kills)
    killing.finish()
    assert difference(finished(expected), finished(out)) == []
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_driver_killed_once_anywhere(
    crawl: Path, unbroken: tuple[Path, int], tmp_path: Path, seed: int
) -> None:
    """Killed once, in a folder of its own; the next run goes on."""
    expected, most = unbroken
    generator = random.Random(100 + seed)
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
def test_workers_killed_while_they_start(crawl: Path, unbroken: tuple[Path, int], tmp_path: Path) -> None:
    """Before their first task, as by a machine short of memory: others take their place, or the run says that
    none is left; it does not wait for ever."""
    expected, _ = unbroken
    watched = Watched(arguments(crawl, tmp_path / "out"), str(tmp_path / "out"))
    killed: set[int] = set()
    while watched.process.poll() is None and len(killed) < 2:
        for worker in set(watched.workers(busy=False)) - killed:
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
    watched.finish()
    assert difference(finished(expected), finished(tmp_path / "out")) == []


@pytest.mark.s3
def test_output_on_object_storage_after_a_kill(crawl: Path, unbroken: tuple[Path, int], s3: str) -> None:
    expected, most = unbroken
    generator = random.Random(9)
    out = Folder(f"{s3}/out")
    killing = Killing(arguments(crawl, out.url), out.url)
    killing.at([generator.randint(most // 2, most * 4 // 5)], lambda: True)
    assert killing.kills
    killing.finish()
    local = finished(expected)
    there = {entry.path for entry in out.list()}
    assert not any(path.startswith("scratch/") for path in there)
    assert [name for name, data in local.items() if name not in there or (out / name).read() != data] == []
    assert json.loads(corpusmill("verify", out.url, "--json").stdout)["problems"] == []


class Crawls:
    """`a.jsonl` added to an index; what comes later starts from a copy of it."""

    def __init__(self, crawl: Path, folder: Path) -> None:
        self.crawl, self.folder = crawl, folder
        self.add("a", folder / "index", folder / "a")

    def command(self, name: str, index: Path, out: Path) -> list[str]:
        return [
            "dedup", str(self.crawl / f"{name}.jsonl"), str(out), "--index", str(index), "--id-column", "id",
            "--set", CUT, "--workers", "2",
        ]  # fmt: skip

    def add(self, name: str, index: Path, out: Path) -> None:
        corpusmill(*self.command(name, index, out))

    def copy(self, target: Path, of: str = "index") -> Path:
        shutil.copytree(self.folder / of, target)
        return target


@pytest.fixture(scope="module")
def crawls(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Crawls:
    found = Crawls(crawl, tmp_path_factory.mktemp("crawls"))
    index = found.copy(found.folder / "both")
    found.add("b", index, found.folder / "b")
    return found


def test_an_index_of_a_and_then_b_is_that_of_both(crawls: Crawls, unbroken: tuple[Path, int]) -> None:
    whole = unbroken[0] / "clusters.parquet"
    assert (crawls.folder / "b/clusters.parquet").read_bytes() == whole.read_bytes()
    kept = {row["doc_id"] for row in rows(unbroken[0] / "documents")}
    mine = {row["doc_id"] for row in rows(crawls.folder / "b/documents")}
    assert mine == kept & {row["doc_id"] for row in rows(crawls.folder / "b/before/ingest/documents")}
    before = {row["doc_id"] for row in rows(crawls.folder / "a/documents")}
    changes = pq.read_table(crawls.folder / "b/changes.parquet").to_pylist()
    assert {row["doc_id"] for row in changes if row["change"] == "removed"} == before - kept
    assert {row["doc_id"] for row in changes if row["change"] == "restored"} == (kept - mine) - before


def most_files(command: Sequence[str], *folders: str) -> int:
    """How many files there are at most during the command."""
    return Unbroken(command, *folders).most


@pytest.mark.slow
def test_an_addition_killed_at_five_random_moments(crawls: Crawls, tmp_path: Path) -> None:
    unbroken = crawls.copy(tmp_path / "unbroken")
    most = most_files(crawls.command("b", unbroken, tmp_path / "b"), str(unbroken), str(tmp_path / "b"))
    index, out = crawls.copy(tmp_path / "index"), tmp_path / "out"
    before = sum(1 for file in index.rglob("*") if file.is_file())
    killing = Killing(crawls.command("b", index, out), str(index), str(out))
    generator = random.Random(11)
    killing.at([before + n for n in points(generator, most - before, 5)], lambda: generator.random() < 0.5)
    assert len(killing.kills) >= 4 and len(set(killing.kills)) >= 3, killing.kills
    killing.finish()
    assert difference(finished(tmp_path / "b"), finished(out)) == []
    assert difference(finished(unbroken), finished(index)) == []
    assert difference(finished(crawls.folder / "b"), finished(out)) == []


class Takedown:
    """Sixty documents named in every way, and the corpus without them."""

    def __init__(self, crawls: Crawls, folder: Path) -> None:
        generator = random.Random(12)
        self.numbers = frozenset(generator.sample(range(DOCUMENTS), 60))
        ingested = rows(crawls.folder / "a/before/ingest/documents")
        ingested += rows(crawls.folder / "b/before/ingest/documents")
        gone = [row for row in ingested if row["source_id"] in {f"n{number}" for number in self.numbers}]
        self.ids = {row["doc_id"] for row in gone}
        ways = [lambda row: row["doc_id"].hex(), lambda row: row["source_id"], lambda row: row["locator"]]
        self.file = folder / "list"
        self.file.write_text("# to go\n" + "".join(f"{generator.choice(ways)(row)}\n" for row in gone))
        folder = folder / "left"
        folder.mkdir()
        texts = made_up(1)
        write_lines(folder / "a.jsonl", texts[:900], 0, self.numbers)
        write_lines(folder / "b.jsonl", texts[900:], 900, self.numbers)
        self.left = folder

    def command(self, index: Path, out: Path, *more: str) -> list[str]:
        return [
            "dedup",
            str(out),
            "--index",
            str(index),
            "--takedown",
            str(self.file),
            "--workers",
            "2",
            *more,
        ]


@pytest.fixture(scope="module")
def takedown(crawls: Crawls, tmp_path_factory: pytest.TempPathFactory) -> Takedown:
    return Takedown(crawls, tmp_path_factory.mktemp("takedown"))


def test_a_takedown_is_a_run_without_the_documents_and_names_their_shards(
    crawls: Crawls, takedown: Takedown, unbroken: tuple[Path, int], tmp_path: Path
) -> None:
    documents = unbroken[0] / "documents"
    corpusmill("tokenizer", documents, tmp_path / "tok", "--vocab-size", "300", "--workers", "0")
    corpusmill(
        "shard", documents, tmp_path / "shards", "--tokenizer", tmp_path / "tok/tokenizer.json", "--workers", "0",
        "--set", "shard.shard_mb=0.3", "--set", "shard.block_tokens=4096",
    )  # fmt: skip
    index, out = crawls.copy(tmp_path / "index", "both"), tmp_path / "out"
    result = json.loads(
        corpusmill(*takedown.command(index, out, "--shards", str(tmp_path / "shards"), "--json")).stdout
    )
    assert result["named"] == result["taken"] == 60
    corpusmill(*arguments(takedown.left, tmp_path / "left", workers=0))
    assert (out / "clusters.parquet").read_bytes() == (tmp_path / "left/clusters.parquet").read_bytes()
    assert {row["doc_id"] for row in rows(out) if "change" not in row} >= takedown.ids
    kept_before = {row["doc_id"] for row in rows(documents)}
    kept_after = {row["doc_id"] for row in rows(tmp_path / "left/documents")}
    changes = pq.read_table(out / "changes.parquet").to_pylist()
    assert {row["doc_id"] for row in changes if row["change"] == "restored"} == kept_after - kept_before
    # What a document taken down had hidden may hide another in its turn.
    gone = {row["doc_id"] for row in changes if row["change"] == "removed"}
    assert gone == kept_before - kept_after - takedown.ids
    holding = shards_of(tmp_path / "shards")
    assert len(holding) > 3
    named = {shard for shard, held in holding.items() if held & takedown.ids}
    assert set(result["shards"]) == named and len(named) > 0
    listed = pq.read_table(out / "shards.parquet").to_pylist()
    assert {(row["shard"], row["doc_id"]) for row in listed} == {
        (shard, identity) for shard, held in holding.items() for identity in held & takedown.ids
    }


def shards_of(folder: Path) -> dict[str, set[bytes]]:
    """Shard -> the documents in it, read with nothing but `tarfile` and `json`."""
    import tarfile

    found: dict[str, set[bytes]] = {}
    for file in sorted(folder.rglob("*.tar")):
        held = found.setdefault(str(file.relative_to(folder)), set())
        with tarfile.open(file) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    content = tar.extractfile(member)
                    assert content is not None
                    held |= {bytes.fromhex(identity) for identity in json.load(content)["doc_ids"]}
    return found


@pytest.mark.slow
def test_a_takedown_killed_at_five_random_moments(crawls: Crawls, takedown: Takedown, tmp_path: Path) -> None:
    unbroken, expected = crawls.copy(tmp_path / "unbroken", "both"), tmp_path / "expected"
    most = most_files(takedown.command(unbroken, expected), str(unbroken), str(expected))
    index, out = crawls.copy(tmp_path / "index", "both"), tmp_path / "out"
    before = sum(1 for file in index.rglob("*") if file.is_file())
    killing = Killing(takedown.command(index, out), str(index), str(out))
    generator = random.Random(13)
    killing.at([before + n for n in points(generator, most - before, 5)], lambda: generator.random() < 0.5)
    assert len(killing.kills) >= 4 and len(set(killing.kills)) >= 2, killing.kills
    killing.finish()
    assert difference(finished(expected), finished(out)) == []
    assert difference(finished(unbroken), finished(index)) == []
