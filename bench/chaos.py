"""Kills and faults at random points of the pipeline and the trainer: how many runs survive them, and give the same bytes.

A small pipeline (nine stages, 183 published files) and a small training (60 steps, a checkpoint every 6) run in several places. Each try
disturbs one run once, at a random share of the CPU time that an undisturbed one takes (of requests, for faults of a store; of writes, for kills
within a checkpoint); the shares of a row's tries are spread evenly over the run. Then the cause is removed (disk freed, credentials valid) and the
same command is given again, once, if the run has not finished by itself.

*Survived*: finished with exit code 0, no command ended in a traceback, and none left a process behind. *Identical*: published are the same files as by an undisturbed run, each
with the same bytes apart from the durations in manifests; of a training: all rows of metrics, and the tensors of the last checkpoint. *Where*: what
the newest file belonged to when the fault came.

`python -m bench chaos --seed N [--tries 100] [--kind NAME ...]`; a try that fails leaves its folder in `chaos-failures`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench._chaos_cases import EVERY, STEPS, WRITES, Case, Setup
from bench._chaos_command import Ended, part_of, where
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.train.checkpoint.store import steps
from tests.e2e.killing import no_one_left
from tests.faults import proxy as faults
from tests.faults.proxy import Fault, Request

DRAWS = 4  # of the moment of a fault, where the run ended before it

_EXPLAINED = (
    (__doc__ or "").split("\n\n", 1)[1].rpartition("\n\n")[0].replace("\n", " ").replace("  ", "\n\n")
)


class Kind(NamedTuple):
    """A row of the table: a fault (of `_chaos_faults.FAULTS`, or of a store) to a case, and how often it is tried by default."""

    case: str
    title: str
    fault: str
    tries: int
    disk: bool = False  # on a disk of its own

    @property
    def name(self) -> str:
        return f"{self.case}: {self.title}"


KINDS = (
    Kind("pipeline", "killed (SIGKILL)", "kill all", 12),
    Kind("pipeline", "SIGTERM", "terminate", 4),
    Kind("pipeline", "Ctrl-C", "interrupt", 4),
    Kind("pipeline", "disk full", "fill disk", 5, disk=True),
    Kind("pipeline", "disk read-only", "read-only", 4, disk=True),
    Kind("pipeline with workers", "driver and workers killed", "kill all", 2),
    Kind("pipeline with workers", "driver alone killed", "kill one", 2),
    Kind("pipeline with workers", "a worker killed", "kill worker", 4),
    Kind("pipeline with workers", "a worker paused 0.5 to 3 s", "pause worker", 2),
    Kind("pipeline with workers", "SIGTERM", "terminate", 1),
    Kind("pipeline with workers", "Ctrl-C", "interrupt", 1),
    Kind("pipeline with workers", "disk full", "fill disk", 1, disk=True),
    Kind("pipeline by a scheduler", "a worker and its nanny killed", "kill node", 3),
    Kind("pipeline by a scheduler", "a worker killed", "kill worker", 2),
    Kind("pipeline into a store", "killed (SIGKILL)", "kill all", 5),
    Kind("pipeline into a store", "requests refused (429, 500, 503)", "refused", 3),
    Kind("pipeline into a store", "answers cut, connections reset", "cut", 3),
    Kind("pipeline into a store", "answers late (1 s)", "late", 2),
    Kind("pipeline into a store", "access denied until the end", "denied", 3),
    Kind("training", "killed (SIGKILL)", "kill all", 16),
    Kind("training", "killed within a checkpoint", "write", 10),
    Kind("training", "SIGTERM", "terminate", 4),
    Kind("training", "killed, and the last checkpoint damaged", "damage", 8),
    Kind("training", "disk full", "fill disk", 4, disk=True),
    Kind("training in two processes", "one killed", "kill one", 4),
    Kind("training in two processes", "both killed", "kill all", 4),
    Kind("training from a store", "requests refused (429, 500, 503)", "refused", 2),
    Kind("training from a store", "answers cut, connections reset", "cut", 2),
    Kind("training from a store", "answers late (1 s)", "late", 2),
)  # fmt: skip
STORE: dict[str, tuple[Fault, ...]] = {
    "refused": tuple(map(faults.refused, (429, 500, 503))), "cut": (faults.cut, faults.reset, faults.lost), "late": (faults.slow(1.0),),
    "denied": (faults.refused(403),),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a try; `hit` is False if the run ended before the fault, `why` says what is wrong."""

    hit: bool
    where: str = ""
    again: bool = False
    survived: bool = False
    identical: bool = False
    why: str = ""


TRIES = sum(kind.tries for kind in KINDS)


class NotPossible(Exception):
    """A fault cannot be made on this machine."""


