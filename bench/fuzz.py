"""Damaged files of every format through ingest: accounts, losses, second readers, time and memory.

`python -m bench fuzz --seed N [--mutants 300] [--format NAME ...]` makes the mutants of `_fuzz_mutants.py` and holds of each
what `_fuzz_check.py` has: no exception; in = kept + removed + quarantined, each row with rule and detail, none of them with
text; no whole record lost in silence; records apart from the damage kept; what a second reader finds whole is kept or
accounted for; the same twice. Mutants are read in child processes: one that ends, hangs or takes memory fails, and is saved.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import _fuzz_mutants
from bench._fuzz_formats import FORMATS

SECONDS = 30.0  # of one mutant
MEMORY_MIB = 1024  # that the readers may take above what the process had before the first mutant
CHUNK = 50  # mutants that a process is given at a time


@dataclass
class Findings:
    """Of one format. `digest` is of all results, in order."""

    mutants: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak_mib: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    differences: Counter[str] = field(default_factory=Counter)
    digests: dict[int, str] = field(default_factory=dict)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _serve(tasks: Connection) -> None:
    """A child process: mutants by number, a message before and after each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from bench import _fuzz_check

    with tempfile.TemporaryDirectory() as place:
        before = None
        while (task := tasks.recv()) is not None:
            name, seed, number = task
            mutant = _fuzz_mutants.make(name, seed, number)
            if before is None:
                _fuzz_check.faults(_fuzz_mutants.make("warc", 0, 0), Path(place))  # imports, first use
                before = _peak_mib()
            start = time.monotonic()
            try:
                wrong, digest, differences = _fuzz_check.faults(mutant, Path(place))
            except BaseException as error:
                wrong, digest, differences = [f"{type(error).__name__}: {error}"[:300]], "", Counter()
            tasks.send((wrong, digest, differences, time.monotonic() - start, _peak_mib() - before))


class _Child:
    """A process that reads mutants; a new one after one has died, hung or grown."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.fresh = True

    def ask(self, task: tuple[str, int, int]) -> Any:
        """The child's answer, or one line on why there is none."""
        try:
            self.pipe.send(task)
            if not self.pipe.poll(SECONDS + (30 if self.fresh else 0)):
                self.process.kill()
                return f"not read within {SECONDS:.0f} s"
            self.fresh = False
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return f"the process ended with exit code {self.process.exitcode}"

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def measure(
    seed: int = 1, mutants: int = 300, formats: Sequence[str] = tuple(FORMATS), jobs: int = 2
) -> dict[str, Findings]:
    """format -> what was found in `mutants` of them, in `jobs` processes."""
    findings = {name: Findings() for name in formats}
    work: queue.SimpleQueue[tuple[str, range]] = queue.SimpleQueue()
    for name in formats:
        for first in range(0, mutants, CHUNK):
            work.put((name, range(first, min(first + CHUNK, mutants))))
    lock = threading.Lock()

    def run() -> None:
        child = _Child()
        while True:
            try:
                name, numbers = work.get_nowait()
            except queue.Empty:
                child.end()
                return
            for number in numbers:
                answer = child.ask((name, seed, number))
                if (
                    isinstance(answer, str) or answer[4] > MEMORY_MIB // 2
                ):  # on suspicion, in a process of its own
                    child.end()
                    child = _Child()
                    answer = child.ask((name, seed, number))
                with lock:
                    _note(findings[name], number, answer)
                if isinstance(answer, str) or answer[4] > MEMORY_MIB // 2:
                    child.end()
                    child = _Child()

    threads = [threading.Thread(target=run) for _ in range(max(1, jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in findings.values():
        found.failures.sort()
    return findings


def _note(found: Findings, number: int, answer: Any) -> None:
    found.mutants += 1
    if isinstance(answer, str):
        found.failures.append((number, answer))
        return
    wrong, found.digests[number], differences, seconds, mib = answer
    found.failures += [(number, one) for one in wrong]
    found.differences.update(differences)
    found.seconds += seconds
    found.slowest = max(found.slowest, seconds)
    found.peak_mib = max(found.peak_mib, mib)
    if mib > MEMORY_MIB:
        found.failures.append((number, f"{mib} MiB of memory; allowed are {MEMORY_MIB}"))


def save(name: str, seed: int, number: int, folder: Path) -> Path:
    """Write a mutant where it can be looked at."""
    mutant = _fuzz_mutants.make(name, seed, number)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{seed}-{mutant.file_name}"
    path.write_bytes(mutant.data)
    return path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants (default: 1)")
    parser.add_argument("--mutants", type=int, default=300, help="of each format (default: 300)")
    parser.add_argument(
        "--format", nargs="*", choices=list(FORMATS), default=list(FORMATS), help="default: all"
    )
    parser.add_argument("--only", type=int, help="the number of one mutant, read in this process")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: 2)"
    )
    parser.add_argument(
        "--save", type=Path, default=Path("fuzz-failures"), help="folder of mutants that fail"
    )
    return parser.parse_args()


def main() -> None:
    """Print a table; exits with 1 if anything failed."""
    options = arguments()
    if options.only is not None:
        _one(options)
        return
    findings = measure(options.seed, options.mutants, options.format, options.jobs)
    print(
        f"Seed {options.seed}, {options.mutants} mutants of each format, limits {SECONDS:.0f} s and {MEMORY_MIB} MiB each.\n"
    )
    print(
        "| format | mutants | failures | ms per mutant | slowest, s | memory above start, MiB | as the second readers |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, found in findings.items():
        compared = sum(found.differences.values())
        same = f"{found.differences['same']} of {compared}" if compared else "no second reader"
        each = 1000 * found.seconds / max(1, found.mutants)
        print(
            f"| {name} | {found.mutants} | {len(found.failures)} | {each:.1f} | {found.slowest:.2f} | {found.peak_mib} | {same} |"
        )
    print("\nDifferences to second readers, mutants:\n")
    for name, found in findings.items():
        for kind, count in sorted(found.differences.items(), key=lambda entry: -entry[1]):
            if count and kind != "same":
                print(f"- {name}: {kind}: {count}")
    failed = [(name, number, what) for name, found in findings.items() for number, what in found.failures]
    for name, number, what in failed:
        path = save(name, options.seed, number, options.save)
        print(f"{name} {number}: {what}", file=sys.stderr)
        print(
            f"  {path}: python -m bench fuzz --seed {options.seed} --format {name} --only {number}",
            file=sys.stderr,
        )
    if failed:
        sys.exit(1)


def _one(options: argparse.Namespace) -> None:
    from bench import _fuzz_check

    (name,) = options.format
    mutant = _fuzz_mutants.make(name, options.seed, options.only)
    with tempfile.TemporaryDirectory() as place:
        wrong, digest, differences = _fuzz_check.faults(mutant, Path(place))
    print(
        f"{mutant.file_name}: {', '.join(mutant.damage) or 'no damage'}; {digest[:16]}; {dict(+differences)}"
    )
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
