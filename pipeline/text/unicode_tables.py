"""Tables over all Unicode code points: how they are stored, their classes, and ranges written in hexadecimal.

- `pack` and `unpack`: the tables of the word rule and of datatrove's simplification, which are files of the package
  (Unicode `VERSION`), stored as runs of one class whose values lie at one distance; `write_table` makes them.
- `class_table`: bits per code point that the filter's own kernels look at; `tool_table`: bits that the rules of spaCy and
  datatrove look at; `word_break_table`: classes of UAX #29; `joins_table`: what words of the user's lists are made of;
  `lower_table`: lower case. They are made of this Python's `unicodedata`, whose version is part of the filter's key.

spaCy's classes follow its `lang/char_classes.py` (3.8): letters are those of the scripts that it lists, with case or, as in
Hebrew, Devanagari or Han, as both upper and lower case at once. datatrove's punctuation follows its `utils/text.py` (0.10).
"""

from __future__ import annotations

import unicodedata
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.stored_tables import stored

U32 = npt.NDArray[np.uint32]
VERSION: Final = "14.0.0"  # of Unicode, in the tables that are files of the package
CODE_POINTS: Final = 0x110000
BITS = 21  # of a code point: the lower bits of an entry; above them stands its class
POINT = (1 << BITS) - 1
PIECES = 4  # code points of the longest canonical decomposition
SPACE: Final = 1  # str.isspace()
ALPHA: Final = 2  # letters (general category L*)
DIGIT: Final = 4  # decimal digits of all scripts (Nd)
UPPER: Final = 8  # upper case letters (Lu)
PUNCT: Final = 16  # punctuation (P*)
TERMINAL: Final = 32  # ends a sentence in some script
CLOSER: Final = 64  # may follow the mark that ends a sentence: closing quotes and brackets
BULLET: Final = 128  # starts an item of a list
SPECIAL: Final = 256  # counted, or the rarest letter of a phrase that a rule looks for
LOWER: Final = 512  # lower case letters (Ll)
MARK: Final = 1024  # combining marks (M*)
CJK: Final = 2048  # letters of scripts written without spaces in East Asia, and Hangul
OTHER: Final = 4096  # neither white space nor letter, mark or number (N*)
LIST_MARK: Final = 8192  # starts an item of a list, as RedPajama-V2 reads it
# Bits of `tool_table`, beside SPACE, ALPHA and PUNCT of `class_table`. spaCy's English:
SPACY_LETTER: Final = 4
SPACY_LOWER: Final = 8
SPACY_UPPER: Final = 32
PREFIX: Final = 64  # cut off the front of a word
SUFFIX: Final = 128  # cut off the end of a word
BEFORE_STOP: Final = 256  # a full stop after it is cut off the end of a word
QUOTE: Final = 512
ICON: Final = 1024
# datatrove:
SYMBOL: Final = 2048  # a word of such characters alone does not count
STOP: Final = 4096  # ends a line, for FineWeb's rule
SENTENCE: Final = 8192  # a word of its own that ends a sentence (spaCy's sentencizer)
# UAX #29:
EXTEND: Final = 16384  # joins whatever stands before it
ALONE: Final = 32768  # letter or digit, a word by itself: Han, Hiragana, Thai, ...

# Classes of `word_break_table`.
(
    WB_OTHER, WB_LETTER, WB_NUMBER, WB_KATAKANA,
    WB_JOINER,  # _ and its kin
    WB_MID_LETTER, WB_MID_NUMBER, WB_MID_BOTH,
    WB_ALONE,  # a letter or digit by itself
    WB_EXTEND,
) = range(10)  # fmt: skip

