"""One try of `chaos.py`: a case is disturbed, the cause is removed, and the same command is given again."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench._chaos_cases import EVERY, STEPS, WRITES, Case, Setup
from bench._chaos_command import Ended, part_of, where
from corpusmill.common.storage import Folder
from corpusmill.train.checkpoint.store import steps
from tests.e2e.killing import no_one_left
from tests.faults import proxy as faults
from tests.faults.proxy import Fault, Request

STORE: dict[str, tuple[Fault, ...]] = {
    "refused": tuple(map(faults.refused, (429, 500, 503))), "cut": (faults.cut, faults.reset, faults.lost), "late": (faults.slow(1.0),),
    "denied": (faults.refused(403),),
}  # fmt: skip


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


@dataclass(frozen=True)
class Outcome:
    """What became of a try; `hit` is False if the run ended before the fault, `why` says what is wrong."""

    hit: bool
    where: str = ""
    again: bool = False
    survived: bool = False
    identical: bool = False
    why: str = ""


class NotPossible(Exception):
    """A fault cannot be made on this machine."""


class Try:
    """One disturbed run, in `folder`."""

    def __init__(self, setup: Setup, kind: Kind, share: float, seed: str, folder: Path) -> None:
        self.setup, self.kind, self.share, self.folder = setup, kind, share, folder
        self.case = setup.cases[kind.case]
        self.chance = random.Random(seed)
        self.folder.mkdir(parents=True)

    def outcome(self, failures: Path) -> Outcome:
        """Run, disturb, remove the cause, run again; the folder is copied to `failures` if that failed. Raises `NotPossible`."""
        with contextlib.ExitStack() as stack:
            if self.kind.disk:
                stack.enter_context(disk(self.folder / "at"))
            at = self.setup.place(self.case, self.folder)
            first = self._disturbed(at)
            if not first.hit:  # it had less to do than the run that was measured
                if self.kind.fault != "damage":
                    self.case.cpu = min(self.case.cpu, first.cpu)
                return Outcome(False)
            self._remove_cause(at)
            ends = [first]
            if again := any(first.codes) or self.kind.fault == "damage":
                ends.append(self.setup.run(self.case, at, None))
            outcome = self.judged(at, ends, again)
            if not outcome.identical:
                shutil.copytree(self.folder, failures / self.folder.name, dirs_exist_ok=True)
            return outcome

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
                fault, moment = "kill all", (0.5 + 0.5 * self.share) * self.case.cpu
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
    """Damage a file of the last whole checkpoint; False if no other one is left: such a training has to stop, and does."""
    whole = [step for step, files in steps(Folder(run)).items() if "manifest.json" in files]
    if len(whole) < 2:
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
