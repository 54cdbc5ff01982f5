"""One owner an output: a claim in the folder, renewed while its process lives, and taken over when it does not."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import head, masked, time_left
from corpusmill.common.storage import Entry, Folder
from corpusmill.schemas.manifest import Owner

OWNER = "owner.json"
RENEWAL = 15.0  # seconds between renewals
STALE = 90.0  # seconds without a renewal after which an owner on another machine counts as gone
# Tokens of this process's claims that are in force: a claim that an interrupted block left behind has no owner.
_HELD: set[str] = set()


class Claim:
    """A folder claimed for the block: no other process writes into it.

    Raises `UserError` if another one owns it, or a folder above it. An owner of this machine is gone when its process is; one of
    another machine when it has not renewed its claim for `STALE` seconds and does not while we watch (clocks may differ).
    Where nothing can be written the block begins all the same, and `check` raises: what is finished needs no claim.
    """

    def __init__(self, folder: Folder, log: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.log = folder, log
        self.file = folder / OWNER
        me = psutil.Process()
        now = time.time()
        self.owner = Owner(
            token=secrets.token_hex(8), command=_command(), host=socket.gethostname(), machine=_machine(),
            process=me.pid, process_start=me.create_time(), since=now, renewed=now,
        )  # fmt: skip
        self._lost: Exception | None = None
        self._over = threading.Event()
        self._tag = ""
        self._thread = threading.Thread(target=self._renew, name="owner", daemon=True)

    def __enter__(self) -> Claim:
        for above in _above(self.folder):
            self._refuse(above)
        _HELD.add(self.owner.token)
        try:
            while not self.file.write_new(self.owner.to_json()):
                if self._take_over():
                    break
        except WorkError as error:
            self._lost = error  # nothing can be written here
            return self
        self._tag = self.file.entry().tag
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        _HELD.discard(self.owner.token)
        if self._thread.ident is None:
            return
        self._thread.join()
        with contextlib.suppress(Exception):
            if self._lost is None and self.file.entry().tag == self._tag:
                self.folder.delete([OWNER])

    def check(self) -> None:
        """Raise `WorkError` if the folder is no longer ours, or never could be."""
        if self._lost is not None:
            raise self._lost

    def _renew(self) -> None:
        while not self._over.wait(RENEWAL):
            self.owner = self.owner.model_copy(update={"renewed": time.time()})
            try:
                if not self.file.write_over(self.owner.to_json(), self._tag):
                    self._lost = WorkError(f"{self.folder}: {self._new_owner()}; this run stops")
                    self.log(f"error: {self._lost}")
                    return
                self._tag = self.file.entry().tag
            except Exception as error:  # the next one may succeed: there is time until the claim is stale
                self.log(f"{self.file}: the claim could not be renewed: {error}")

    def _new_owner(self) -> str:
        found = _read(self.file)
        return (
            f"taken over by {_who(found[0])}" if found else "its claim (owner.json) was deleted by somebody"
        )

    def _refuse(self, folder: Folder) -> None:
        """Raise `UserError` if somebody works in a folder above ours."""
        found = _read(folder / OWNER)
        if found and not _gone(found[0]) and time.time() - found[0].renewed < STALE:
            raise _in_use(self.folder, found[0], f" (it writes all of {folder})")

    def _take_over(self) -> bool:
        """Put our claim in place of one whose owner is gone; whether we did. False: look again."""
        found = _read(self.file)
        if found is None:
            return False
        owner, entry = found
        gone = _gone(owner)
        if gone is None:  # of another machine
            age = time.time() - owner.renewed
            if -STALE < age < STALE:
                raise _in_use(self.folder, owner, "")
            self.log(f"{self.folder}: {_who(owner)} has not renewed its claim; waiting whether it does")
            time.sleep(2 * RENEWAL)
            try:
                gone = self.file.entry().tag == entry.tag
            except FileNotFoundError:  # it is done: look again
                return False
        if not gone:
            raise _in_use(self.folder, owner, "")
        taken = self.file.write_over(self.owner.to_json(), entry.tag)
        if taken:
            self.log(f"{self.folder}: taken over from {_who(owner)}, which is gone")
        return taken


def owner_of(folder: Folder) -> Owner | None:
    """Who works in a folder now, if anybody does."""
    found = _read(folder / OWNER)
    if (
        found is None
        or _gone(found[0])
        or (_gone(found[0]) is None and time.time() - found[0].renewed > STALE)
    ):
        return None
    return found[0]


def in_use(folder: Folder, owner: Owner) -> str:
    """One line on a folder that somebody works in."""
    return (
        f"{folder}: in use by {_who(owner)}, for {time_left(time.time() - owner.since)}, last sign"
        f" {time_left(max(0.0, time.time() - owner.renewed))} ago"
    )


def _in_use(folder: Folder, owner: Owner, more: str) -> UserError:
    rest = (
        "stop that process, or give another output"
        if _gone(owner) is False
        else f"wait, or give another output; if that process is gone, its claim ends {STALE:.0f} s after its last sign"
    )
    return UserError(f"{in_use(folder, owner)}{more}; {rest}")


def _who(owner: Owner) -> str:
    return f"process {owner.process} on {owner.host} ({owner.command})"


def _gone(owner: Owner) -> bool | None:
    """Whether the owner's process has ended; None if it is one of another machine, or in another container."""
    if owner.machine != _machine():
        return None
    if owner.process == os.getpid():
        return owner.token not in _HELD
    try:
        process = psutil.Process(owner.process)
        other = abs(float(process.create_time()) - owner.process_start) > 1
        return other or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _read(file: Folder) -> tuple[Owner, Entry] | None:
    """A claim and its tag; None if there is none. Raises `UserError` if the file is something else."""
    try:
        entry = file.entry()
        data = file.read()
    except FileNotFoundError:
        return None
    try:
        return Owner.model_validate_json(data), entry
    except ValidationError:
        raise UserError(
            f"{file}: not a claim of this program; if no run works in this folder, delete the file"
        ) from None


def _above(folder: Folder) -> list[Folder]:
    """Folders in which a run may be that has this one inside: three levels at most."""
    found: list[Folder] = []
    up = folder.parent
    while up.path and len(found) < 3:
        found.append(up)
        up = up.parent
    return found


def _machine() -> str:
    """What a process id is unique in: the boot of this machine, and the namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (a link to follow)
    except OSError:
        return socket.gethostname()


def _command() -> str:
    """The command as given, short and without secrets."""
    words = [Path(sys.argv[0]).name or "python", *sys.argv[1:]]
    return head(masked(" ".join(words)), 120)
