"""The files of `examples/cluster` on a real Slurm of one node: the same bytes as without a cluster, a job that is lost, and a
training that is queued again at its time limit."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import IMPORT_PATH, ROOT
from tests.e2e.cli import corpusmill, difference, published, write_recipe
from tests.operations.slurm import Slurm, missing, slurm

EXAMPLES = ROOT / "examples/cluster"
REASON = missing()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON or "-")]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def environment(queue: Slurm) -> dict[str, str]:
    """Of who submits a job: `corpusmill` and `dask` are commands there."""
    commands = Path(sys.executable).parent
    return {
        **queue.environment,
        "PATH": os.pathsep.join([str(commands), queue.environment["PATH"]]),
        "PYTHONPATH": IMPORT_PATH,
    }


def wait_until(condition: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, log.read_text() if log.exists() else ""
        time.sleep(0.1)


def test_a_run_as_one_job(queue: Slurm, environment: dict[str, str], corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "books.yaml"
    recipe.write_text(
        f"name: books\nsources: {{books: {{paths: [{corpus}/books]}}}}\nstages: [ingest, filter, dedup]\n"
        "ingest: {partition_mb: 0.25}\n"
    )
    corpusmill("run", recipe, "--workers", "0", "--set", f"output={tmp_path}/alone")
    recipe.write_text(f"{recipe.read_text()}output: {tmp_path}/run\n")
    command = ["sbatch", "--parsable", "--ntasks=2", "--nodes=1", str(EXAMPLES / "slurm.sbatch"), str(recipe)]
    given = {"CORPUSMILL_CLUSTER": str(EXAMPLES), "CORPUSMILL_INTERFACE": "lo"}
    done = subprocess.run(command, env={**environment, **given}, cwd=tmp_path, capture_output=True, text=True)
    job, log = done.stdout.strip(), tmp_path / f"corpusmill-{done.stdout.strip()}.log"
    wait_until(lambda: job in queue.jobs("COMPLETED,FAILED,CANCELLED"), log)
    lines = log.read_text()
    assert job in queue.jobs("COMPLETED") and "output: " in lines and "Traceback" not in lines, lines
    assert not list(tmp_path.glob("scheduler-*"))
    assert difference(published(tmp_path / "run"), published(tmp_path / "alone")) == []


@pytest.mark.skipif(
    importlib.util.find_spec("dask_jobqueue") is None, reason="needs dask-jobqueue (extra `slurm`)"
)
def test_a_cluster_of_jobs_one_of_which_is_lost(
    queue: Slurm, environment: dict[str, str], finished: Path, corpus: Path, tmp_path: Path
) -> None:
    """The run goes on, the job is replaced, and the script ends its jobs with itself."""
    recipe = write_recipe(tmp_path / "small.yaml", corpus, tmp_path / "run")
    script = [str(EXAMPLES / "slurm_cluster.py"), "--jobs", "2", "--host", "127.0.0.1", "--memory", "2GB"]
    with (tmp_path / "cluster.log").open("wb") as out, (tmp_path / "run.log").open("wb") as err:
        cluster = subprocess.Popen(
            [sys.executable, *script], cwd=tmp_path, env=environment, stdout=out, stderr=out
        )
        wait_until((tmp_path / "scheduler.json").exists, tmp_path / "cluster.log")
        run = subprocess.Popen(
            [sys.executable, "-m", "corpusmill", "run", str(recipe), "--scheduler", "scheduler.json"],
            cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=err,
        )  # fmt: skip
    try:
        log = tmp_path / "run.log"
        wait_until(lambda: list((tmp_path / "run").glob("*/documents/*")), log)
        before = queue.jobs("RUNNING")
        queue.ask("scancel", "--full", "--signal=KILL", before[0])
        assert run.wait(500) == 0, log.read_text()
        assert " was lost: " in log.read_text() and "Traceback" not in log.read_text(), log.read_text()
        wait_until(lambda: set(queue.jobs("RUNNING,PENDING")) - set(before), log)
    finally:
        cluster.send_signal(signal.SIGTERM)
        assert cluster.wait(60) == 0, (tmp_path / "cluster.log").read_text()
        run.kill()
    wait_until(lambda: not queue.jobs("RUNNING,PENDING"), log)
    assert difference(published(tmp_path / "run"), published(finished)) == []


def test_training_goes_on_after_its_time_limit(
    queue: Slurm, environment: dict[str, str], tmp_path: Path
) -> None:
    """Slurm's warning before the limit saves a checkpoint, the job is queued again, and continues at that step."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.log.metrics import read_metrics
    from tests.train.conftest import write_shards

    shards = write_shards(Folder(tmp_path / "shards"))
    config = {
        "name": "tiny", "output": str(tmp_path / "run"), "precision": "fp32", "device": "cpu", "threads": 1,
        "data": {"shards": shards.url, "sequence_length": 24, "global_batch": 8, "micro_batch": 4},
        "model": {"dim": 32, "layers": 2, "heads": 4, "vocab_multiple": 8}, "schedule": {"steps": 400, "warmup_steps": 4},
        "checkpoint": {"every": 100_000}, "validation": {"every": None}, "log": {"every": 1, "tensorboard": False},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    given = {"CORPUSMILL_PROCESSES": "2", "CORPUSMILL_HEAD": "127.0.0.1"}
    command = [
        "sbatch",
        "--parsable",
        "--cpus-per-task=2",
        str(EXAMPLES / "train.sbatch"),
        str(tmp_path / "config.yaml"),
    ]
    done = subprocess.run(command, env={**environment, **given}, cwd=tmp_path, capture_output=True, text=True)
    job, run = done.stdout.strip(), Folder(tmp_path / "run")
    log = tmp_path / f"corpusmill-train-{job}.log"
    wait_until(lambda: len(read_metrics(run)) >= 20, log)
    queue.ask("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: job in queue.jobs("PENDING"), log)
    saved = [int(folder.name.partition("-")[2]) for folder in (tmp_path / "run/checkpoints").iterdir()]
    assert len(saved) == 1 and 20 <= saved[0] < 400, log.read_text()
    # Slurm lets a job that is queued again wait for two minutes. Not at all would be too soon: what the node revoked with the first
    # start includes whatever is made within the same second, and a start by that ends the job.
    time.sleep(3)
    wait_until(lambda: _begin(queue, job), log)
    # Not the first end that squeue lists: before the second start had run, it was seen to list another one.
    wait_until(lambda: job in queue.jobs("COMPLETED"), log)
    lines = log.read_text()
    assert f"continuing after step {saved[0]}" in lines, lines
    assert "2 process(es)" in lines and [row["step"] for row in read_metrics(run)] == list(range(1, 401))


def _begin(queue: Slurm, job: str) -> bool:
    queue.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    return job in queue.jobs("RUNNING,COMPLETED")
