"""Progress as a person sees it: in a log while one long task runs, and on a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import IMPORT_PATH, ROOT

# One task, which goes on by a quarter for each file that appears; with `die`, its first worker is killed half way.
WORK = """
import os, signal, sys, time
from functools import partial
from pathlib import Path

from corpusmill.common.task_progress import advance
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster

def work(folder, die, size):
    for quarter in range(4):
        while not (folder / f"go-{quarter}").exists():
            time.sleep(0.01)
            advance(0)
        advance(size / 4)
        if die and quarter == 1:
            if (folder / "died").exists():
                continue
            while not (folder / "die").exists():
                time.sleep(0.01)
                advance(0)
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    folder, workers, die, interval = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "die", float(sys.argv[4])
    progress = Progress(interval=interval)
    with Workers(Cluster(workers=workers), progress=progress) as scheduler:
        scheduler.map(partial(work, folder, die), [40_000_000], "filter+dedup+redact of one partition", [40_000_000])
"""


class Watched:
    """A process whose standard error is a pipe, or whose terminal has 80 columns; `text` is what it wrote so far."""

    def __init__(
        self, command: list[str | Path], terminal: bool, env: Mapping[str, str] | None = None
    ) -> None:
        self.text = ""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        kept = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=theirs if terminal else subprocess.DEVNULL, stderr=theirs,
            stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True,
            env={**kept, "TERM": "xterm", "PYTHONPATH": IMPORT_PATH, **(env or {})},
        )  # fmt: skip
        os.close(theirs)
        self._file = ours

    def wait(self, done: Callable[[str], object]) -> None:
        """Read on until `done(text)`, or until the process ends."""
        while not done(self.text):
            try:
                data = os.read(self._file, 1 << 16)
            except OSError:  # a terminal whose last process is gone
                data = b""
            if not data:
                return
            self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))

    def end(self) -> int:
        """Its exit status, after all that it wrote is read."""
        self.wait(lambda text: False)
        os.close(self._file)
        return self.process.wait(timeout=60)

    @property
    def lines(self) -> list[str]:
        """All states of all lines."""
        return [line for line in re.split(r"[\r\n]+", self.text) if line.strip()]


def steps(watched: Watched, folder: Path) -> None:
    """Let the task go on, a quarter each time that the last one is seen."""
    for quarter in range(3):
        (folder / f"go-{quarter}").touch()
        wanted = f"{25 * (quarter + 1)} %"
        watched.wait(lambda text, wanted=wanted: wanted in text)  # type: ignore[misc]
        assert wanted in watched.text, watched.text
    (folder / "go-3").touch()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_bar_moves_within_one_partition(workers: int, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    watched = Watched([tmp_path / "work.py", tmp_path, str(workers), "", "30"], terminal=True)
    steps(watched, tmp_path)
    assert watched.end() == 0
    bars = [line for line in watched.lines if re.search(r"\d %", line)]
    assert all(line.startswith("filter+dedup+redact of ") and "MB/s" in line for line in bars)
    assert any(re.search(r"MB/s +\d+ (s|min)$", line.rstrip()) for line in bars)  # the time left
    assert max(map(len, watched.lines)) < 80
    assert re.search(r"^filter\+dedup\+redact of one partition +1 task +[0-9.]+ s", watched.lines[-1])


def test_a_log_has_lines_during_one_long_task_that_is_retried(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    watched = Watched([tmp_path / "work.py", tmp_path, "1", "die", "0.2"], terminal=False)
    for quarter in range(2):
        (tmp_path / f"go-{quarter}").touch()
    watched.wait(lambda text: "50 %: 20 MB of 40 MB" in text)
    for quarter in range(2):
        (tmp_path / f"go-{quarter}").unlink()
    seen = len(watched.text)
    (tmp_path / "die").touch()
    watched.wait(lambda text: " 0 %: 0 B of 40 MB" in text[seen:])  # what was done is lost
    (tmp_path / "go-0").touch()
    watched.wait(lambda text: "25 %: 10 MB of 40 MB" in text[seen:])
    for quarter in range(4):
        (tmp_path / f"go-{quarter}").touch()
    assert watched.end() == 0, watched.text
    shares = [int(share) for share in re.findall(r"(\d+) %: ", watched.text[seen:])]
    assert {0, 25} <= set(shares) and max(shares) <= 100
    assert re.fullmatch(
        r"filter\+dedup\+redact of one partition +1 task +[0-9.]+ s  [0-9.]+ MB/s", watched.lines[-1]
    )


def test_a_run_on_a_terminal_of_80_columns(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    recipe = finished.parent / "small.yaml"
    command: list[str | Path] = [
        "-m", "corpusmill", "run", recipe, "--workers", "0", "--set", f"output={tmp_path / 'run'}", "--set", "report.samples=2",
        "--replace",
    ]  # fmt: skip
    watched = Watched(command, terminal=True)
    assert watched.end() == 0, watched.text
    folded = re.sub(r"\n {4}", " ", watched.text.replace("\r", ""))
    for found in (
        r"ingest +finished before: [\d,]+ records; ", r"filter +finished before: \d+ of [\d,]+ documents removed: \S+ \d+",
        r"tokenizer +finished before: vocabulary of [\d,]+, \d\.\d\d bytes a token", r"shard +finished before: \d+ tars, ",
        r"report +done +[0-9.]+ s +[\d,]+ records, [\d,]+ kept",
    ):  # fmt: skip
        assert re.search(found, folded), (found, folded)
    assert max(len(line) for line in watched.lines if str(tmp_path) not in line) < 80