# Unicode's Sentence_Terminal property, which `unicodedata` does not hold.
_STOPS = """21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736
17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D
2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1
ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143
111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38
16B44 16E98 1BC9F 1DA88"""
# Of these, marks that end no sentence for the filter's own rules, and for spaCy's sentencizer (older states of the property).
_NO_TERMINAL = "17D6 17D9-17DA 10F86-10F89 11F43-11F44"
_NO_SENTENCE = "61D-61E 837 839 83D-83E 17D4-17DA 1B7D-1B7E 2E53-2E54 10F55-10F59 10F86-10F89 11944 11946 11EF7-11EF8 11F43-11F44 16E98"
_PLANES: Final = 0x40000  # beyond the third plane there are only tags, variation selectors and private use
# Blocks of Han, Bopomofo, kana and Hangul; of these only letters count.
_CJK = """1100-11FF 2E80-2FDF 3005-3007 3021-3029 3031-303C 3041-30FF 3105-312F 3131-318E 31A0-31BF 31F0-31FF
3400-4DBF 4E00-9FFF A960-A97F AC00-D7FF F900-FAFF FF66-FFDC 1AFF0-1B16F 20000-3FFFF"""
_BULLETS = "•●*-"
_LIST_MARKS = "•‣▶◀◦■□▪▫–"
_SPECIAL = "#.…{}()[]⟨⟩,?!:jkvfp"  # see `scan.scan`; the letters in both cases
_CASED = """41-5A 61-7A C0-D6 D8-F6 F8-1BF 1C4-2AF 386 388-38A 38C 38E-38F 391-3A9 3AC-3AF 3B1-3C9 3CC-3CE 400-401
403-40A 40C-40D 410-451 453-45A 45C-45D 490-491 496-497 4A2-4A3 4AE-4AF 4BA-4BB 4D8-4D9 4E8-4E9 1D00-1D25
1D6B-1D77 1D79-1D9A 1E00-1EFF 2C60-2C7B 2C7E-2C7F A722-A76F A771-A787 A78B-A78E A790-A7B9 A7FA AB30-AB5A
AB60-AB64 FF21-FF3A FF41-FF5A"""
_UNCASED = """591-5F4 620-64A 66E-6D5 6E5-6FF 750-77F 8A0-8BD 900-9FF B80-CFF D80-DFF 1100-137F 2E80-2FDF 2FF0-30FF
31C0-31EF 3200-4DBF 4E00-9FFF AC00-D7AF F900-FAFF FB1D-FBB1 FBD3-FD3D FD50-FDC7 FDF0-FDFB FE30-FE4F FE70-FEFC
1EE00-1EEBB 1F200-1F2FF 20000-2A6DF 2A700-2EBEF 2F800-2FA1F"""
# Symbols of Unicode 12 and later, which spaCy's list of icons does not know.
_NEW_ICONS = """166D 2B97 2BC9 2BFF 2E50-2E51 32FF FD40-FD4F FDCF FDFE-FDFF 1019C 11FD5-11FF1 1CF50-1CFC3
1D1E9-1D1EA 1E14F 1ED2E 1F8B0-1F8B1 1F10D-1F10F 1F16C-1F16F 1F1AD 1F6D5-1F6D7 1F6DD-1F6DF 1F6FA-1F6FC 1F7E0-1F7F0 1F90C-1F90F 1F93F
1F971-1F972 1F977-1F979 1F97B 1F9A3-1F9AF 1F9BA-1F9BF 1F9C3-1F9CF 1FA00-1FA53 1FA70-1FBFF"""
_SPACY_PUNCT = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪"
_SPACY_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉\u2329\u232a⟦⟧"
_SPACY_CURRENCY = "$£€¥฿₽﷼₴" + "".join(map(chr, range(0x20A0, 0x20C0)))
_SYMBOLS = "!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[=-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»"
# Letters without spaces between words (line break class SA), and kana and ideographs, which UAX #29 leaves alone.
_ALONE = """E01-E3A E40-E4E E81-EDF 1000-109F 1780-17D3 17D7 17DC-17DD 1950-1974 1980-19DF 1A20-1AAD 2E80-2FDF 3005-3007
3021-3029 3038-303B 3041-3096 309D-309F 3400-4DBF 4E00-9FFF A9E0-A9FE AA60-AADF F900-FAFF 11700-1174F 16FF0-18DFF
1B001-1B11F 1B150-1B152 20000-3FFFF"""


_MID_LETTER = ":\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_MID_BOTH = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"
_KATAKANA = "3031-3035 309B-309C 30A0-30FA 30FC-30FF 31F0-31FF 32D0-32FE 3300-3357 FF66-FF9D 1AFF0-1AFFE 1B000 1B120-1B122 1B164-1B167"
# Letters to UAX #29 that `str.isalpha` does not know: marks of modification, circled letters.
_LETTERS = "2C2-2C5 2D2-2D7 2DE-2DF 2E5-2EB 2ED 2EF-2FF 55A-55C 55E 58A 5F3 2160-2188 24B6-24E9 A708-A716 A720-A721 A789-A78A AB5B"
# Blocks of scripts written without spaces: a word of these is found anywhere. Thai and Lao, Tibetan, Myanmar, Khmer,
# Hiragana to Bopomofo, Han.
_UNSPACED: Final = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF),
    (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF),
)  # fmt: skip


