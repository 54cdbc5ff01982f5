"""The files below a local folder, each with its size and change tag, or with the reason why it cannot be an input."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_KINDS = {
    stat.S_IFIFO: "a FIFO (named pipe)", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}  # fmt: skip
# In a locator or a message these would break the line, move the cursor or forge other text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Found(NamedTuple):
    """A file below a folder: its path relative to it; `problem` says why it is not read, "" if it is."""

    path: str
    size: int
    tag: str
    problem: str = ""


def walk(root: Path) -> Iterator[Found]:
    """Everything below `root` that is not a folder, links followed; unreadable folders and links that lead back too.

    Hidden names and `*.tmp` are left out, folders of such names with all below them. Any order.
    """
    pending = [("", str(root), frozenset[tuple[int, int]]())]
    while pending:
        below, place, above = pending.pop()
        try:
            about = Path(place).stat()
            here = (about.st_dev, about.st_ino)
            if here in above:
                yield Found(below.rstrip("/"), 0, "", "a link that leads back to a folder above it")
                continue
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or entry.name.endswith(".tmp"):
                        continue
                    path = below + entry.name
                    try:
                        if entry.is_dir():
                            pending.append((f"{path}/", entry.path, above | {here}))
                            continue
                        yield _found(path, entry.path, entry.stat())
                    except OSError as error:
                        yield Found(path, 0, "", _unreadable(error, entry.is_symlink()))
        except OSError as error:
            yield Found(below.rstrip("/"), 0, "", _unreadable(error, False))


def look_at(path: Path) -> Found | None:
    """A path as a file of its own name; None if nothing is there, or a folder."""
    try:
        about = path.stat()
    except OSError as error:
        link = os.path.islink(path)  # noqa: PTH114 (this one never raises)
        return Found(path.name, 0, "", _unreadable(error, link)) if link else None
    return None if stat.S_ISDIR(about.st_mode) else _found(path.name, str(path), about)


def shown(path: str) -> tuple[str, str]:
    """(path as text that can be shown and stored, why it cannot be an input's: "" if it can)."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    clean = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    if text != path:
        return clean, "its name is not UTF-8; rename it"
    return clean, "" if clean == text else "its name holds control characters; rename it"


def _found(path: str, place: str, about: os.stat_result) -> Found:
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "no regular file")
        return Found(path, 0, "", f"{kind}; only regular files are read")
    if not os.access(place, os.R_OK, effective_ids=True):
        return Found(path, about.st_size, "", f"cannot be read: {os.strerror(errno.EACCES)}")
    return Found(path, about.st_size, f"{about.st_ino:x}-{about.st_mtime_ns:x}-{about.st_size:x}")


def _unreadable(error: OSError, link: bool) -> str:
    if error.errno == errno.ELOOP:
        return "a link that leads back to itself"
    if error.errno == errno.ENOENT and link:
        return "a link to nothing"
    return f"cannot be looked at: {os.strerror(error.errno or 0)}"
