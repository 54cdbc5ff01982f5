"""What a user names: `SHARD:BLOCK:TOKEN`, and `A-B` for a range of characters."""

from __future__ import annotations

import re
from typing import NamedTuple

from corpusmill.common.errors import UserError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_ALLOWED = (
    "wanted is SHARD:BLOCK:TOKEN, such as books-train-000003:4:1207 or books-train-000003:4:100-120;"
    " all count from 0"
)


class Address(NamedTuple):
    """Tokens `first` to `last` (that one too) of a block. `shard` is a tar's stem or its path; `block` its number in the
    tar, or its key."""

    shard: str
    block: str
    first: int
    last: int

    def __str__(self) -> str:
        tokens = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.shard}:{self.block}:{tokens}"

    @property
    def stem(self) -> str:
        """The tar's name without `.tar`."""
        return self.shard.rstrip("/").rpartition("/")[2].removesuffix(".tar")

    @property
    def path(self) -> str | None:
        """The tar's path, if the address has one in place of a stem."""
        return self.shard if "/" in self.shard or self.shard.endswith(".tar") else None


def parse(text: str) -> Address:
    """An address as a user writes it; raises `UserError` for what is none."""
    parts = text.rsplit(":", 2)
    found = _RANGE.fullmatch(parts[-1]) if len(parts) == 3 and parts[0] and parts[1] else None
    if found is None:
        raise UserError(f"{text}: not an address of tokens; {_ALLOWED}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise UserError(f"{text}: the range ends before it begins; {_ALLOWED}")
    return Address(parts[0], parts[1], first, last)


def characters(option: str, text: str) -> tuple[int, int]:
    """(first, one past the last) of `A-B`, both ends counted from 0 and `B` the last one wanted; or of one `A`. `option`
    gave it."""
    found = _RANGE.fullmatch(text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"{option} {text}: wanted is A-B, the first and the last character, such as 0-99")
    return int(found[1]), int(found[2] or found[1]) + 1
