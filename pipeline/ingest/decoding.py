"""Bytes to text: the encoding declared or detected, and bytes that are no text replaced where they are few."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from corpusmill.pipeline.ingest.encodings import SINGLE_BYTE, detect, unmarked_utf

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARKS = tuple(bom for bom, _ in _BOMS)
# The controls that a text may not hold; tab and line ends are no such.
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_ASCII_CONTROLS = bytes(code for code in range(128) if CONTROL.match(chr(code)))
_C1 = re.compile("[\x80-\x84\x86-\x9f]")  # controls that a wrong single-byte encoding gives
_PUNCTUATION = frozenset("‘’‚“”„†‡•…‰‹›«»–—€£¥§©®°·´¿¡½¼¾²³ºª×÷\xa0\xad")
_SAMPLE_CHARS = 65_536
_MARK_IN_DOUBT = 8  # bytes behind a byte order mark that can contradict it
# A lead byte of UTF-8 and at least one that may follow it, but not as many as it asks for.
_CUT_SHORT = re.compile(
    rb"(?:[\xe1-\xef][\x80-\xbf]|[\xf1-\xf3][\x80-\xbf]{1,2}|\xe0[\xa0-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]?)(?![\x80-\xbf])"
)


REPLACED = "replaced by U+FFFD"
MAX_REPLACED = 0.01  # of a text's characters: default of `ingest.max_replaced`


class Decoded(NamedTuple):
    """`repaired` names what had to be repaired (the encoding found in place of the one expected, or `replaced`: bytes that are
    no text became U+FFFD), or None; `note` says it in words, with the place."""

    text: str
    repaired: str | None = None
    note: str | None = None


class Undecodable(ValueError):
    """No encoding fits. `position` is the first byte that is not UTF-8; `reason` holds no content."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position, self.reason = position, reason


def decode(data: bytes, declared: str | None = None, max_replaced: float = MAX_REPLACED) -> Decoded:
    """`data` as text: by its BOM, as UTF-8, as `declared`, else in the encoding that is detected, if that gives plausible text.

    Bytes that are no text in an encoding that otherwise fits become U+FFFD, one for each place, as long as they are at most
    `max_replaced` of the characters. Raises `Undecodable`. UTF-8 goes before a declaration of another encoding: text in one that
    happens to be valid UTF-8 is rare, and a wrong declaration is not.
    """
    marked = None
    if data.startswith(_MARKS):
        marked = next((bom, encoding) for bom, encoding in _BOMS if data.startswith(bom))
    if marked is not None:
        return _marked(data[len(marked[0]) :], marked[1], max_replaced)
    declared = codec_name(declared)
    if declared and not declared.startswith(("utf-8", "ascii", "cp1252")):
        try:
            as_declared = data.decode(declared)
        except UnicodeError:
            pass
        else:
            if declared.startswith(("utf", "iso2022", "hz")):
                return _checked(as_declared)
            try:
                return _found(data.decode("utf-8"), None if data.isascii() else "utf-8")
            except UnicodeDecodeError:
                return _checked(as_declared)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _detected(data, error.start, declared, max_replaced)
    if _many_controls(text) and (
        unmarked := _unmarked(data)
    ):  # many characters' UTF-16 is two bytes of ASCII
        return unmarked
    escaped = _escaped_encoding(data) if declared is None else None
    if escaped is not None:
        return escaped
    return _checked(text, "utf-8" if declared not in (None, "utf-8") and not text.isascii() else None)


def _marked(data: bytes, encoding: str, max_replaced: float) -> Decoded:
    """What follows a byte order mark; UTF-8 behind the mark of another encoding is UTF-8."""
    if not encoding.startswith("utf-8") and len(data) >= _MARK_IN_DOUBT and unmarked_utf(data) is None:
        try:
            return _found(_checked(data.decode("utf-8")).text, "utf-8")
        except ValueError:
            pass
    try:
        return _checked(data.decode(encoding))
    except UnicodeDecodeError as error:
        return _replaced(data.decode(encoding, "replace"), encoding, error.start, max_replaced)


