"""What a value of a column holds to be read: URLs as they are meant (percent-decoded), of JSON its keys, its strings beside the keys
that name them, and its whole numbers.

A value is a row of `Slot`s: places of the raw value, the text that each stands for, and how a replacement is written there. The
`..._texts` of most values are had without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import orjson

_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}\[\]:,]')
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:\S*\Z")  # a value that is a URL
_WHOLE = re.compile(r"-?\d{7,}\Z")  # shorter numbers are none that anything is recognised in


class Scope:
    """The keys of a JSON object, read where one of them is replaced: of two addresses that become one tag, neither value may
    be lost."""

    def __init__(self, tokens: Sequence[re.Match[str]], place: int) -> None:
        self._tokens, self._place = tokens, place

    @cached_property
    def keys(self) -> set[str]:
        """Those that are there, and those that were made."""
        keys, depth = set(), 0
        for here in range(self._place, len(self._tokens) - 1):
            token = self._tokens[here].group()
            depth += (token in "{[") - (token in "}]")
            if depth == 0:
                break
            if depth == 1 and token.startswith('"') and self._tokens[here + 1].group() == ":":
                keys.add(json.loads(token))
        return keys

    def distinct(self, key: str) -> str:
        """A key that the object has not got yet."""
        made, number = key, 2
        while made in self.keys:
            made, number = f"{key} ({number})", number + 1
        self.keys.add(made)
        return made


@dataclass
class Slot:
    """Characters `start` to `end` of a raw value. `lead`: what names it, in whose context it is read. `spans`: where each
    character of `text` lies in the raw characters, with the end of the last behind it."""

    start: int
    end: int
    text: str
    lead: str = ""
    spans: Sequence[int] | None = None
    write: Callable[[str], str] = field(default=str)  # a text as it stands in a JSON string
    number: bool = False  # a JSON number: it is replaced whole, by 0
    scope: Scope | None = None  # of the object whose key this is


def plain_slots(value: str | None) -> list[Slot]:
    """The whole of a text."""
    return [Slot(0, len(value), value)] if value else []


def any_slots(value: str | None) -> list[Slot]:
    """Of a value that may be JSON, a URL or part of one, or text."""
    if value and value[0] in "{[":
        return json_slots(value)
    return url_slots(value) if value and _ESCAPES.search(value) else plain_slots(value)


def url_slots(value: str | None) -> list[Slot]:
    """The whole of a URL, percent-decoded (twice, since URLs are parameters of others), `+` of its query as a blank."""
    if not value:
        return []
    return [_url_slot(value, 0)]


def _url_slot(value: str, offset: int) -> Slot:
    spans: Sequence[int] = range(offset, offset + len(value) + 1)
    text, query = value, value.find("?")
    if query >= 0:  # `tel=+44…` is no blank
        text = value[:query] + re.sub(r"(?<=[^=/:,?&;])\+", " ", value[query:])
    for _ in range(2):
        text, spans = _decoded(text, spans)
    return Slot(offset, offset + len(value), text, spans=spans)


def _decoded(text: str, spans: Sequence[int]) -> tuple[str, Sequence[int]]:
    """One level of percent-encoding less; bytes that are no UTF-8 stay encoded."""
    if "%" not in text:
        return text, spans
    out: list[str] = []
    places: list[int] = []
    at = 0
    for match in _ESCAPES.finditer(text):
        out += text[at : match.start()]
        places += spans[at : match.start()]
        data = bytes.fromhex(match.group().replace("%", ""))
        start = 0
        while start < len(data):
            char, size = _first_character(data[start:])
            if char is None or char == "\0":
                char = text[match.start() + 3 * start : match.start() + 3 * start + 3]
                places += spans[match.start() + 3 * start : match.start() + 3 * start + 3]
            else:
                places.append(spans[match.start() + 3 * start])
            out += char
            start += size
        at = match.end()
    out += text[at:]
    places += spans[at:]
    return "".join(out), places


def _first_character(data: bytes) -> tuple[str | None, int]:
    """The character that UTF-8 bytes begin with, and its bytes; (None, 1) if they begin with none."""
    size = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    try:
        return data[:size].decode(), size
    except UnicodeDecodeError:
        return None, 1


def json_slots(value: str | None) -> list[Slot]:
    """Keys, strings and whole numbers of a JSON value; what is no JSON is plain text."""
    if not value:
        return []
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return plain_slots(value)
    return list(_json_slots(value))


def _json_slots(value: str) -> Iterator[Slot]:
    scopes: list[tuple[Scope | None, str]] = []  # of an object, None of a list; the key that leads there
    key = ""
    tokens = list(_TOKEN.finditer(value))
    for place, match in enumerate(tokens):
        token, start = match.group(), match.start()
        if token in "{[":
            scopes.append((Scope(tokens, place) if token == "{" else None, key))
        elif token in "}]":
            key = scopes.pop()[1]
        elif token == "," and scopes:
            key = "" if scopes[-1][0] is not None else scopes[-1][1]
        elif token.startswith('"'):
            text = json.loads(token)
            if not _is_text(text):
                continue
            if place + 1 < len(tokens) and tokens[place + 1].group() == ":":
                key = text
                yield Slot(start, match.end(), text, write=_string, scope=scopes[-1][0])
            elif text:
                yield _string_slot(text, token, start, key)
        elif _WHOLE.match(token):
            yield Slot(start, match.end(), token, _lead(key), number=True)


def _string_slot(text: str, token: str, start: int, key: str) -> Slot:
    end = start + len(token)
    if "\\" not in token and "%" in text and _LINK.match(text):
        slot = _url_slot(text, start + 1)
        return Slot(slot.start, slot.end, slot.text, _lead(key), slot.spans)
    return Slot(start, end, text, _lead(key), write=_string)


def _lead(key: str) -> str:
    return f"{key.replace('_', ' ')}: " if key else ""


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_text(text: str) -> bool:
    """JSON may hold halves of surrogate pairs, which are no text."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def url_texts(value: str | None) -> list[str] | None:
    """The text of the only slot of a URL in which nothing is encoded; None for others."""
    if not value:
        return []
    return None if "%" in value or ("+" in value and "?" in value) else [value]


