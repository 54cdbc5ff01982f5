"""Readers of running text out of packages: manual pages, help, guides, verses; and of lists of words' forms.

Each yields (translators' name of the language, text) of one file, nothing if it is another kind of file.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

Text = tuple[str, str]

_FONT = re.compile(r"\\f(?:\[\w*\]|\(\w\w|.)|\\[&|^/,c]|\\s[+-]?\d+")
_GLYPHS: Final = {
    r"\-": "-", r"\(aq": "'", r"\(cq": "’", r"\(oq": "‘", r"\(lq": "“", r"\(rq": "”", r"\(bu": "", r"\(co": "", r"\e": "\\",
    r"\ ": " ", r"\~": " ", r"\(em": "—", r"\(en": "–", r"\(Fo": "«", r"\(Fc": "»", r"\(dq": '"', r"\(Bq": "„",
}  # fmt: skip
_GLYPH = re.compile("|".join(re.escape(one) for one in _GLYPHS))
_MIXED = re.compile(r"^\.(?:[BIR]{1,2}|SM|SB)\s+")  # macros whose arguments are part of the sentence
_ENGLISH_TEXT: Final = "the and this with are that from which be will not have when"
_ENGLISH: Final = frozenset(_ENGLISH_TEXT.split())


def manual(path: str, data: bytes) -> Iterator[Text]:
    """Paragraphs of a manual page (roff, compressed) in `share/man/LANGUAGE/manN`, but those left in English."""
    found = re.search(r"share/man/([^/]+)/man\d\w*/[^/]+\.gz$", path)
    if not found:
        return
    paragraph: list[str] = []
    for line in [*_unpacked(data).splitlines(), ".PP"]:
        if _MIXED.match(line):
            line = _MIXED.sub("", line).replace('"', "")
        if line.startswith((".", "'")):
            text = _roff(" ".join(paragraph))
            if len(text) > 30 and not is_english(text):
                yield found[1], text
            paragraph = []
        else:
            paragraph.append(line)


def _unpacked(data: bytes) -> str:
    """What was compressed, nothing of a damaged file."""
    try:
        return gzip.decompress(data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ""


def _roff(text: str) -> str:
    text = _GLYPH.sub(lambda match: _GLYPHS[match[0]], _FONT.sub("", text))
    return re.sub(r"\\\(..|\\\[[^\]]*\]|\\\*.", " ", text)


def is_english(text: str) -> bool:
    """Whether a paragraph was left in English: a sixth of its words are English words of grammar, "the" among them."""
    words = text.lower().split()
    return "the" in words and sum(word in _ENGLISH for word in words) * 6 >= len(words)


_PARAGRAPH = re.compile(r"<(p|para|desc|title)>(.*?)</\1>", re.DOTALL)


def page(path: str, data: bytes) -> Iterator[Text]:
    """Paragraphs of a page of help (Mallard, DocBook) in `share/help/LANGUAGE`; C is English."""
    found = re.search(r"share/help/([^/]+)/.*\.(?:page|docbook|xml)$", path)
    if found:
        for _, text in _PARAGRAPH.findall(data.decode("utf-8", "replace")):
            yield "en" if found[1] == "C" else found[1], re.sub(r"<[^<>]*>", "", text)


def guide(path: str, data: bytes) -> Iterator[Text]:
    """Paragraphs of a page in HTML, the language of which is a folder, or in the file's name."""
    name = PurePosixPath(path)
    if name.name.removesuffix(".gz").endswith(".html"):
        found = re.search(r"\.([a-z]{2}(?:-[a-z]{2})?)\.html", name.name)
        language = found[1] if found else name.parent.name
        if re.fullmatch(r"[a-z]{2}(?:[-_][A-Za-z]{2})?", language):
            text = _unpacked(data) if name.suffix == ".gz" else data.decode("utf-8", "replace")
            for part in re.findall(r"<p\b[^>]*>(.*?)</p>", text, re.DOTALL):
                clean = re.sub(r"<[^<>]*>", "", part)
                if language == "en" or not is_english(clean):
                    yield language, clean


def verses(path: str, data: bytes) -> Iterator[Text]:
    """The translations of the Quran."""
    found = re.search(r"dist/quran_([a-z]{2})\.json$", path)
    if found:
        for chapter in json.loads(data):
            for verse in chapter["verses"]:
                yield found[1], verse["translation"]


_NOT_LEMMAS: Final = (
    "hbs",
    "enm",
    "grc",
)  # Serbo-Croatian is three labels here; Middle English, Ancient Greek


def lemmas(path: str, data: bytes) -> tuple[str, list[str]] | None:
    """(language, words' forms) of a dictionary of simplemma: lzma over sorted words, each without what it shares with the one
    before it (`simplemma.strategies.dictionaries.frontcode`), followed by its lemma in a like form."""
    name = PurePosixPath(path)
    if name.suffix != ".plzma" or name.stem in _NOT_LEMMAS:
        return None
    raw = lzma.decompress(data)
    if not raw.startswith(b"SMFC1"):
        return None
    reverse = bool(raw[5] & 1)
    _, at = _varint(raw, 6)
    words, key = [], b""
    while at < len(raw):
        shared, at = _varint(raw, at)
        size, at = _varint(raw, at)
        key = key[:shared] + raw[at : at + size]
        at += size
        trim = raw[at]
        at += 1
        if trim != 254:  # 254: the lemma of the word before
            size, at = _varint(raw, at)
            at += size
        words.append((key[::-1] if reverse else key).decode("utf-8", "ignore"))
    return name.stem, words


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
