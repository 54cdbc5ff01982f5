"""Telephone numbers of which some digits are hidden: `138****5678`, `+34 6** *** *12`, `###-###-1234`.

They are no number that could be dialled, but with what else a text says they may be enough to recognise a person: a kind of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from corpusmill.pipeline.redact import Hit, after, before, context, phone_words

_REACH = 32
_LEFT = re.compile(
    rb"(?<![A-Za-z0-9*#])[+(]{0,2}(?:[0-9*xX#]|\xe2\x80\xa2)(?:[0-9*xX#()]|\xe2\x80\xa2|[ .-](?=[0-9*xX#(+)]|\xe2\x80\xa2))*$"
)
_RIGHT = re.compile(rb"(?:[0-9*xX#()]|\xe2\x80\xa2|[ .-](?=[0-9*xX#(]|\xe2\x80\xa2))*")
_GROUPS = re.compile(rb"[^ .()-]+")
# Of shapes that are telephones without a word: NANP, mobile numbers of China, with the middle hidden.
_NANP, _CHINA = (3, 3, 4), re.compile(rb"1[3-9][0-9]\*{4}[0-9]{4}")


def masked_phones(buffer: bytes, start: int, end: int) -> Iterator[Hit]:
    """The masked number around the digits from `start` to `end`: seven to fifteen signs of which at least three are hidden and
    two are not, by its shape or beside a word about telephones."""
    left = _LEFT.search(before(buffer, start + 1, _REACH))
    right = _RIGHT.match(after(buffer, end, _REACH))
    low = start - (len(left.group()) - 1 if left else 0)
    high = end + (right.end() if right else 0)
    while high > end and buffer[high - 1] in b" .-(":
        high -= 1
    value = buffer[low:high].replace(b"\xe2\x80\xa2", b"*")
    signs = value.strip(b"+(").replace(b"(", b"").replace(b")", b"")
    groups = _GROUPS.findall(signs)
    bare = b"".join(groups)
    hidden = {sign for sign in bare if sign not in b"0123456789"}
    count = sum(sign in hidden for sign in bare)
    if not (7 <= len(bare) <= 15 and count >= 3 and len(bare) - count >= 2) or len(hidden) != 1:
        return
    if _touched(buffer, low, high) or [len(group) for group in groups] == [
        3,
        2,
        4,
    ]:  # a social security number
        return
    near = bool(phone_words.words_in(context(buffer, low, 40).lower()))
    shape = tuple(len(group) for group in groups)
    shape = shape[1:] if len(shape) == 4 and groups[0] in (b"1", b"001") else shape
    if hidden <= {ord("x"), ord("X"), ord("#")} and not near:
        return
    if near or value.startswith(b"+") or shape == _NANP or _CHINA.fullmatch(bare):
        yield Hit(low, high, "masked_phone")


def _touched(buffer: bytes, low: int, high: int) -> bool:
    left, right = before(buffer, low, 1), after(buffer, high, 1)
    return bool(
        (left and (left.isalnum() or left in b"_*/@=")) or (right and (right.isalnum() or right in b"_*@=/"))
    )
