"""A Dask scheduler and workers as processes of their own, with an environment and a directory of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from distributed import Client

from bench.object_store import free_ports
from tests.conftest import IMPORT_PATH


class DaskCluster:
    """`address` takes clients; `workers` are the processes, each with its nanny. `settings`: environment of the scheduler."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder, self.settings = folder, settings or {}
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        # Below the ports that the system gives out: nobody else gets it while the scheduler restarts.
        self.scheduler = self._scheduler(free_ports(1)[0])
        self.address = self._address()

    def _scheduler(self, port: int) -> subprocess.Popen[bytes]:
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        return self._start(
            [
                "scheduler",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--no-dashboard",
                "--scheduler-file",
                str(file),
            ],
            self.settings,
            self.folder,
        )

    def _address(self) -> str:
        file = self.folder / "scheduler.json"
        for _ in range(2400):
            with contextlib.suppress(FileNotFoundError, ValueError):
                return str(json.loads(file.read_text())["address"])
            assert self.scheduler.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("the scheduler did not start within 2 min")

    def kill_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another at the same address."""
        self.kill_scheduler()
        self.scheduler = self._scheduler(int(self.address.rpartition(":")[2]))
        self._address()

    def add_worker(
        self, directory: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        directory.mkdir(parents=True, exist_ok=True)
        worker = self._start(
            ["worker", self.address, "--nthreads", "1", "--nworkers", "1", "--host", "127.0.0.1", "--no-dashboard",
             "--local-directory", str(directory / "dask"), "--memory-limit", "0"],
            environment or {}, directory,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def wait_for_worker(self, directory: Path) -> None:
        """Until the scheduler knows the worker of this directory: a command that is started then does not see it join."""
        with Client(self.address) as client:
            for _ in range(2400):
                workers = client.scheduler_info(n_workers=-1)["workers"].values()
                if any(Path(worker["local_directory"]).is_relative_to(directory) for worker in workers):
                    return
                time.sleep(0.05)
        raise AssertionError(f"no worker in {directory} within 2 min")

    def keep(self, count: int, environment: Mapping[str, str] | None = None) -> None:
        """Start so many workers, and another for each that ends, as Slurm and Kubernetes do, until `close`."""
        for number in range(count):
            self.add_worker(self.folder / f"worker-{number}", environment)

        def replace() -> None:
            while not self._closed.wait(0.1):
                for number, worker in enumerate(self.workers):
                    if worker.poll() is not None:
                        self.add_worker(self.folder / f"worker-{number}", environment)
                        self.workers[number] = self.workers.pop()

        self._keeper = threading.Thread(target=replace)
        self._keeper.start()

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its nanny, as when their machine is lost."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)

    def busy(self) -> list[int]:
        """The numbers of the workers that have had a task of ours."""
        found = []
        for number, worker in enumerate(self.workers):
            for task in Path(f"/proc/{worker.pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):  # a thread or a process that has ended
                    for child in task.read_text().split():
                        if b"libarrow" in Path(f"/proc/{child}/maps").read_bytes():
                            found.append(number)
        return found

    def _start(
        self, command: list[str], environment: Mapping[str, str], directory: Path
    ) -> subprocess.Popen[bytes]:
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("CORPUSMILL_", "AWS_"))
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *command], stdout=log, stderr=log, cwd=directory, start_new_session=True,
                env={**own, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1", **environment},
            )  # fmt: skip

    def close(self) -> None:
        self._closed.set()
        if self._keeper is not None:
            self._keeper.join()
        for process in [*self.workers, self.scheduler]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def dask_cluster(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[DaskCluster]:
    cluster = DaskCluster(folder, settings)
    try:
        yield cluster
    finally:
        cluster.close()
