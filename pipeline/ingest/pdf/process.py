"""PDF processes (`worker.py`) from the side of ingest: started when needed, kept for the next file, replaced after a crash."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.ingest.pdf.frames import read_message, write_frame, write_message

MODULE = "corpusmill.pipeline.ingest.pdf.worker"
FILES = 1_000  # after so many a process is replaced, so that memory that PDFium loses does not add up
_MEMORY_SIGNALS = (signal.SIGABRT, signal.SIGTRAP, signal.SIGILL)  # how PDFium ends when an allocation fails


class Crashed(Exception):
    """The process died of what it was reading. Its message says how, and holds nothing of the file."""


class PdfProcess:
    """One process. Raises `WorkError` if it does not start."""

    def __init__(self) -> None:
        self.files = 0
        self.busy = False  # it was asked and has not answered: of no use to anyone else
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
            )
            if self._read() != {"ready": True}:
                self.end()
                errors.seek(0)
                reason = (
                    errors.read().decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
                )[-1]
                raise WorkError(f"the process that reads PDF does not start: {reason}")

    def open(self, data: Iterable[bytes], options: dict[str, Any]) -> dict[str, Any]:
        """Give it a file, in blocks; its answer. Raises `Crashed`."""
        assert self._process.stdin is not None
        self.files += 1
        self.busy = True
        try:
            write_message(self._process.stdin, {"open": options})
            for block in data:
                write_frame(self._process.stdin, block)
            write_frame(self._process.stdin, b"")
            self._process.stdin.flush()
        except OSError:
            raise self._crashed() from None
        return self._answer()

    def ask(self, **message: Any) -> dict[str, Any]:
        """Its answer to a message. Raises `Crashed`."""
        assert self._process.stdin is not None
        self.busy = True
        try:
            write_message(self._process.stdin, message)
        except OSError:
            raise self._crashed() from None
        return self._answer()

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # of bytes that it did not take
                continue
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        answer = self._read()
        if answer is None:
            raise self._crashed()
        self.busy = False
        return answer

    def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        return read_message(self._process.stdout)

    def _crashed(self) -> Crashed:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it sent what is no answer
            return Crashed("the process that read it gave no answer that can be read")
        if code == -signal.SIGPROF:
            return Crashed("it took more processor time than a page or file may (pdf.timeout)")
        if -code in _MEMORY_SIGNALS:
            return Crashed(f"PDFium gave up on it (signal {-code}), as it does when memory runs out")
        return Crashed(f"PDFium crashed on it ({f'signal {-code}' if code < 0 else f'exit code {code}'})")


_idle: list[PdfProcess] = []


@contextmanager
def pdf_process() -> Iterator[PdfProcess]:
    """A process for one file: an idle one, or a new one. It is kept for others unless it crashed."""
    try:
        process = _idle.pop()
    except IndexError:
        process = PdfProcess()
    try:
        yield process
    finally:
        if process.busy or process.files >= FILES:
            process.end()
        else:
            _idle.append(process)


@atexit.register
def end_idle() -> None:
    """End the processes that are kept."""
    while _idle:
        _idle.pop().end()


def _forget() -> None:
    """In a fork: the pipes are those of the process that it was forked from."""
    _forgotten.extend(_idle)
    _idle.clear()


_forgotten: list[PdfProcess] = []  # never closed: a fork must not wait for children that are not its own
os.register_at_fork(after_in_child=_forget)
