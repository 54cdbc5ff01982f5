"""What a reader of archives finds: one member, as its header has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Member:
    """A member of an archive.

    `size` is the bytes of its content, as far as the header is to be believed; `problem` says why it is not read, "" if it is.
    """

    name: str
    size: int
    content: Iterator[bytes]
    folder: bool = False
    problem: str = ""
