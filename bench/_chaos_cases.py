"""The commands that `chaos.py` disturbs: a small pipeline and a small training, each in several places, with what an undisturbed
run of each gives."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench._chaos_command import LIMIT, Command, Ended
from bench.object_store import BUCKET, serve
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from tests.faults.proxy import Server, proxy
from tests.forks import Started
from tests.golden import record
from tests.operations.cluster import DaskCluster, dask_cluster

EXAMPLES = Path(__file__).resolve().parent.parent / "examples/corpus/sources"
RECIPE = """\
name: chaos
output: {output}
seed: 7
sources:
  books: {{paths: [{corpus}/books], priority: 2}}
  planted: {{paths: [{corpus}/planted.jsonl]}}
ingest: {{partition_mb: 0.1}}
filter: {{language: {{keep: [en]}}}}
split: {{validation_share: 0.05, min_documents: 2}}
tokenizer: {{vocab_size: 384, sample_mb: 0.5}}
shard: {{block_tokens: 1024, shard_mb: 0.1}}
report: {{samples: 1}}
"""
TRAINING = """\
name: chaos
output: run
seed: 3
data: {{shards: {shards}, sequence_length: 32, global_batch: 8, micro_batch: 4}}
model: {{dim: 32, layers: 2, heads: 2, kv_heads: 1, ffn_dim: 64, dropout: 0.1}}
optimizer: {{lr: 3.0e-3}}
schedule: {{steps: 60, warmup_steps: 5}}
checkpoint: {{every: 6, keep_last: 2}}
validation: {{every: 20, tokens: 256}}
log: {{every: 1, tensorboard: false}}
device: cpu
threads: 1
"""
STEPS, EVERY, WRITES = 60, 6, 5  # steps, steps between checkpoints, files of a checkpoint
CLOCK = {  # what the clock decides
    "tokens_per_second", "loader_stall", "memory_mib", "mfu", "slowest_process", "slowest_ratio", "stragglers",
}  # fmt: skip


def write_corpus(folder: Path) -> Path:
    """Some 300 kB: chapters, and made-up documents that the stages have to do with (copies, personal data, broken ones)."""
    (folder / "books").mkdir(parents=True)
    for file in sorted((EXAMPLES / "books").rglob("*.txt"))[:4]:
        shutil.copy(file, folder / "books")
    with gzip.open(EXAMPLES / "planted/planted.jsonl.gz", "rb") as planted:
        lines = planted.readlines()
    broken = (EXAMPLES / "planted/broken.jsonl").read_bytes()
    (folder / "planted.jsonl").write_bytes(b"".join(lines[::3]) + broken)
    return folder


@dataclass
class Case:
    """A command, and what it gives and costs when it is left alone."""

    name: str
    options: tuple[str, ...] = ()
    size: int = 1
    stored: bool = False  # output (of a training: shards) in an object store
    expected: dict[str, str] = field(default_factory=dict)
    cpu: float = 0.0
    requests: int = 0

    @property
    def trains(self) -> bool:
        return self.name.startswith("training")


CASES = (
    Case("pipeline", ("--workers", "0")),
    Case("pipeline with workers", ("--workers", "2")),
    Case("pipeline by a scheduler"),
    Case("pipeline into a store", ("--workers", "0"), stored=True),
    Case("training"),
    Case("training in two processes", size=2),
    Case("training from a store", stored=True),
)


class Setup:
    """The corpus, the cases, and the servers that they need; `close` ends those."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = write_corpus(folder / "corpus")
        self.cases = {case.name: replace(case) for case in CASES}
        self.store: dict[str, str] = {}  # the environment that reaches the object store
        self.cluster: DaskCluster | None = None
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        self._stack.close()

    def prepare(self, names: set[str]) -> None:
        """Run these cases undisturbed. Raises `NoServer` where a store is needed and its server is not installed."""
        wanted = [case for case in self.cases.values() if case.name in {"pipeline", *names}]
        if any(case.stored for case in wanted):
            (self.folder / "store").mkdir()
            self.store = self._stack.enter_context(serve(self.folder / "store"))
            os.environ.update(self.store)
        if "pipeline by a scheduler" in names:
            self._start_cluster()
        first, *others = sorted(wanted, key=lambda case: case.name != "pipeline")
        self._measure(first)
        if any(case.trains and case.stored for case in others):
            upload(self.folder / "pipeline/at/run/shards", Folder(f"s3://{BUCKET}/shards"))
        with ThreadPoolExecutor(2) as lanes:
            list(lanes.map(self._measure, others))

    def _measure(self, case: Case) -> None:
        at = self.place(case, self.folder / case.name.replace(" ", "-"))
        with self.reached(case) as server:
            ended = self.run(case, at, server)
        assert not any(ended.codes), f"{case.name}, undisturbed: {ended.codes}\n{ended.error}"
        case.cpu, case.requests = ended.cpu, sum(server.asked.values()) if server else 0
        case.expected = self.contents(case, at)

    def _start_cluster(self) -> None:
        place = self.folder / "cluster"
        place.mkdir()
        self.cluster = self._stack.enter_context(dask_cluster(place))
        for _ in range(2):
            self.add_worker()

    def add_worker(self) -> None:
        assert self.cluster is not None
        self.cluster.workers = [worker for worker in self.cluster.workers if worker.poll() is None]
        self.cluster.add_worker(self.folder / f"cluster/{time.monotonic_ns()}")

    def place(self, case: Case, folder: Path) -> Path:
        """The directory below `folder` in which a try of the case runs, with its recipe or config. The same relative paths in
        all, so that nothing that is published differs."""
        at = folder / "at"
        at.mkdir(parents=True, exist_ok=True)
        shards = f"s3://{BUCKET}/shards" if case.stored else str(self.folder / "pipeline/at/run/shards")
        output = f"s3://{BUCKET}/{folder.name}/run" if case.stored else "run"
        text = (
            TRAINING.format(shards=shards)
            if case.trains
            else RECIPE.format(corpus=self.corpus, output=output)
        )
        (at / "chaos.yaml").write_text(text)
        return at

    def run(self, case: Case, folder: Path, server: Server | None = None, **disturbed: Any) -> Ended:
        """The case's command in `folder`, to its end."""
        options = list(case.options)
        if case.name == "pipeline by a scheduler" and self.cluster is not None:
            options += ["--scheduler", self.cluster.address]
            disturbed["workers"] = [worker.pid for worker in self.cluster.workers if worker.poll() is None]
        verb = ["train"] if case.trains else ["run"]
        command = Command([*verb, "chaos.yaml", *options], "run", case.size, **disturbed)
        # Workers are interpreters of their own, as a user's are.
        done = Started(
            1, "bench._chaos_command:main", json.dumps(asdict(command)), cwd=folder, timeout=LIMIT + 60,
            env={**self.store, **({"AWS_ENDPOINT_URL": server.url} if server else {})},
            preload="train" if case.trains else "commands", spawn=True,
        ).end()  # fmt: skip
        assert done.returncode == 0, done.stderr
        return Ended(**json.loads(done.stdout.splitlines()[-1]))

    @contextlib.contextmanager
    def reached(self, case: Case) -> Iterator[Server | None]:
        """The proxy through which the case's store is reached, if it has one."""
        if not case.stored:
            yield None
            return
        with proxy(self.store["AWS_ENDPOINT_URL"]) as server:
            yield server

    def contents(self, case: Case, at: Path) -> dict[str, str]:
        """What the case has published: name -> checksum of what does not depend on the clock."""
        if case.trains:
            return learned(at / "run")
        if case.stored:
            copy = at / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            download(Folder(f"s3://{BUCKET}/{at.parent.name}/run"), copy / "run")
            return published(copy / "run")
        return published(at / "run")


def published(run: Path) -> dict[str, str]:
    """Every file that readers take for published, as the golden test compares them; `manifest.json` names the output's URL."""
    found = record.published(run)
    return {name: value for name, value in found.items() if "#" not in name}


def learned(run: Path) -> dict[str, str]:
    """Rows of metrics without what the clock decides, and the bytes of the last checkpoint's tensors."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if key not in CLOCK} for row in rows]
    last = max((run / "checkpoints").iterdir())
    tensors = {file.name: checksum(file.read_bytes()) for file in sorted(last.glob("*.safetensors"))}
    return {"rows": checksum(json.dumps(rows).encode()), "step": last.name, **tensors}


def upload(folder: Path, there: Folder) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            (there / file.relative_to(folder).as_posix()).write(file.read_bytes())


def download(there: Folder, folder: Path) -> None:
    for entry in there.list():
        file = folder / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((there / entry.path).read())