def pack(entries: U32, pieces: U32) -> bytes:
    """`entries` (uint32[0x110000]) and `pieces` (uint32[n, 4]) as bytes, deflated."""
    kind = (entries >> BITS).astype(np.int32)
    shift = (entries & POINT).astype(np.int32) - np.arange(CODE_POINTS, dtype=np.int32)
    starts = np.flatnonzero(np.r_[True, (np.diff(kind) != 0) | (np.diff(shift) != 0)])
    runs = np.stack([starts, kind[starts], shift[starts]]).astype("<i4")
    size = np.array([len(starts)], "<i4")
    return zlib.compress(size.tobytes() + runs.tobytes() + pieces.astype("<u4").tobytes(), 9)


def write_table(file: Path, entries: U32, pieces: U32) -> None:
    """Writes a table of the package; raises `SystemExit` if this Python has another version of Unicode."""
    if unicodedata.unidata_version != VERSION:
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}, the table is {VERSION}")
    file.write_bytes(pack(entries, pieces))


def unpack(packed: bytes) -> tuple[U32, U32]:
    """(entries, pieces) as they were given to `pack`."""
    values = np.frombuffer(zlib.decompress(packed), "<i4")
    end = 1 + 3 * int(values[0])
    starts, kind, shift = values[1:end].reshape(3, -1)
    lengths = np.diff(np.r_[starts, CODE_POINTS])
    low = np.arange(CODE_POINTS, dtype=np.int32) + np.repeat(shift, lengths)
    high = np.repeat(kind, lengths).astype(np.uint32) << BITS
    entries: U32 = high | low.astype(np.uint32)
    return entries, values[end:].astype(np.uint32).reshape(-1, PIECES)


def points(ranges: str) -> list[tuple[int, int]]:
    """(first, last + 1) of hexadecimal ranges."""
    pairs = (part.partition("-") for part in ranges.split())
    return [(int(first, 16), int(last or first, 16) + 1) for first, _, last in pairs]


def _category_bits(category: str) -> int:
    if category == "Nd":
        return DIGIT
    if category in ("Pe", "Pf"):
        return PUNCT | CLOSER | OTHER
    case = UPPER if category == "Lu" else LOWER if category == "Ll" else 0
    by_kind = {"L": ALPHA | case, "M": MARK, "N": 0, "P": PUNCT | OTHER}
    return by_kind.get(category[0], OTHER)


@stored()
def class_table() -> npt.NDArray[np.uint16]:
    """Bits per code point, uint16[0x110000], from this Python's `unicodedata`."""
    table = np.full(CODE_POINTS, OTHER, np.uint16)
    bits = {category: _category_bits(category) for category in ("Nd", "Pe", "Pf", "Lu", "Ll")}
    for point in [*range(_PLANES), *range(0xE0100, 0xE01F0)]:
        category = unicodedata.category(chr(point))
        if category not in bits:
            bits[category] = _category_bits(category)
        table[point] = bits[category]
    for point in range(0x3001):
        if chr(point).isspace():
            table[point] = table[point] & (0xFFFF ^ OTHER) | SPACE
    for first, last in points(_STOPS + " 2026"):
        table[first:last] |= TERMINAL
    for first, last in points(_NO_TERMINAL):
        table[first:last] &= ~np.uint16(TERMINAL)
    for first, last in points(_CJK):
        table[first:last] |= np.where(table[first:last] & ALPHA, CJK, 0).astype(np.uint16)
    for chars, bit in (
        ("\"'", CLOSER), (_BULLETS, BULLET), (_LIST_MARKS, LIST_MARK), (_SPECIAL + _SPECIAL.upper(), SPECIAL)
    ):  # fmt: skip
        for char in chars:
            table[ord(char)] |= bit
    return table