class Try:
    """One disturbed run, in `folder`."""

    def __init__(self, setup: Setup, kind: Kind, share: float, seed: str, folder: Path) -> None:
        self.setup, self.kind, self.share, self.folder = setup, kind, share, folder
        self.case = setup.cases[kind.case]
        self.chance = random.Random(seed)
        self.folder.mkdir(parents=True)

    def outcome(self) -> Outcome:
        """Run, disturb, remove the cause, run again. Raises `NotPossible`."""
        with contextlib.ExitStack() as stack:
            if self.kind.disk:
                stack.enter_context(disk(self.folder / "at"))
            at = self.setup.place(self.case, self.folder)
            first = self._disturbed(at)
            if not first.hit:  # it had less to do than the run that was measured
                self.case.cpu = min(self.case.cpu, first.cpu)
                return Outcome(False)
            self._remove_cause(at)
            ends = [first]
            if again := any(first.codes) or self.kind.fault == "damage":
                ends.append(self.setup.run(self.case, at, None))
            return self.judged(at, ends, again)

    def judged(self, at: Path, ends: list[Ended], again: bool) -> Outcome:
        why = [f"exit codes {ends[-1].codes}: {ends[-1].error[-2000:]}"] if any(ends[-1].codes) else []
        # Of a training whose peer was killed the others may say what they saw.
        judged = ends[1:] if self.case.size > 1 else ends
        why += [f"a traceback: {ended.error[-2000:]}" for ended in judged if "Traceback" in ended.error]
        if not all(no_one_left(group) for ended in ends for group in ended.groups):
            why.append("processes were left")
        if why:
            return Outcome(True, ends[0].where, again, why="; ".join(why))
        found, wanted = self.setup.contents(self.case, at), self.case.expected
        other = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
        return Outcome(
            True,
            ends[0].where,
            again,
            True,
            not other,
            f"not the same: {', '.join(other[:5])}" if other else "",
        )

    def _disturbed(self, at: Path) -> Ended:
        fault = self.kind.fault
        with self.setup.reached(self.case) as server:
            requests = _Requests(at, self.case)
            if server:
                server.policy = requests
            if fault in STORE:
                requests.break_some(
                    self.chance, STORE[fault], int(self.share * self.case.requests), fault == "denied"
                )
                ended = self.setup.run(self.case, at, server)
                ended.hit, ended.where = requests.broken > 0, requests.where
                return ended
            moment = self.share * self.case.cpu
            if fault == "write":
                moment = 1 + int(self.share * WRITES * (STEPS // EVERY))
            elif fault == "damage":
                fault, moment = "kill all", (0.3 + 0.7 * self.share) * self.case.cpu
            ended = self.setup.run(
                self.case, at, server, at=moment, fault=fault, seed=self.chance.randrange(1 << 30)
            )
            if server:
                ended.where = part_of(requests.written)
            if self.kind.fault == "damage":
                ended.hit = ended.hit and damage(at / "run", self.chance)
            return ended

    def _remove_cause(self, at: Path) -> None:
        if self.kind.fault == "fill disk":
            (at / "filler").unlink()
        if self.kind.fault == "read-only":
            subprocess.run(["mount", "-o", "remount,rw", at], check=True)
        if self.kind.fault == "kill node":
            self.setup.add_worker()


class _Requests:
    """The policy of a proxy: some requests in a row are broken, or all from one on; what was written last is kept."""

    def __init__(self, at: Path, case: Case) -> None:
        self.at, self.case = at, case
        self.number, self.broken, self.written, self.where = 0, 0, "", ""
        self.chance, self.faults, self.window = random.Random(), tuple[Fault, ...](), range(0)
        self.lock = threading.Lock()

    def break_some(
        self, chance: random.Random, kinds: tuple[Fault, ...], first: int, to_the_end: bool
    ) -> None:
        self.chance, self.faults = chance, kinds
        self.window = range(first, sys.maxsize if to_the_end else first + chance.randint(1, 6))

    def __call__(self, request: Request) -> Fault | None:
        with self.lock:
            self.number += 1
            if self.number not in self.window:
                if request.method in ("PUT", "POST") and "/run/" in request.path:
                    self.written = request.path.partition("/run/")[2].partition("?")[0]
                return None
            if not self.broken:
                self.where = where(self.at / "run") if self.case.trains else part_of(self.written)
            self.broken += 1
            return self.chance.choice(self.faults)


def damage(run: Path, chance: random.Random) -> bool:
    """Damage a file of the last whole checkpoint; whether there is one."""
    whole = [step for step, files in steps(Folder(run)).items() if "manifest.json" in files]
    if not whole:
        return False
    file = chance.choice(sorted((run / f"checkpoints/step-{max(whole):06d}").iterdir()))
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    match chance.choice(["flipped", "flipped", "cut", "empty", "deleted"]):
        case "flipped":
            file.write_bytes(data)
        case "cut":
            file.write_bytes(data[: chance.randrange(len(data))])
        case "empty":
            file.write_bytes(b"")
        case "deleted":
            file.unlink()
    return True


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A disk of 24 MB of its own, mounted at `folder`. Raises `NotPossible`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        raise NotPossible("no disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def shares(tries: int, kinds: Sequence[Kind]) -> list[tuple[Kind, int, int]]:
    """`tries` (kind, number, of) among the kinds by their shares."""
    total, so_far, found = sum(kind.tries for kind in kinds), 0, []
    for kind in kinds:
        before, so_far = so_far, so_far + kind.tries
        count = so_far * tries // total - before * tries // total
        found += [(kind, number, count) for number in range(count)]
    return found


def attempt(setup: Setup, kind: Kind, number: int, count: int, seed: int, failures: Path) -> Outcome | None:
    """One try, with another moment where the run ended before it; None if that happens `DRAWS` times. Its folder is kept in
    `failures` if it failed."""
    for draw in range(DRAWS):
        name = f"{kind.name} {number} {draw}"
        chance = random.Random(f"{seed} {name}")
        folder = setup.folder / f"try-{checksum(name.encode())[:12]}"
        share = (number + chance.random()) / count * 0.95 * 0.9**draw
        found = Try(setup, kind, share, f"{seed} {name}", folder).outcome()
        if found.hit and not found.identical:
            shutil.copytree(folder, failures / folder.name, dirs_exist_ok=True)
            log(f"{name} (share {share:.3f}, {failures / folder.name}): {found.why}")
        shutil.rmtree(folder, ignore_errors=True)
        if found.hit:
            return found
    log(f"{kind.name}: {DRAWS} runs ended before the fault")
    return None


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(
    seed: int,
    tries: int,
    kinds: Sequence[Kind] = KINDS,
    jobs: int = 2,
    failures: Path = Path("chaos-failures"),
) -> dict[Kind, list[Outcome]]:
    """The outcomes of so many tries. Kinds that are not possible on this machine have none; Ctrl-C begins no further try."""
    planned = shares(tries, kinds)
    random.Random(seed).shuffle(planned)
    alone = [
        one for one in planned if one[0].case == "pipeline by a scheduler"
    ]  # they kill each other's workers
    work = [alone, *([one] for one in planned if one not in alone)]
    found: dict[Kind, list[Outcome]] = {kind: [] for kind in kinds if any(one[0] is kind for one in planned)}
    begun, over = itertools.count(1), threading.Event()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        setup = Setup(Path(place))
        try:
            setup.prepare({kind.case for kind in found})

            def some(part: list[tuple[Kind, int, int]]) -> None:
                for kind, number, count in part:
                    if over.is_set():
                        return
                    log(f"  {next(begun)} of {len(planned)}: {kind.name}")
                    with contextlib.suppress(NotPossible):
                        outcome = attempt(setup, kind, number, count, seed, failures)
                        found[kind] += [outcome] if outcome else []

            with ThreadPoolExecutor(jobs) as lanes:
                try:
                    for done in [lanes.submit(some, part) for part in work]:
                        done.result()
                except KeyboardInterrupt:
                    over.set()
                    lanes.shutdown(cancel_futures=True)
        finally:
            setup.close()
    return found


ORDER = ("start", "ingest", "filter", "dedup", "redact", "ledger", "split", "tokenizer", "shard", "report")


def places(outcomes: Sequence[Outcome]) -> str:
    """How many faults came where, in the order of a run."""
    counts = Counter(one.where for one in outcomes)
    rank = {name: number for number, name in enumerate(ORDER)}
    names = sorted(counts, key=lambda name: (name == "end", rank.get(name, len(ORDER)), len(name), name))
    return ", ".join(f"{name} {counts[name]}" for name in names)


def table(found: dict[Kind, list[Outcome]]) -> list[str]:
    """The table as Markdown, with a row for all."""
    lines = [
        "| run | fault | tried | run again | survived | identical | where the fault came |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    whole = [one for outcomes in found.values() for one in outcomes]
    for kind, outcomes in [*found.items(), (None, whole)]:
        name = f"{kind.case} | {kind.title}" if kind else "**all** |"
        counts = [sum(getattr(one, what) for one in outcomes) for what in ("again", "survived", "identical")]
        cells = (
            [str(len(outcomes)), *map(str, counts), places(outcomes) if kind else ""]
            if outcomes
            else ["not possible here", *[""] * 4]
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=_EXPLAINED)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other moments (default: 1)")
    parser.add_argument("--tries", type=int, default=TRIES, help=f"of all kinds together (default: {TRIES})")
    parser.add_argument(
        "--kind", nargs="*", choices=[kind.name for kind in KINDS], metavar="NAME", help="default: all"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="tries at once (default: 2)"
    )
    parser.add_argument(
        "--save", type=Path, default=Path("chaos-failures"), help="folder of tries that failed"
    )
    return parser.parse_args()


def main() -> None:
    """Print a table; exits with 1 if a try was not survived, or gave other bytes."""
    options = arguments()
    kinds = [kind for kind in KINDS if not options.kind or kind.name in options.kind]
    found = measure(options.seed, options.tries, kinds, options.jobs, options.save)
    print(f"{_EXPLAINED}\n\nSeed {options.seed}.\n")
    print("\n".join(table(found)))
    if any(not one.identical for outcomes in found.values() for one in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
