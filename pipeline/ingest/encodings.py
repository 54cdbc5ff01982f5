"""Which encoding bytes are in that are not UTF-8: UTF-16 and UTF-32 without a mark by their code units, all others by chardet,
whose candidates are compared by what each makes of the text.

chardet 7, https://github.com/chardet/chardet; the bench `encodings` compares it with the other detectors.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

SAMPLE_BYTES = 1 << 16  # of the data, that UTF-16 is looked for in
SAMPLE_CHARS = 20_000  # of a candidate's text, that are judged
# Encodings that files and pages are met in. Others that chardet knows (EBCDIC, DOS pages of one country) are so rare that naming
# them is wrong more often than right.
CANDIDATES: Final = (
    "cp874", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "iso8859-1", "iso8859-2",
    "iso8859-3", "iso8859-4", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-13",
    "iso8859-14", "iso8859-15", "koi8-r", "koi8-u", "kz1048", "ptcp154", "cp437", "cp850", "cp852", "cp866", "mac-roman",
    "mac-cyrillic", "tis-620", "big5hkscs", "cp932", "euc_jis_2004", "shift_jis_2004", "iso2022_jp_2", "iso2022_jp_ext", "cp949",
    "euc_kr", "iso2022_kr", "johab", "gb18030", "hz",
)  # fmt: skip
# Of candidates that are as likely and give as good a text.
_PREFERRED: Final = (
    "cp1252", "cp1251", "cp1250", "cp1256", "cp1253", "cp1254", "cp1255", "cp1257", "cp1258", "iso8859-1", "iso8859-15",
    "iso8859-2", "cp866", "koi8-r", "cp850", "cp852",
)  # fmt: skip
# Multi-byte encodings, and what else their text may be taken for.
_MULTI_BYTE: Final = {
    "gb18030": ("gb18030",), "big5hkscs": ("big5hkscs",), "cp932": ("cp932", "shift_jis_2004"), "euc_jis_2004": ("euc_jis_2004",),
    "cp949": ("cp949", "euc_kr"),
}  # fmt: skip
SINGLE_BYTE: Final = frozenset((*CANDIDATES[: CANDIDATES.index("big5hkscs")], None))
_CLOSE = 0.9  # of the best candidate's confidence: as likely
_UNKNOWN_LANGUAGE = 0.16  # the best confidence for text in a language that chardet has no model of
_GUESS = 0.05  # the best confidence that says next to nothing: only the pages of Windows, and only for text without oddity
_TOO_ODD = 0.35  # of the characters beyond ASCII: no text
_ENOUGH = 12  # bytes beyond ASCII, for that confidence to mean something
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_QUOTES = frozenset("‘’“”„«»‹›‚")
_JOINERS = frozenset("’‘–—·\xa0\xad…")  # stand between letters
_INITIALS = frozenset("ΆΈΉΊΌΎΏ")  # begin a word: words in capitals have no accents
# The most frequent ideographs of Chinese and Japanese: a good sixth of any text.
_FREQUENT = frozenset(
    "的一是不了在人有我他这中大来上个国说们为子和你地出道也时年得就那要下以生会自着去之过家学对可里后小么心多天而能好都然没日于起还发成事"
    "只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此實會來說這們為國時過學對裡後發"
)


def detect(data: bytes, max_replaced: float = 0.0) -> str | None:
    """The encoding that `data`, which is not UTF-8, most likely is in, as a name of Python's; None if none fits.

    `max_replaced`: share of the characters that may be in none, if the rest is in a multi-byte encoding.
    """
    found = unmarked_utf(data) or _legacy(data)
    if max_replaced and found in SINGLE_BYTE:
        return _damaged_multi_byte(data, max_replaced) or found
    return found


def _damaged_multi_byte(data: bytes, max_replaced: float) -> str | None:
    """The multi-byte encoding of data that without its few broken places is detected as in that encoding."""
    if 4 * len(_HIGH.findall(data, 0, SAMPLE_BYTES)) < min(len(data), SAMPLE_BYTES):
        return None  # of text in those encodings most bytes are beyond ASCII
    for name, like in _MULTI_BYTE.items():
        text = data.decode(name, "replace")
        if text.count("\ufffd") <= max(1, max_replaced * len(text)):
            try:
                rest = text.replace("\ufffd", "").encode(name)
            except UnicodeError:
                continue
            if _legacy(rest) in like:
                return name
    return None


def unmarked_utf(data: bytes) -> str | None:
    """UTF-16 or UTF-32 without a byte order mark, as `utf-16-le` and so on; None if it is neither.

    In UTF-16 of an alphabet the upper bytes are few; in that of ideographs the text has their punctuation or the frequent
    ones. Read in the wrong order, or made of text in another encoding, it has neither.
    """
    if len(data) < 8:
        return None
    if data.count(0, 0, 1024) >= min(len(data), 1024) // 2:
        units = np.frombuffer(data[: min(SAMPLE_BYTES, len(data)) & ~3], np.uint8).reshape(-1, 4)
        for order, name in ((units, "utf-32-le"), (units[:, ::-1], "utf-32-be")):
            if not order[:, 3].any() and (order[:, 2] <= 0x10).all() and order[:, 0].any():
                return name
    found = {
        name: share
        for name, kind in (("utf-16-le", "<u2"), ("utf-16-be", ">u2"))
        if (
            share := _utf16_share(
                np.frombuffer(data[: SAMPLE_BYTES & ~1], kind, count=min(len(data), SAMPLE_BYTES) // 2)
            )
        )
    }
    return max(found, key=lambda name: found[name]) if found else None


def _utf16_share(units: npt.NDArray[np.uint16]) -> float:
    """The share of UTF-16 code units that any text has many of (ASCII, punctuation, frequent ideographs); 0 if they are no
    text."""
    control = ((units < 0x20) & (units != 9) & (units != 10) & (units != 13)) | (
        (units >= 0x7F) & (units < 0xA0)
    )
    if control.mean() > 0.02:
        return 0.0
    latin = bool(
        ((units >= 0x20) & (units < 0x7F)).mean() > 0.5
    )  # may have symbols of fonts in the private use area
    blocks = np.bincount(units >> 8, minlength=256)
    private = int(blocks[0xE0:0xF9].sum())
    if not latin and private > 0.02 * len(units):
        return 0.0
    own = np.sort(blocks[1:0x30])[::-1]
    alphabet = blocks[0] + own[:5].sum() + (private if latin else 0)
    wide = _between(units, 0x3000, 0x3100) | _between(units, 0xFF00, 0xFFF0) | (units < 0x7F)
    east = wide | _between(units, 0x4E00, 0xA000) | _between(units, 0xAC00, 0xD7A4)
    if max(alphabet / len(units), float(east.mean())) < 0.95:
        return 0.0
    sample = units.astype("<u2").tobytes()[: 2 * SAMPLE_CHARS].decode("utf-16-le", "replace")
    categories = {"Cn", "Cc", "Cs"} | (set() if latin else {"Co"})
    foreign = sum(1 for char in sample if char not in "\t\n\r" and _category(char) in categories)
    if foreign > 0.01 * len(sample):
        return 0.0
    common = float((wide | _between(units, 0x2010, 0x2030)).mean())
    frequent = sum(1 for char in sample if char in _FREQUENT) / len(sample)
    if blocks[0] + own[0] >= 0.9 * len(units):  # one alphabet, which may be written without spaces
        return 1 + common
    return common + frequent if common >= 0.02 or frequent >= 0.15 else 0.0


def _between(units: npt.NDArray[np.uint16], low: int, end: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (units >= low) & (units < end)
    return found


def _legacy(data: bytes) -> str | None:
    """By chardet: of the encodings that it holds nearly as likely as the best, the one whose text is least odd."""
    from chardet import detect_all

    likely = [
        (str(found["encoding"]), float(found["confidence"]))
        for found in detect_all(
            data, include_encodings=CANDIDATES, compat_names=False, empty_input_encoding="cp1252"
        )
        if found["encoding"]
    ]
    if likely and likely[0][1] < _GUESS:
        likely = [(name, confidence) for name, confidence in likely if name.startswith("cp125")]
    if not likely:
        return None
    best, close = likely[0][1], _CLOSE
    too_odd = _TOO_ODD if best >= _GUESS else 0.0
    if best < _UNKNOWN_LANGUAGE and len(_HIGH.findall(data, 0, SAMPLE_BYTES)) >= _ENOUGH:
        likely, close = [("cp1252", best), *likely], 0.5
    ranked: list[tuple[float, int, str, str]] = []
    for name, confidence in dict(reversed(likely)).items():
        text = _strictly(data, name) if confidence >= close * best else None
        if text is None or (oddity := round(_oddity(text), 4)) > too_odd:
            continue
        preferred = _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED)
        # What chardet holds less likely must be less odd by as much.
        ranked.append((oddity + 2 * (1 - confidence / best), preferred, name, text))
    if not ranked:
        return None
    *_, name, text = min(ranked)
    return next((known for known in _PREFERRED if _strictly(data, known) == text), name)


def _strictly(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


_HIGH = re.compile(rb"[\x80-\xff]")


def _oddity(text: str) -> float:
    """How many of the characters beyond ASCII stand where no text has them, as a share: a symbol within a word, a capital after
    a small letter."""
    odd, seen = 0.0, 0
    for match in _BEYOND_ASCII.finditer(text, 0, SAMPLE_CHARS):
        at, char, seen = match.start(), match[0], seen + 1
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        within = before.isalpha() and after.isalpha()
        kind = _category(char)
        if kind[0] in "LM":
            if _alphabet(char) and (
                (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
            ):
                odd += 3
            elif kind == "Lu":
                odd += before.isalpha() and (before.islower() or char in _INITIALS)
            elif kind == "Ll":
                odd += 0.5 * (within and before.isupper() and after.isupper())
            elif char in "ªº":
                odd += 0.7 if before.isalpha() else 0.2
        elif kind == "Cc":
            odd += 3
        elif char in _JOINERS:
            odd += 0.8 * (within and char in "–—·\xa0…")
        elif char in _QUOTES:
            odd += within
        else:
            odd += 1 if before.isalpha() or after.isalpha() else 0.4
    return odd / seen if seen else 0.0


@lru_cache(maxsize=65_536)
def _alphabet(char: str) -> bool:
    """Whether a letter is of an alphabet that no word shares with Latin letters."""
    return unicodedata.name(char, "").startswith(("GREEK", "CYRILLIC", "ARABIC", "HEBREW", "THAI"))


@lru_cache(maxsize=65_536)
def _category(char: str) -> str:
    return unicodedata.category(char)
