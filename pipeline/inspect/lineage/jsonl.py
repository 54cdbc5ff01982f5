"""Where in a line of JSON the characters of a field's text lie: bytes of the line, escapes and all."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Edges = npt.NDArray[np.int64]
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_UNIT: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S
)


def field_bytes(line: bytes, field: str) -> Edges | None:
    """int64[characters + 1]: where each character of a field's string begins in a line that is a JSON object, and where
    the last ends. A later field of the same name counts, as parsers have it. None for a line that is not UTF-8, or
    where the field is no string."""
    try:
        text = line.decode()
        place = _string(text, field)
    except (ValueError, RecursionError):
        return None
    if place is None:
        return None
    start, end = place
    units = [match.end() - match.start() for match in _UNIT.finditer(text, start, end)]
    found: Edges = utf8_edges(text[:end])[start + edges_of(units)]
    return found


def edges_of(sizes: Sequence[int] | npt.NDArray[np.int64]) -> Edges:
    """int64[n + 1]: where each of n pieces of these sizes begins, and where the last ends."""
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=edges[1:])
    return edges


def utf8_edges(text: str) -> Edges:
    """Where each character of a text begins in its UTF-8, and where the last ends."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return edges_of(1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF))


def _string(text: str, field: str) -> tuple[int, int] | None:
    """(first character, one past the last) of what stands between the quotes of a field's string."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return None
    found = None
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, at = decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # the colon
        start, string = at, text[at : at + 1] == '"'
        _, at = decoder.raw_decode(text, at)
        place = (start + 1, at - 1) if string else None
        if name == field:
            found = place
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at : at + 1] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()
