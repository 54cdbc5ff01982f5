"""Ways to damage one file of a finished run, in a copy whose other files are links to the original's."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

Change = Callable[[bytes, random.Random], bytes | None]  # None: cannot be done to this file


def _flip(data: bytes, draw: random.Random) -> bytes | None:
    if not data:
        return None
    at, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def _truncate(data: bytes, draw: random.Random) -> bytes | None:
    return data[: draw.randrange(1, len(data))] if len(data) > 1 else None


def _append(data: bytes, draw: random.Random) -> bytes:
    return data + draw.choice([b"\n", b" ", b"\x00", b"}"])


def _empty(data: bytes, draw: random.Random) -> bytes | None:
    return b"" if data else None


def _number(data: bytes, draw: random.Random) -> bytes | None:
    """Another digit in a number of a JSON document, which stays valid."""
    if data[:1] not in (b"{", b"["):
        return None
    numbers = list(re.finditer(rb"(?<=[:\[,\s])[1-9]\d*(?=[,\s\]}])", data))
    if not numbers:
        return None
    place = draw.choice(numbers)
    digit = b"%d" % (int(place[0][:1]) % 9 + 1)
    return data[: place.start()] + digit + data[place.start() + 1 :]


def _nested(data: bytes, draw: random.Random) -> bytes:
    return b"[" * 100_000


def _utf16(data: bytes, draw: random.Random) -> bytes | None:
    try:
        return data.decode().encode("utf-16")
    except UnicodeDecodeError:
        return None


CHANGES: dict[str, Change] = {
    "flip": _flip, "truncate": _truncate, "append": _append, "empty": _empty, "number": _number,
}  # fmt: skip
RARE: dict[str, Change] = {"nested": _nested, "utf16": _utf16}


def linked(run: Path, copy: Path) -> Path:
    """A copy of a run's folder, its files as hard links."""
    for place, _, names in os.walk(run):
        target = copy / Path(place).relative_to(run)
        target.mkdir(parents=True)
        for name in names:
            os.link(Path(place) / name, target / name)
    return copy


def put(file: Path, data: bytes) -> None:
    """Other bytes for a file, whose link to the original is cut."""
    file.unlink()
    file.write_bytes(data)


def relinked(run: Path, copy: Path, path: str) -> None:
    """The original's file again."""
    target = copy / path
    target.unlink(missing_ok=True)
    os.link(run / path, target)


def sibling(run: Path, path: str) -> str | None:
    """Another file of the same kind with other bytes: in the same folder, or of the same name in another one."""
    mine = (run / path).read_bytes()
    beside = sorted((run / path).parent.glob(f"*{(run / path).suffix}"))
    elsewhere = sorted(run.rglob(Path(path).name))
    for file in [*beside, *elsewhere]:
        if file.is_file() and file.read_bytes() != mine:
            return file.relative_to(run).as_posix()
    return None