@stored()
def tool_table() -> npt.NDArray[np.uint16]:
    """Bits per code point, uint16[0x110000]: those that spaCy's and datatrove's rules and UAX #29 look at."""
    known = class_table()
    table = known & np.uint16(SPACE | ALPHA | PUNCT)
    for point in range(_PLANES):
        category = unicodedata.category(chr(point))
        if category == "So":
            table[point] |= ICON | PREFIX | SUFFIX
        elif category[0] == "M" or (category == "Cf" and point != 0x200B):
            table[point] |= EXTEND
    for first, last in points(_CASED):
        own = known[first:last]
        table[first:last] |= np.where(own & UPPER, SPACY_UPPER, 0).astype(np.uint16) | SPACY_LETTER
        table[first:last] |= np.where(own & LOWER, SPACY_LOWER, 0).astype(np.uint16)
    for first, last in points(_NEW_ICONS):
        table[first:last] &= ~np.uint16(ICON | PREFIX | SUFFIX)
    table[0x0294] |= SPACY_LOWER
    for text, what in (
        (_UNCASED, SPACY_LETTER | SPACY_LOWER | SPACY_UPPER), (_STOPS, STOP | SENTENCE | SYMBOL), (_ALONE, ALONE),
        ("0-8 B-1F 7F-9F", SYMBOL),
    ):  # fmt: skip
        for first, last in points(text):
            table[first:last] |= np.uint16(what)
    for first, last in points(_NO_SENTENCE):
        table[first:last] &= ~np.uint16(SENTENCE)
    for chars, what in (
        (_SPACY_PUNCT, PREFIX | SUFFIX | BEFORE_STOP), (_SPACY_QUOTES, PREFIX | SUFFIX | BEFORE_STOP | QUOTE),
        (_SPACY_CURRENCY, PREFIX), ("§%=—–", PREFIX), ("—–", SUFFIX), ("0123456789%²-+|", BEFORE_STOP),
        (_SYMBOLS, SYMBOL),
    ):  # fmt: skip
        for char in chars:
            table[ord(char)] |= what
    table[(table & SPACY_LOWER) != 0] |= BEFORE_STOP
    return table


@stored()
def word_break_table() -> npt.NDArray[np.uint8]:
    """Class per code point for the word breaks of UAX #29, uint8[0x110000]."""
    bits = tool_table()
    table = np.zeros(CODE_POINTS, np.uint8)
    table[(bits & ALPHA) != 0] = WB_LETTER
    for text, own in ((_LETTERS, WB_LETTER), (_KATAKANA, WB_KATAKANA)):
        for first, last in points(text):
            table[first:last] = own
    table[(bits & EXTEND) != 0] = WB_EXTEND
    for point in range(0x20000):
        category = unicodedata.category(chr(point))
        if category == "Nd":
            table[point] = WB_NUMBER
        elif category == "Pc":
            table[point] = WB_JOINER
        elif category[0] == "N" and table[point] == WB_OTHER:
            table[point] = WB_ALONE
    table[((bits & ALONE) != 0) & (table == WB_LETTER)] = WB_ALONE
    for chars, own in ((_MID_LETTER, WB_MID_LETTER), (_MID_NUMBER, WB_MID_NUMBER), (_MID_BOTH, WB_MID_BOTH)):
        for char in chars:
            table[ord(char)] = own
    table[0x066B], table[0x202F] = WB_NUMBER, WB_JOINER
    table[0x1F3FB:0x1F400] = WB_EXTEND
    return table


@lru_cache(maxsize=1)
def joins_table() -> npt.NDArray[np.uint8]:
    """uint8[0x110000]: 2 for letters, numbers, marks and `_` of scripts with spaces between words, 1 for those of scripts
    without, else 0. Variation selectors are none of them."""
    table = np.zeros(CODE_POINTS, np.uint8)
    table[:_PLANES][class_table()[:_PLANES] & (SPACE | OTHER) == 0] = 2
    table[ord("_")] = 2
    for first, last in _UNSPACED:
        part = table[first : last + 1]
        part[part == 2] = 1
    table.flags.writeable = False
    return table


@stored()
def lower_table() -> npt.NDArray[np.int32]:
    """The lower case of each code point, int32[0x110000]; itself where that is not one code point."""
    table = np.arange(CODE_POINTS, dtype=np.int32)
    for point in range(0x20000):  # no letter with case lies beyond
        lower = chr(point).lower()
        if len(lower) == 1:
            table[point] = ord(lower)
    return table


def lower(text: str) -> str:
    """`text` in lower case, code point by code point, as the kernels read it."""
    table = lower_table()
    return "".join(chr(table[ord(char)]) for char in text)