def any_texts(value: str | None) -> list[str] | None:
    """As `any_slots`."""
    if value and value[0] in "{[":
        return json_texts(value)
    return None if value and "%" in value else [value] if value else []


def json_texts(value: str | None) -> list[str] | None:
    """The texts of `json_slots`; None where a parser's values would not show all of them (keys that are there twice, what is no
    JSON, or nested too deeply), or where there is more to do (escapes, URLs in which something is encoded)."""
    if not value:
        return []
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    texts: list[str] = []
    try:
        strings = _gather(parsed, "", texts)
    except RecursionError:
        return None
    return texts if 2 * strings == value.count('"') and "%" not in value else None


def _gather(value: Any, key: str, texts: list[str]) -> int:
    """Append the texts of a JSON value; how many strings and keys it has."""
    if isinstance(value, str):
        if value:
            texts.append(_lead(key) + value)
        return 1
    if isinstance(value, dict):
        texts += value
        return len(value) + sum(_gather(item, name, texts) for name, item in value.items())
    if isinstance(value, list):
        return sum(_gather(item, key, texts) for item in value)
    if type(value) is int and _WHOLE.match(text := str(value)):
        texts.append(_lead(key) + text)
    # A whole number of more than 64 bits has become a float, and its digits are lost: the count is made wrong on purpose.
    return int(type(value) is float and abs(value) >= 2**63)


GLANCES: Final[dict[str, Callable[[str], list[str] | None]]] = {
    "url": url_texts, "metadata": json_texts, "strings": json_texts,
    "text": lambda value: [value] if value else [],
}  # fmt: skip
SLOTS: Final[dict[str, Callable[[str], list[Slot]]]] = {
    "url": url_slots, "metadata": json_slots, "text": plain_slots,
    "strings": lambda value: [slot for slot in json_slots(value) if not slot.number],
}  # fmt: skip