def _detected(data: bytes, position: int, declared: str | None, max_replaced: float) -> Decoded:
    """Bytes that are not UTF-8 from `position` on."""
    lossy = data.decode("utf-8", "replace")
    broken = lossy.count("\ufffd")
    # A lead byte with some of those that must follow it is UTF-8 cut short; no other encoding has many of them.
    cut = sum(1 for _ in _CUT_SHORT.finditer(data)) if broken else 0
    valid = sum(1 for char in lossy if char > "\x7f") - broken
    if valid + 3 * min(cut, broken) >= broken + 2:
        return _replaced(lossy, "utf-8", position, max_replaced)
    if unmarked := _unmarked(data):
        return unmarked
    for encoding in dict.fromkeys(filter(None, (declared, detect(data, max_replaced), "cp1252"))):
        if encoding in ("utf-8", "ascii"):
            continue
        text = data.decode(encoding, "replace")
        places = text.count("\ufffd")
        if places and encoding in SINGLE_BYTE and encoding != declared:
            continue  # a byte that a page of single bytes has no letter for says that it is another
        if places <= _most_replaced(text, max_replaced) and _plausible(text.replace("\ufffd", "")):
            if places:
                return _replaced(text, encoding, _first_broken(data, encoding), max_replaced)
            return _found(text, None if encoding == declared else encoding)
    raise Undecodable(
        position, f"not UTF-8 from byte {position} on, and no other encoding gives plausible text"
    )


def _unmarked(data: bytes) -> Decoded | None:
    """The text of UTF-16 or UTF-32 without a mark; a last unit that is cut off is left out."""
    encoding = unmarked_utf(data)
    if encoding is None:
        return None
    whole = data[: len(data) - len(data) % (4 if "32" in encoding else 2)]
    try:
        text = whole.decode(encoding)
    except UnicodeError:
        return None
    return None if _many_controls(text) or not _plausible(text) else _found(text, encoding)


def _escaped_encoding(data: bytes) -> Decoded | None:
    """ISO-2022 and HZ, which are ASCII with escape sequences."""
    if b"\x1b$" not in data and b"~{" not in data:
        return None
    encoding = detect(data)
    if encoding is None or not encoding.startswith(("iso2022", "hz")):
        return None
    try:
        text = data.decode(encoding)
    except UnicodeError:
        return None
    return None if text.isascii() or not _plausible(text) else _found(text, encoding)


def _found(text: str, encoding: str | None) -> Decoded:
    return Decoded(text, encoding, encoding and f"read as {encoding}")


def _first_broken(data: bytes, encoding: str) -> int:
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _most_replaced(text: str, max_replaced: float) -> float:
    """Places of a text that may be U+FFFD: one always, unless none is allowed."""
    return max(1.0, max_replaced * len(text)) if max_replaced else 0.0


def _replaced(text: str, encoding: str, position: int, max_replaced: float) -> Decoded:
    """`text` with its U+FFFD for bytes that are no text, if they are few."""
    places = text.count("\ufffd")
    if _many_controls(text) or places > _most_replaced(text, max_replaced):
        share = f"{places / max(len(text), 1):.1%} of its characters; allowed: {max_replaced:.1%}, ingest.max_replaced"
        raise Undecodable(
            position, f"{encoding} with {places} broken places, the first at byte {position} ({share})"
        )
    some = "1 place" if places == 1 else f"{places} places"
    note = f"{some} of bytes that are no {encoding} {REPLACED}, the first at byte {position}"
    return Decoded(text, "replaced", note)


def _checked(text: str, repaired: str | None = None) -> Decoded:
    """The decoded text; raises `Undecodable` if it is mostly control characters."""
    if controls := _many_controls(text):
        raise Undecodable(
            0, f"{controls} of the first {min(len(text), _SAMPLE_CHARS)} characters are control characters"
        )
    return _found(text, repaired)


def _many_controls(text: str) -> int:
    """The control characters at the beginning of a text, if they are more than a tenth; else 0."""
    sample = text[:_SAMPLE_CHARS]
    if sample.isascii():
        controls = len(sample) - len(sample.encode("ascii").translate(None, _ASCII_CONTROLS))
    else:
        controls = len(CONTROL.findall(sample))
    return controls if controls * 10 > min(len(text), _SAMPLE_CHARS) else 0


def _plausible(text: str) -> bool:
    """Whether the characters beyond ASCII are what a text would hold: letters and its punctuation."""
    if _C1.search(text) or _many_controls(text) or "\ufffd" in text:
        return False
    counts = Counter(char for char in text if char > "\x7f")
    good = sum(
        n for char, n in counts.items() if char in _PUNCTUATION or unicodedata.category(char)[0] in "LMP"
    )
    return not counts or 2 * good > sum(counts.values())


@lru_cache(maxsize=256)
def codec_name(label: str | None) -> str | None:
    """Python's codec for an encoding label of the web, or None for an unknown one."""
    if not label:
        return None
    from resiliparse.parse.encoding import map_encoding_to_html5

    for name in (map_encoding_to_html5(label.strip(), False), label.strip()):
        try:
            info = codecs.lookup(name or "")
        except (LookupError, ValueError):
            continue
        if getattr(info, "_is_text_encoding", True):
            return info.name
    return None
