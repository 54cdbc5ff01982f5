"""Processes forked from one that has everything imported: the ranks of a layout, or one command.

Importing PyTorch and the trainer takes a process some 3 s of CPU, and torchrun is one process more. Where neither is what
a test is about, `launch` forks the processes from a server instead: each is a process of its own, with its own environment,
output and exit code, in which modules are imported and nothing has run. torchrun itself is the subject of tests elsewhere
(tests/train/test_processes.py, tests/train/checkpoint/test_kills.py, tests/golden).

What a command of `preload="commands"` starts for Dask's workers is forked as well, by Dask's own option for that
(`distributed.worker.multiprocessing-method: forkserver`), from a process that is forked here instead of started. So are the
workers of `python -m tests.forks MODULE ARGUMENTS`: a command in an interpreter of its own, for a hash seed of its own.

The server has one thread and runs no tensor operation, so that a fork is safe. It belongs to one pytest process and ends
with it. For each launch it forks a launcher, which forks the ranks, opens a store for them on a free port, and waits: if a
rank fails, the others have 2 s to fail with it and are killed then; after `timeout` each rank prints where it stands.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600  # a launch that hangs fails then
GRACE = 2.0
PRELOAD = {
    "train": (
        "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel",
        "torch.distributed.checkpoint", "torch.utils.tensorboard", "pytest", "corpusmill.train.trainer",
        "corpusmill.train.commands.train",
    ),
    "commands": (
        "numba", "distributed", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "corpusmill.pipeline.commands.stages",
        "corpusmill.pipeline.engine.runner", "corpusmill.pipeline.inspect.verify", "pandas", "scipy.sparse.csgraph",
        *(f"corpusmill.pipeline.{stage}.stage" for stage in (
            "ingest", "filter", "dedup", "decontaminate", "redact", "split", "tokenizer", "shard", "report",
        )),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Finished:
    """The processes of a launch, at their end: exit codes (negative: a signal) and what each one printed."""

    codes: list[int]
    outputs: list[str]
    errors: list[str]
    seconds: float  # of CPU, all processes together
    reason: str  # why the launcher killed them, if it did

    @property
    def returncode(self) -> int:
        """That of the first process to fail, as torchrun sees it; 0 if all did well."""
        failed = [code for code in self.codes if code]
        return next((code for code in failed if code != -signal.SIGKILL), failed[0]) if failed else 0

    @property
    def stdout(self) -> str:
        return "".join(self.outputs)

    @property
    def stderr(self) -> str:
        if len(self.errors) == 1:
            return self.errors[0] + self.reason
        ranks = zip(self.codes, self.errors, strict=True)
        return self.reason + "".join(
            f"{error}(rank {n} exit code {code})\n" for n, (code, error) in enumerate(ranks)
        )


def launch(
    size: int, module: str, *arguments: Any, env: Mapping[str, str] | None = None, cwd: Path = ROOT,
    timeout: float = SECONDS, preload: str = "train",
) -> Finished:  # fmt: skip
    """`python -m MODULE ARGUMENTS` in `size` processes, to their end.

    More than one find each other like those of torchrun: RANK, WORLD_SIZE and a store of their own. A `module` of the
    form "package.module:function" is called with the arguments.
    """
    return Started(size, module, *arguments, env=env, cwd=cwd, timeout=timeout, preload=preload).end()


class Started:
    """What `launch` has forked, while it runs."""

    def __init__(
        self, size: int, module: str, *arguments: Any, env: Mapping[str, str] | None = None, cwd: Path = ROOT,
        timeout: float = SECONDS, preload: str = "train", session: bool = False, spawn: bool = False,
        python: str = sys.executable,
    ) -> None:  # fmt: skip
        """`session`: each process leads a session of its own, and so a process group. `spawn`: Dask's workers are new
        interpreters, as by default. `python`: another environment's, with the packages that are installed there."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        assert "PYTHONHASHSEED" not in (env or {}), (
            "is read when an interpreter starts: use a process of its own"
        )
        self._folder = tempfile.TemporaryDirectory(prefix="launch-")
        request = {
            "size": size, "module": module, "arguments": [str(argument) for argument in arguments],
            "env": environment, "cwd": str(cwd), "timeout": timeout, "folder": self._folder.name, "session": session,
            "spawn": spawn,
        }  # fmt: skip
        self._server = _server(preload, python, os.getpid())
        self._answers = self._server.ask(json.dumps(request).encode())
        self._finished: Finished | None = None
        self.pids: list[int] = self._answer()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the launcher died; its server's exit code is {self._server.process.poll()}")
        return json.loads(line)

    def ended(self) -> bool:
        """Whether all have ended."""
        return self._finished is not None or bool(select.select([self._answers], [], [], 0)[0])

    def end(self) -> Finished:
        """Wait for their end."""
        if self._finished is None:
            with self._folder as folder, self._answers:
                answer = self._answer()
                outputs, errors = (
                    [
                        Path(folder, f"{rank}.{name}").read_text(errors="replace")
                        for rank in range(len(self.pids))
                    ]
                    for name in ("out", "err")
                )
            self._finished = Finished(answer["codes"], outputs, errors, answer["seconds"], answer["reason"])
        return self._finished


