"""Another number of processes than the config was written for, at the start and after a machine was lost: the same run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.guard.journal import read_entries
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.parallel.elastic import fitted
from corpusmill.train.trainer import train
from tests.conftest import ROOT
from tests.forks import launch
from tests.train.processes import environment

Make = Callable[..., dict[str, Any]]


def fit(config: Make, size: int, **settings: Any) -> tuple[int, int, int, str]:
    """(processes, micro-batch, replicas, line)."""
    chosen = TrainConfig.model_validate(config(**{"parallel.elastic": True, **settings}))
    found = fitted(chosen, size)
    return found.active, found.config.data.micro_batch, found.config.parallel.replicate, found.line


def test_the_layout_follows_the_number_of_processes(config: Make) -> None:
    batch = {"data.global_batch": 48, "data.micro_batch": 8}
    assert fit(config, 2, **batch) == (2, 8, 1, "")
    assert fit(config, 4, **batch) == (4, 6, 1, "elastic: data.micro_batch 8 is lowered to 6 for 4 processes")
    assert fit(config, 16, **batch)[:2] == (16, 3)
    active, micro, _, line = fit(config, 7, **batch)
    assert (active, micro) == (6, 8) and line.startswith(
        "elastic: 1 of 7 processes will wait, since batches of 48 sequences in pipeline 1 x tensor 1 x expert 1 fit 3, 4, 6 or 8"
    )
    # Hybrid sharding: fewer groups, as many as divide what is left.
    hybrid = {**batch, "parallel.zero": 2, "parallel.replicate": 4}
    assert [fit(config, size, **hybrid)[2] for size in (8, 6, 3, 2, 1)] == [4, 3, 3, 2, 1]
    # Of a ramp every batch has to fit.
    ramp = {"data.global_batch": 48, "data.micro_batch": 4, "data.batch_ramp": {3: 32}}
    assert fit(config, 12, **ramp)[:2] == (8, 2)
    # Two stages and two tensor-parallel processes share a row.
    product = {**batch, "parallel.tensor": 2, "parallel.pipeline": 2}
    assert fit(config, 11, **product)[:2] == (8, 8)
    with pytest.raises(
        UserError, match=r"parallel: 3 processes cannot share batches of 48 .*: start 4, 8, 12 or 16$"
    ):
        fit(config, 3, **product)
    plain = TrainConfig.model_validate(config(**batch))
    assert fitted(plain, 7) == (plain, 7, "")


def test_a_process_too_many_waits(write_config: Callable[..., Path], tmp_path: Path, config: Make) -> None:
    settings = {"parallel.elastic": True, "schedule.steps": 6, "validation.every": None}
    done = launch(3, "corpusmill.train", write_config(**settings))
    assert done.codes == [0, 0, 0], done.stderr
    assert "1 of 3 processes will wait" in done.errors[0] and "2 process(es)" in done.errors[0]
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    one, some = (read_metrics(Folder(tmp_path / name)) for name in ("one", "run"))
    assert [row["loss"] for row in some] == pytest.approx([row["loss"] for row in one], rel=2e-5)


def agent(port: int, config: Path, log: Path, host: bool) -> subprocess.Popen[bytes]:
    """torchrun on one of at most two machines, all on this one; it is a process group with its worker."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3",
        "--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-endpoint", f"127.0.0.1:{port}",
        "--rdzv-conf", f"is_host={int(host)},last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=8", "-m", "corpusmill.train", str(config),
    ]  # fmt: skip
    given = environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=ROOT, env=given, stdout=out, stderr=out, start_new_session=True)


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_a_lost_machine(write_config: Callable[..., Path], config: Make, tmp_path: Path) -> None:
    """Two agents with a worker each; one agent and its worker are killed. The other goes on alone, with the same batches."""
    settings = {
        "parallel.elastic": True, "parallel.zero": 2, "schedule.steps": 120, "validation.every": None,
        "checkpoint.every": 10, "data.global_batch": 8, "data.micro_batch": 4,
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = write_config(**settings)
    agents = [agent(port, file, tmp_path / f"agent-{number}.log", host=not number) for number in range(2)]
    run = Folder(tmp_path / "run")
    try:
        deadline = time.monotonic() + 300
        while len(read_metrics(run)) < 25:
            assert time.monotonic() < deadline and all(one.poll() is None for one in agents), logs(tmp_path)
            time.sleep(0.02)
        for pid in [*workers(agents[1]), agents[1].pid]:
            os.kill(pid, signal.SIGKILL)
        assert agents[0].wait(300) == 0, logs(tmp_path)
    finally:
        for one in agents:
            for pid in workers(one) if one.poll() is None else []:
                os.kill(pid, signal.SIGKILL)
            one.kill()
            one.wait()
    log = (tmp_path / "agent-0.log").read_text() + (tmp_path / "agent-1.log").read_text()
    assert "2 process(es)" in log and "1 process(es)" in log, log
    (resumed,) = [entry.step for entry in read_entries(run) if entry.kind == "resume"]
    assert 20 <= resumed < 120 and resumed % 10 == 0
    train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / "one"))))
    one, rows = read_metrics(Folder(tmp_path / "one")), read_metrics(run)
    assert [(row["step"], row["tokens"]) for row in rows] == [(row["step"], row["tokens"]) for row in one]
    for mine, other in zip(rows, one, strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4), mine["step"]
        assert mine["loss_per_source"] == pytest.approx(other["loss_per_source"], rel=1e-4), mine["step"]


def logs(folder: Path) -> str:
    return "\n".join(file.read_text() for file in folder.glob("agent-*.log"))
