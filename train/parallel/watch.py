"""Processes that watch each other: a hang is found, reported with the process that is missing, and ended; so are processes
that others have replaced. And the share of time that each one waits for others is measured.

A thread of each process publishes, in the store, where its main thread is and which collective it is in, by PyTorch's flight
recorder. One that sees its own process wait longer than the timeout reads what the others have published. Two readings, so that
no clocks of different machines are compared.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.train.parallel.store import Meeting

ATTEMPT = "attempt"  # file in the run's folder: the name of the newest start
RECORDED = "512"  # collectives that the flight recorder keeps
LINGER = 5.0  # seconds that the first process waits for the end of the others
SAMPLE = 0.01  # seconds between two looks at whether this process waits
SILENT = 3  # beats without a new note of a process that gives no sign of life
FEWEST = 20  # looks that make a figure
NAMED = 8  # processes in a message
_STORE_LOST = "the store of the processes does not answer: its machine or the first process is lost"
_REPLACED = "other processes have continued this run: torchrun took these for lost"
_PACKAGE = str(Path(__file__).parents[2])
_STANDARD = sysconfig.get_paths()["stdlib"]
_SENDING = ("torch/distributed/distributed_c10d", "torch/distributed/pipelining")
_OWN_THREADS = ("threading.py", "queue.py", "concurrent/futures")


class Watch:
    """The watch of one process among several. `folder`: of the run, where it writes its flight record when all end."""

    def __init__(self, rank: int, size: int, meeting: Meeting, timeout: float, folder: Folder) -> None:
        self.rank, self.size, self.timeout, self.folder = rank, size, timeout, folder
        self.beat = min(timeout / 8, 5.0)
        self.backstop = 2 * timeout + 5  # of the process groups, where a wait is not seen from here
        self.step = 0  # the trainer sets it
        self._store, self._name = meeting.watch, meeting.name.encode()
        self._meeting = meeting  # whose first store is also the server of this one
        self._measuring = self._lost = self._ends = self._owns = False
        self._looks = self._waits = self._beats = 0
        self._since, self._state = time.monotonic(), ""  # of the collectives, unchanged since then
        self._ending = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", RECORDED)
        meeting.watch.set_timeout(timedelta(seconds=max(self.beat, 5.0)))

    def start(self) -> None:
        self._thread.start()

    def own(self) -> None:
        """From now on these processes, and none that an older start left, continue the run in the folder."""
        if self.rank == 0:
            (self.folder / ATTEMPT).write(self._name)
            self._owns = True

    def give_way(self) -> None:
        """Return, unless the watch is about to end this process: it has printed why."""
        if self._ends:
            self._thread.join()

    def close(self) -> None:
        """The run has ended here."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(self.beat)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count time spent in here towards `busy`."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def busy(self) -> float:
        """Share of the time measured since the last figure in which this process was in no collective; 0 if that is too short
        for a figure."""
        if (looks := self._looks) < FEWEST:
            return 0.0
        waits, self._looks, self._waits = self._waits, 0, 0
        return 1 - waits / looks

    def finish(self) -> None:
        """The run is done: processes that take no part may end, and the first one, which may have the store, does so last."""
        self.close()
        with suppress(RuntimeError):
            if self.rank:
                self._store.set(f"done/{self.rank}", "")
                return
            self._store.set("finished", "")
            end = time.monotonic() + LINGER
            others = [f"done/{rank}" for rank in range(1, self.size)]
            while others and not self._store.check(others) and time.monotonic() < end:
                time.sleep(SAMPLE)

    def wait_for_end(self) -> None:
        """In a process that takes no part: return when the run is done; the process ends if the others do."""
        while not self._store.check(["finished"]):
            time.sleep(min(self.beat, 1.0))

    def _run(self) -> None:
        due = 0.0
        while not self._closed.wait(SAMPLE):
            try:
                if self._measuring:
                    self._looks += 1
                    self._waits += _in_collective()
                if time.monotonic() < due:
                    continue
                self._look()
            except RuntimeError:  # of the store, which does not come back; collectives may
                self._lost = True
            except Exception as error:  # it must not end the watch
                print(f"watch: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            due = time.monotonic() + self.beat

    def _look(self) -> None:
        """Publish where this process is; end it if another one has asked for that, or if it waits too long."""
        note = self._note() if self._lost else self._publish()
        state = f"{self.step} {_status()}"
        if state != self._state or not note["in"]:
            self._state, self._since = state, time.monotonic()
        elif (waited := time.monotonic() - self._since) > self.timeout:
            self._report(waited)

    def _publish(self) -> dict[str, Any]:
        note = self._note()
        self._store.set(f"note/{self.rank}", json.dumps(note))
        if self._store.check(["abort"]):
            self._end(self._ended_by(self._store.get("abort").decode()))
        if self._owns and (self.folder / ATTEMPT).read() != self._name:
            self._end(_REPLACED)
        return note

    def _report(self, waited: float) -> None:
        """Find out who is missing, and end all processes with that."""
        if self._lost:
            self._end(f"step {self.step}: {_STORE_LOST}")
        first = self._notes()
        for _ in range(SILENT):
            time.sleep(self.beat)
            self._publish()
        if self._closed.is_set() or f"{self.step} {_status()}" != self._state:
            return
        line = found(self._notes(), first, self.rank, self.size, waited)
        winner = self._store.compare_set("abort", "", f"{self.rank} {line}").decode()
        if winner == f"{self.rank} {line}":
            self._end(line, 2 * self.beat)  # time for others to read it, where this process has the store
        self._end(self._ended_by(winner))

    @staticmethod
    def _ended_by(winner: str) -> str:
        return f"ended, because process {winner.partition(' ')[0]} found a hang"

    def _notes(self) -> dict[int, dict[str, Any]]:
        notes = {}
        for rank in range(self.size):
            if self._store.check([key := f"note/{rank}"]):
                notes[rank] = json.loads(self._store.get(key))
        return notes

    def _note(self) -> dict[str, Any]:
        self._beats += 1
        frame = _main_frame()
        return {
            "beat": self._beats, "host": socket.gethostname(), "step": self.step, "at": _place(frame),
            "in": _collective(frame),
        }  # fmt: skip

    def _end(self, line: str, later: float = 0.0) -> None:
        """Write what is known, and end the process: its main thread waits in a call that nothing else ends."""
        with self._ending:
            if self._closed.is_set():
                return
            self._ends = True
            note = self._note()
            print(
                f"error: {line}" if self.rank == 0 else f"error (process {self.rank}): {line}",
                file=sys.stderr,
                flush=True,
            )
            writing = threading.Thread(target=self._dump, args=(line, note), daemon=True)
            writing.start()
            writing.join(10)
            time.sleep(later)
            sys.stdout.flush()
            os._exit(1)

    def _dump(self, line: str, note: dict[str, Any]) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        threads = {
            names.get(number, str(number)): traceback.format_stack(frame)
            for number, frame in sys._current_frames().items()
        }
        content = {
            "line": line,
            **note,
            "threads": threads,
            "flight_recorder": [_recorded(dump) for dump in _dumps()],
        }
        with suppress(Exception):
            file = self.folder / f"hangs/step-{self.step:06d}/rank-{self.rank}.json"
            file.write(json.dumps(content, indent=1).encode())


def connection_lost(error: RuntimeError, watch: Watch | None) -> WorkError | None:
    """The error as a line, if it is that a collective failed: another process is gone, or did not come."""
    text = str(error)
    if not isinstance(error, torch.distributed.DistError) and not any(
        name in text for name in ("gloo", "NCCL")
    ):
        return None
    step = 0
    if watch:
        watch.give_way()
        step = watch.step
    # Without the place in PyTorch's sources before it and the advice after it.
    reason = re.sub(r"^\[[^]]*\] *", "", text.strip().splitlines()[0]).partition(". ")[0]
    return WorkError(f"step {step}: the connection to another process is lost: {reason}")


def found(
    notes: dict[int, dict[str, Any]], before: dict[int, dict[str, Any]], rank: int, size: int, waited: float
) -> str:
    """What process `rank`, which has waited so long, says by two readings of the notes of all."""
    mine = notes[rank]
    line = f"step {mine['step']}: process {rank} has waited {waited:.0f} s in {mine['in']} ({mine['at']}); "
    silent = [n for n in range(size) if n not in notes or notes[n]["beat"] == before.get(n, {}).get("beat")]
    if silent:
        return f"{line}missing: " + _list([f"{_who(n, notes)}, no sign of life" for n in silent])
    outside = [n for n in range(size) if not notes[n]["in"]]
    if outside:
        return f"{line}missing: " + _list(
            [f"{_who(n, notes)}, which is at step {notes[n]['step']} in {notes[n]['at']}" for n in outside]
        )
    others = [f"{_who(n, notes)} in {notes[n]['in']} ({notes[n]['at']})" for n in range(size) if n != rank]
    return f"{line}all processes wait, in different collectives: " + _list(others)


def _who(rank: int, notes: dict[int, dict[str, Any]]) -> str:
    return f"process {rank} on {notes[rank]['host']}" if rank in notes else f"process {rank}"


def _list(parts: list[str]) -> str:
    rest = len(parts) - NAMED
    return "; ".join(parts[:NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _dumps() -> list[Any]:
    """The flight recorders of this build of PyTorch: of gloo, and of NCCL."""
    found = vars(torch._C._distributed_c10d)
    return [found[name] for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json") if name in found]


def _recorded(dump: Any, entries: bool = True) -> dict[str, Any]:
    return dict(json.loads(dump(entries, False)))


def _status() -> list[dict[str, Any]]:
    return [_recorded(dump, False).get("pg_status", {}) for dump in _dumps()]


def _counts() -> Iterator[tuple[int, int]]:
    """(enqueued, completed) collectives of each group."""
    for groups in _status():
        for group in groups.values():
            yield int(group["last_enqueued_collective"]), int(group["last_completed_collective"])


def _in_collective() -> bool:
    return any(enqueued > completed for enqueued, completed in _counts()) or _communicates(_main_frame())


def _collective(frame: FrameType | None) -> str:
    """The collective that this process waits in, in words; "" if it is in none."""
    if frame is not None and any(part in frame.f_code.co_filename for part in _OWN_THREADS):
        return ""  # it waits for a thread of its own, such as one that writes a checkpoint
    if any(enqueued > completed for enqueued, completed in _counts()):
        for dump in _dumps():
            for entry in _recorded(dump).get("entries", []):
                if not entry["retired"] and entry["state"] != "completed":
                    name, sizes = entry["profiling_name"].partition(":")[2], entry["input_sizes"]
                    shape = " and ".join(f"{size}" for size in sizes[:2]) or "nothing"
                    return (
                        f"{name} of {shape} {' '.join(entry['input_dtypes'][:1]).lower()}, number"
                        f" {entry['collective_seq_id']} of group {entry['process_group'][1]}"
                    )
    return frame.f_code.co_name if frame is not None and _communicates(frame) else ""


def _communicates(frame: FrameType | None) -> bool:
    """Whether a thread waits for what it sends or receives, which is not in the flight recorder of gloo."""
    return frame is not None and any(part in frame.f_code.co_filename for part in _SENDING)


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _place(frame: FrameType | None) -> str:
    """The innermost line of a thread that is in no library, such as `step.py:92 train_step`."""
    while frame is not None:
        file = frame.f_code.co_filename
        library = "site-packages" in file or file.startswith((_STANDARD, "<frozen"))
        if file.startswith(_PACKAGE) or not library:
            return f"{Path(file).name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "a library"