class _Server:
    """The client's end of a server process."""

    def __init__(self, preload: str, python: str) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Another environment has no checkout on its path.
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}" if python == sys.executable else ""
        with theirs:
            self.process = subprocess.Popen(
                [python, __file__, str(theirs.fileno()), *PRELOAD[preload]],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def ask(self, request: bytes) -> IO[bytes]:
        """Its two answers are lines: process ids, then what became of them."""
        read, write = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(request)
            file.seek(0)
            try:
                socket.send_fds(self.socket, [b"launch"], [write, file.fileno()])
            finally:
                os.close(write)
        return os.fdopen(read, "rb", buffering=0)  # `select` looks at what is not read yet


@functools.cache
def _server(preload: str, python: str, _: int) -> _Server:
    return _Server(preload, python)


def _preload(modules: Sequence[str]) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:  # an optional one
            if module.startswith("corpusmill"):
                raise
    if "numba" in modules:  # what every process does before its first kernel: 1 s of CPU
        from numba.core.registry import cpu_target

        cpu_target.typing_context.refresh()  # type: ignore[no-untyped-call]
        cpu_target.target_context.refresh()
    gc.collect()
    gc.freeze()


def _serve(descriptor: int, modules: Sequence[str]) -> None:
    """Fork a launcher for each request until the client is gone."""
    faulthandler.enable()
    _preload(modules)
    requests = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # launchers answer by themselves
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, 16, 2)
        if not message:
            return
        names = {Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in _threads()}
        assert len(_threads()) == 1 or names <= {
            "python",
            "python3",
            "python3.11",
            "python3.12",
            "jemalloc_bg_thd",
        }, names
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            try:
                with os.fdopen(descriptors[1], "rb") as file:
                    _launch(json.loads(file.read()), descriptors[0])
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        for number in descriptors:
            os.close(number)


def _threads() -> list[str]:
    tasks = Path("/proc/self/task")
    return os.listdir(tasks) if tasks.exists() else ["main"]  # noqa: PTH208 (names)


def _launch(request: dict[str, Any], answer: int) -> None:
    """Fork the ranks, wait for them, and write what became of them to `answer`."""
    os.setsid()
    size, ranks = request["size"], {}
    ports = [os.pipe() for _ in range(size)]
    for rank in range(size):
        if (pid := os.fork()) == 0:
            os.close(answer)
            for number, (read, write) in enumerate(ports):
                os.close(write)
                if number != rank:
                    os.close(read)
            _rank(request, rank, ports[rank][0])
        ranks[pid] = rank
    os.write(answer, json.dumps(list(ranks)).encode() + b"\n")
    store = None
    if size > 1:  # only now: it has threads
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for read, write in ports:
        os.close(read)
        with contextlib.suppress(BrokenPipeError):
            os.write(write, str(store.port if store else 0).encode())
        os.close(write)
    codes, seconds, reason, end = [0] * size, 0.0, "", time.monotonic() + request["timeout"]
    gone = select.poll()
    gone.register(answer, 0)  # the reader's end is closed: POLLERR
    while ranks:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid in ranks:
            codes[ranks.pop(pid)] = code = os.waitstatus_to_exitcode(status)
            seconds += usage.ru_utime + usage.ru_stime
            if code:
                end = min(end, time.monotonic() + GRACE)
            continue
        if gone.poll(0):
            end = 0
        if time.monotonic() > end:
            late = sorted(ranks.values())
            first = not any(codes) and not reason
            if first:
                reason = f"ranks {late} did not end in {request['timeout']:g} s\n"
            for pid in ranks:
                os.kill(pid, signal.SIGABRT if first else signal.SIGKILL)  # the first prints where it stands
            end = time.monotonic() + 60
        time.sleep(0.003)
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps({"codes": codes, "seconds": seconds, "reason": reason}).encode() + b"\n")


def _rank(request: dict[str, Any], rank: int, port: int) -> None:
    """One process, from its fork to its end."""
    code = 1
    try:
        if request["session"]:
            os.setsid()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(
                os.open(f"{request['folder']}/{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number
            )
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        with os.fdopen(port, "rb") as file:
            number = file.read().decode()
        if request["size"] > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(request["size"]), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=number, TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
            )  # fmt: skip
        if "distributed" in sys.modules and not request["spawn"]:
            _fork_workers()
        module, _, function = request["module"].partition(":")
        sys.argv = [module, *request["arguments"]]
        if function:
            getattr(importlib.import_module(module), function)(*request["arguments"])
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        if code == 0:
            threading._shutdown()  # type: ignore[attr-defined]  # threads that are no daemons, as at any interpreter's end
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # gloo's threads may abort a process that unwinds while a peer is leaving


def _fork_workers() -> None:
    """Have Dask's workers forked: what `forkserver.ensure_running` does, but that the server is no new interpreter."""
    import dask

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
    alive, server._forkserver_alive_fd = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(server._forkserver_address)
        listener.listen()
        if (pid := os.fork()) == 0:
            os.close(server._forkserver_alive_fd)
            try:
                forkserver.main(listener.detach(), alive, [])  # type: ignore[attr-defined]
            finally:
                os._exit(0)
    os.close(alive)
    server._forkserver_pid = pid


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        del sys.path[0]  # the folder of this file
        _serve(int(sys.argv[1]), sys.argv[2:])
    else:
        _preload(PRELOAD["commands"])
        _fork_workers()
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
