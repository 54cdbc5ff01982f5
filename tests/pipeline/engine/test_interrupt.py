"""Ctrl-C: never a traceback, a line where there is a state to report, and no workers closed or started by half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from corpusmill.pipeline.engine.progress import explained, held
from tests.conftest import IMPORT_PATH, ROOT

AT_IMPORT = """
import sys

class Interrupted:
    def find_spec(self, name, *rest):
        if name == sys.argv[0]:
            raise KeyboardInterrupt

sys.argv = sys.argv[1:]
sys.meta_path.insert(0, Interrupted())
from corpusmill.__main__ import main

main()
"""
WORKERS = """
import os, signal, sys, threading
from multiprocessing.process import BaseProcess

import distributed

from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster

MOMENT = sys.argv[1]
SECONDS = {"a worker is a process": 0.0, "a worker imports": 0.2}  # after its process was started
timers = []

def ctrl_c():
    os.killpg(0, signal.SIGINT)

class Started(distributed.LocalCluster):
    def __init__(self, *args, **kwargs):
        if MOMENT == "before the cluster":
            ctrl_c()
        super().__init__(*args, **kwargs)
        for timer in timers:
            timer.join()
        if MOMENT == "before the client":
            ctrl_c()

start = BaseProcess.start

def started(process):
    start(process)
    if MOMENT in SECONDS:
        timers.append(threading.Timer(SECONDS[MOMENT], ctrl_c))
        timers[-1].start()

def closing():
    timer = threading.Timer(0.05, ctrl_c)
    timer.start()
    workers.client.cluster.close()
    timer.join()

if __name__ == "__main__":
    distributed.LocalCluster, BaseProcess.start = Started, started
    try:
        with Workers(Cluster(workers=1), progress=Progress(quiet=True)) as workers:
            if MOMENT != "end":
                workers.client
                print("never", len(timers))
            assert workers.map(str, [1, 2], "two") == ["1", "2"]
            workers._stack.callback(closing)
        print("closed")
    except KeyboardInterrupt:
        print("interrupted")
"""


def python(*arguments: str | Path, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    """A process in a group of its own, as of a terminal."""
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env, cwd=ROOT, timeout=timeout,
        start_new_session=True,
    )  # fmt: skip


def ctrl_c() -> None:
    """To the main thread: sent to the process, another thread of it may take the signal and pass it on at any later time."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("typer", ""), ("corpusmill.common.errors", ""), ("corpusmill.pipeline.commands.stages", ""), ("corpusmill.train.commands", ""),
        ("corpusmill.pipeline.inspect.verify", "interrupted; verify writes nothing and finds all again: run the same command again\n"),
    ],
)  # fmt: skip
def test_while_it_is_imported(module: str, message: str) -> None:
    done = python("-c", AT_IMPORT, module, "verify", "nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", message)


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("before the cluster", "interrupted\n"),
        ("a worker is a process", "interrupted\n"),
        ("a worker imports", "interrupted\n"),
        ("before the client", "interrupted\n"),
        ("end", "closed\n"),
    ],
)
def test_workers_start_and_close_as_a_whole(moment: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORKERS)
    done = python(tmp_path / "work.py", moment)
    assert (done.stdout, done.stderr) == (message, "")


def test_it_waits_for_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held(answer=True):
        ctrl_c()
        done.append(1)
    with held(answer=False):
        ctrl_c()
        done.append(2)
    with pytest.raises(ValueError, match="the reason"), held(answer=True):
        ctrl_c()
        raise ValueError("the reason")
    with held(answer=True):
        done.append(3)
    assert done == [1, 2, 3] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_who_ignores_it_goes_on_to() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held(answer=True):
            ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_processes_that_begin_in_the_block_never_get_it() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    ends = []

    def start() -> None:
        ends.append(python("-c", code).stdout)

    with held(answer=True):
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    start()
    assert ends == ["alive\n", ""]


def test_other_threads_are_let_alone() -> None:
    ends = []

    def work() -> None:
        with held(answer=True):
            ends.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ends == ["done"]


def test_the_state_is_reported_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for state in ("nothing was written", lambda: "nothing was written"):
        with pytest.raises(KeyboardInterrupt), explained(state):
            raise KeyboardInterrupt
        assert capsys.readouterr().err == "interrupted; nothing was written\n"
    with explained("never"):
        pass
    assert capsys.readouterr().err == ""
