"""Progress: bytes and time left, lines and threads, 80 columns."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Iterator

import pytest

from corpusmill.common.task_progress import advance, carried, portion, watched
from corpusmill.pipeline.engine.found import clause, documents_removed, kinds, most
from corpusmill.pipeline.engine.phase import Phase
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.manifest import Counts


class Clock:
    """`time.monotonic` of a phase, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("corpusmill.pipeline.engine.phase.time", self)

    def monotonic(self) -> float:
        return self.now


def test_time_left_comes_from_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    phase = Phase("filter", 3, [80_000_000, 10_000_000, 10_000_000])
    assert (phase.share, phase.left) == (0.0, "")
    clock.now = 10
    phase.end(1)
    phase.end(2)  # two of three tasks, a fifth of the bytes
    assert phase.share == 0.2 and phase.rate == "2.0 MB/s" and phase.left == "40 s"
    assert phase.line() == "filter: 20 %: 2 of 3 tasks, 20 MB of 100 MB, 10 s so far, 2.0 MB/s, 40 s left"
    phase.under_way(0, 40_000_000)
    assert phase.share == 0.6
    phase.end(0)
    assert (phase.share, phase.left) == (1.0, "")


def test_time_left_is_that_of_the_last_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier run had finished passes within a second, and says nothing of the rest."""
    clock = Clock(monkeypatch)
    phase = Phase("filter", 100, [1_000_000] * 100)
    clock.now = 1
    for task in range(90):
        phase.end(task)
    assert phase.left == "0 s"
    for task in range(90, 95):
        clock.now += 60
        phase.end(task)
        left = phase.left
    assert left == "5 min"


def test_a_task_that_is_repeated_counts_once() -> None:
    phase = Phase("filter", 2, [100, 100])
    phase.under_way(0, 90)
    phase.under_way(0, 10)  # its worker died, and another one began again
    assert phase.done_bytes == 10
    phase.under_way(0, 1_000)  # never more than the task has
    assert phase.done_bytes == 100
    phase.end(0)
    phase.end(0)
    phase.under_way(0, 50)  # of a worker that was taken for dead
    assert (phase.done_bytes, phase.finished) == (100, 1)


def test_a_phase_without_bytes_counts_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    tasks, work = Phase("ledger", 4), Phase("tokenizer")
    clock.now = 10
    tasks.end(0)
    assert tasks.line() == "ledger: 25 %: 1 of 4 tasks, 10 s so far, 0.1 tasks/s, 30 s left"
    assert work.line() == "tokenizer: 10 s so far"


def test_portions_of_a_task() -> None:
    seen: list[float] = []
    with watched(seen.append, 100, 0.0):
        with portion(40, 1_000):
            advance(500)
            assert seen[-1] == 20
            advance(5_000)  # more than announced
            assert seen[-1] == 40
        with portion(40, 2):  # says nothing
            pass
        assert seen[-1] == 80
        with portion(20, 20):
            with portion(10, 1):
                advance(0.5)
                assert seen[-1] == 85
            advance(1)
            assert seen[-1] == 91
    advance(1)  # nobody watches
    assert seen[-1] == 100 and seen == sorted(seen)


def test_reports_are_rare() -> None:
    seen: list[float] = []
    with watched(seen.append, 1_000_000, 60.0):
        for _ in range(1000):
            advance(1)
    assert not seen


def test_another_thread_may_take_what_advances_this_one() -> None:
    def items() -> Iterator[int]:
        for item in range(3):
            advance(1)
            yield item

    seen: list[float] = []
    taken: list[int] = []
    with watched(seen.append, 3, 0.0):
        thread = threading.Thread(target=lambda given: taken.extend(given), args=(carried(items()),))
        thread.start()
        thread.join()
    assert (taken, seen) == ([0, 1, 2], [1, 2, 3])


class Log(io.StringIO):
    """Takes lines; `wait(text)` blocks until one has it."""

    def wait(self, *texts: str) -> str:
        for _ in range(6000):
            found = [line for line in self.getvalue().splitlines() if all(text in line for text in texts)]
            if found:
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"no line with {texts} within 60 s in:\n{self.getvalue()}")


def test_a_long_phase_has_lines_and_leaves_no_thread() -> None:
    log = Log()
    progress = Progress(log, interval=0.02)
    with progress.work("tokenizer"):
        log.wait("tokenizer: ", " s so far")
        with progress.phase("tokenizer: sample", 2, [1_000_000, 1_000_000]) as phase:
            phase.under_way(0, 500_000)
            log.wait("tokenizer: sample: 25 %: 0 of 2 tasks, 500 kB of 2 MB", "MB/s")
        log.wait("tokenizer: sample", "0 tasks")
        with progress.work("training", 2_000_000):
            advance(1_000_000)
            log.wait("training: 50 %: 1 MB of 2 MB")
        assert "progress" in [thread.name for thread in threading.enumerate()]
    with pytest.raises(KeyboardInterrupt), progress.work("again"):
        raise KeyboardInterrupt
    assert "progress" not in [thread.name for thread in threading.enumerate()]
    before = log.getvalue()
    time.sleep(0.1)
    assert log.getvalue() == before


def test_lines_come_only_where_there_are_no_others() -> None:
    log = Log()
    progress = Progress(log, interval=30.0)
    with progress.work("short"):
        progress.log("a line")
    assert log.getvalue() == "a line\n"


def test_quiet_writes_nothing_and_starts_no_thread() -> None:
    log = Log()
    progress = Progress(log, quiet=True, interval=0.0)
    with progress.work("work"), progress.phase("phase", 1, [1]):
        assert "progress" not in [thread.name for thread in threading.enumerate()]
    progress.log("line")
    assert log.getvalue() == "" and progress.report_every == float("inf")


def test_a_log_that_nobody_reads_any_more_stops_no_work() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    progress = Progress(Closed(), interval=0.01)
    with progress.phase("phase", 1, done=False):
        time.sleep(0.05)
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_what_a_stage_found() -> None:
    assert most({"a": 1, "email": 1312, "c": 2}) == "email 1,312, c 2, a 1"
    assert most(dict.fromkeys("abcde", 1)) == "a 1, b 1, c 1, d 1, e 1"
    assert most(dict.fromkeys("abcdef", 1)) == "a 1, b 1, c 1, d 1, 2 more"
    assert kinds({"rule/a.b/first": 2, "rule/a.b/failed": 3, "rule/c/first": 0}, "rule/", "/first") == {
        "a.b": 2
    }
    assert (
        documents_removed(Counts(docs_in=3, kept=1, removed=1, quarantined=1))
        == "1 of 3 documents removed, 1 quarantined"
    )
    assert (clause("a", ""), clause("a", "b 1")) == ("a", "a: b 1")


class Terminal(io.StringIO):
    """80 columns wide."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.mark.parametrize("seconds", [0.043, 0.4, 59.6, 8_999.0, 360_000.0])  # up to 100 hours
