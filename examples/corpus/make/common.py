"""What every maker shares: deterministic writers and the measure that labels near copies."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

Record = dict[str, Any]

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r'(?:(?<=[.!?])|(?<=[.!?]["”’)]))\s+(?=["“‘(]?[A-Z])')


def words(text: str) -> list[str]:
    """Lower-cased runs of word characters: the words that `jaccard5` counts."""
    return _WORD.findall(text.lower())


def shingles(text: str, n: int = 5) -> set[tuple[str, ...]]:
    """The set of word n-grams; a text shorter than `n` words is one shingle."""
    w = words(text)
    return {tuple(w[i : i + n]) for i in range(max(1, len(w) - n + 1))}


def jaccard5(a: str, b: str) -> float:
    """Exact Jaccard similarity of two texts' word 5-grams, to six places."""
    x, y = shingles(a), shingles(b)
    return round(len(x & y) / len(x | y), 6)


def sentences(text: str) -> list[str]:
    """Split at sentence ends that a capital follows; good enough to cut prose at natural places."""
    return [s for s in _SENTENCE_END.split(text) if s]


def prose(text: str, least: int = 80) -> bool:
    """Whether a text is long and plain enough to pass the usual quality rules, so that what happens to it
    can be put down to what was planted in it."""
    tokens = text.split()
    if len(tokens) < least or any(mark in text for mark in "{}<>|\\"):
        return False
    alphabetic = sum(any(c.isalpha() for c in t) for t in tokens) / len(tokens)
    symbols = sum(text.count(mark) for mark in "#$%@=_*;&") / len(tokens)
    mean = sum(map(len, tokens)) / len(tokens)
    lines = [line for line in text.splitlines() if line.strip()]
    bullets = sum(line.lstrip().startswith(("*", "-", "•")) for line in lines) / len(lines)
    stop = len({"the", "be", "to", "of", "and", "that", "have", "with"} & set(words(text)))
    return alphabetic > 0.9 and symbols < 0.06 and 3.5 < mean < 8 and bullets < 0.2 and stop >= 4


def garble(text: str) -> str:
    """Mojibake: the text's UTF-8 bytes read as windows-1252. That code page leaves five bytes undefined,
    which browsers, and so most mojibake, read as C1 controls."""
    undefined = (0x81, 0x8D, 0x8F, 0x90, 0x9D)
    return "".join(chr(b) if b in undefined else bytes([b]).decode("cp1252") for b in text.encode())


def rank(name: str) -> bytes:
    """A fixed shuffle: sorting by this picks an even sample that no locale or file system can change."""
    return hashlib.sha256(name.encode()).digest()


def slug(text: str, limit: int = 60) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].rstrip("-")


def to_jsonl(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(r) + b"\n" for r in records)


def gz(data: bytes) -> bytes:
    # mtime 0 and no file name: the bytes depend on the content (and on zlib) alone.
    return gzip.compress(data, compresslevel=9, mtime=0)


def read_jsonl_gz(path: Path) -> list[Record]:
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
