"""Commands in processes of their own, watched by the files that they write, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from corpusmill.common.storage import Folder
from tests.e2e.cli import published
from tests.forks import Started, launch

DOCUMENTS = 1500
THREADS = 6  # of a worker that can take tasks: 8 or more
CUT = "ingest.partition_mb=0.12"  # of the corpus: about 20 partitions, and so some hundreds of tasks


def made_up(seed: int) -> list[str]:
    """Texts, a good half of them copies or near-copies of others; short, empty and wordless ones among them."""
    generator = random.Random(seed)
    vocabulary = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(5000)]
    texts = ["", "", "one", "One", "!?", "!?", "a b c"]
    while len(texts) < DOCUMENTS:
        text = generator.choices(vocabulary, k=generator.randint(20, 400))
        texts.append(" ".join(text))
        for _ in range(generator.choice([0, 0, 1, 2, 5])):
            for _ in range(generator.randint(0, 4)):
                text[generator.randrange(len(text))] = generator.choice(vocabulary)
            texts.append(" ".join(text))
    generator.shuffle(texts)
    return texts[:DOCUMENTS]


def write_lines(file: Path, texts: Sequence[str], first: int, without: frozenset[int] = frozenset()) -> None:
    """One record a line, numbered from `first`; those of `without` are no records, so that all others keep
    their place and their ids."""
    lines = [
        "gone" if number in without else json.dumps({"id": f"n{number}", "text": text})
        for number, text in enumerate(texts, first)
    ]
    file.write_text("\n".join(lines) + "\n")


def arguments(crawl: Path, out: str | Path, *more: str, workers: int = 2, cut: str = CUT) -> list[str]:
    return [
        "dedup", str(crawl / "a.jsonl"), str(crawl / "b.jsonl"), str(out), "--id-column", "id", "--set", cut,
        "--workers", str(workers), *more,
    ]  # fmt: skip


def finished(run: Path) -> dict[str, bytes]:
    """What is published but `run.json`, which names the index; not what a writer that was killed had begun
    (`name#1`), which readers leave out."""
    return {name: data for name, data in published(run).items() if "#" not in name and name != "run.json"}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def killed_without_workers(folder: Path, pattern: str, *arguments: str | Path) -> bool:
    """`corpusmill ARGUMENTS` in one process, killed as soon as a path in `folder` fits `pattern`, or, with `!` before
    it, none does; whether it was."""
    result = launch(1, "tests.e2e.killing:kill_at", folder, pattern, *arguments, preload="commands")
    return result.codes == [-signal.SIGKILL]


def kill_at(folder: str, pattern: str, *arguments: str) -> None:
    def watch() -> None:
        while (next(Path(folder).glob(pattern.lstrip("!")), None) is None) != pattern.startswith("!"):
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGKILL)

    from corpusmill.__main__ import main

    threading.Thread(target=watch, daemon=True).start()
    sys.argv = ["corpusmill", *arguments]
    main()


class Watched:
    """A command in a session of its own, watched by the files that appear in some folders.

    `spawn`: its workers are new interpreters, which take seconds to start; else they are forked.
    """

    def __init__(self, command: Sequence[str], *folders: str, spawn: bool = False) -> None:
        self.folders = [Folder(folder) for folder in folders]
        self.pause = 0.1 if any("://" in folder for folder in folders) else 0.02  # each look costs CPU time
        self.started = time.monotonic()
        self.process = Started(
            1, "corpusmill", *command, "--quiet", preload="commands", session=True, spawn=spawn, timeout=400
        )
        (self.pid,) = self.process.pids

    def files(self) -> list[str]:
        return [entry.path for folder in self.folders for entry in folder.list()]

    def wait_for(self, count: int) -> bool:
        """Until there are so many files; whether it lives then."""
        while not self.process.ended():
            if len(self.files()) >= count:
                return not self.process.ended()
            time.sleep(self.pause)
        return False

    def workers(self, busy: bool = True) -> list[int]:
        """The process ids of its Dask workers: children that were spawned, or what a child has forked. `busy`: of those
        that have started the threads that a worker has."""
        found = []
        for child in _children(self.pid):
            with contextlib.suppress(OSError):  # a process that has ended
                spawned = b"multiprocessing.spawn" in Path(f"/proc/{child}/cmdline").read_bytes()
                for worker in [child] if spawned else _children(child):
                    if not busy or len(list(Path(f"/proc/{worker}/task").iterdir())) >= THREADS:
                        found.append(worker)
        return found

    def kill(self, whole: bool) -> None:
        """SIGKILL the driver, with all of its workers or alone."""
        (os.killpg if whole else os.kill)(self.pid, signal.SIGKILL)
        self.process.end()

    def end(self) -> tuple[int, str]:
        """Wait for its end, not for ever: (exit code, its stderr)."""
        done = self.process.end()
        return done.returncode, done.stderr

    def finish(self) -> None:
        code, error = self.end()
        assert code == 0, error


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a process that has ended
            found += map(int, task.read_text().split())
    return found


def no_one_left(group: int) -> bool:
    """Whether every process of a killed driver's group ends by itself, and soon."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    return False


def steps(files: Sequence[str]) -> set[str]:
    """The steps whose files are there: folders of `scratch` and of the output."""
    found = set()
    for path in files:
        parts = path.split("/")
        found.add(parts[1] if parts[0] in ("scratch", "records") and len(parts) > 2 else parts[0])
    return found


class Killing:
    """A command killed at random moments: one more share of the files each time."""

    def __init__(self, command: Sequence[str], *folders: str) -> None:
        self.command, self.folders = command, folders
        self.kills: list[frozenset[str]] = []  # the steps whose files were there
        self.groups: list[int] = []

    def at(self, points: Sequence[int], whole: Callable[[], bool]) -> None:
        for count in points:
            watched = Watched(self.command, *self.folders)
            if watched.wait_for(count):
                watched.kill(whole())
                self.kills.append(frozenset(steps(watched.files())))
            self.groups.append(watched.pid)

    def finish(self) -> None:
        """The command once more, to its end; nothing of the killed ones is left then."""
        Watched(self.command, *self.folders).finish()
        assert all(no_one_left(group) for group in self.groups)


def points(generator: random.Random, most: int, count: int) -> list[int]:
    """One random number in each of `count` equal parts of 1 to `most`."""
    return [1 + int(most * (i + generator.random()) / count) for i in range(count)]


class Unbroken:
    """A run that was left alone: its folder, and the most files that it ever had there."""

    def __init__(self, command: Sequence[str], *folders: str) -> None:
        watched = Watched(command, *folders)
        self.most = 0
        while not watched.process.ended():
            self.most = max(self.most, len(watched.files()))
            time.sleep(0.1)
        watched.finish()