@pytest.mark.parametrize(
    ("tasks", "done", "size"),
    [(0, 0, 0), (1, 0, 999_000_000_000), (99_999, 12_345, 9_990_000), (1_000_000, 999_999, 999_000), (99_999, 12_345, 0)],
)  # fmt: skip
def test_a_bar_and_its_line_fit_into_80_columns_whole(
    seconds: float, tasks: int, done: int, size: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    label = "ingest+filter+decontaminate+redact"
    progress = Progress(terminal)
    with progress.phase(label, tasks, [size] * tasks if size else None) as phase:
        for task in range(done):
            phase.end(task)
        if size and not done:
            phase.under_way(0, 1.0)
        clock.now = seconds
        assert progress._bar is not None
        progress._bar.show(phase)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    bars = [line for line in re.split(r"[\r\n]+", text) if line.startswith(label[:22])]
    assert max(map(len, bars)) < 80 and "…" not in text
    if phase.share is not None and seconds > 1:
        assert any(phase.left in line for line in bars)


def test_lines_are_folded_on_a_terminal_in_a_phase_or_not(terminal: Terminal) -> None:
    progress = Progress(terminal)
    line = "  tokenizer            finished before: " + "vocabulary of 8,192, 4.07 bytes a token " * 3
    progress.log(line)
    with progress.phase("a phase", done=False):
        progress.log(line)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    lines = [one for one in re.split(r"[\r\n]+", text) if "vocabulary" in one]
    assert len(lines) == 4 and max(map(len, lines)) < 80
    assert lines[:2] == lines[2:]
