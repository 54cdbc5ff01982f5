"""Classes of code points that the tools' own rules look at, beyond those of the view: one table of bits.

spaCy's classes follow its `lang/char_classes.py` (3.8): letters are those of the scripts that it lists, with
case or, as in Hebrew, Devanagari or Han, as both upper and lower case at once. datatrove's punctuation
follows its `utils/text.py` (0.10), the word breaks UAX #29.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.unicode_tables import points

SPACE: Final = 1  # str.isspace()
ALPHA: Final = 2  # str.isalpha()
PUNCT: Final = 4  # general category P*
# spaCy's English
LETTER: Final = 8
LOWER: Final = 16
UPPER: Final = 32
PREFIX: Final = 64  # cut off the front of a word
SUFFIX: Final = 128  # cut off the end of a word
BEFORE_STOP: Final = 256  # a full stop after it is cut off the end of a word
QUOTE: Final = 512
ICON: Final = 1024
# datatrove
SYMBOL: Final = 2048  # a word of such characters alone does not count
STOP: Final = 4096  # ends a line, for FineWeb's rule
SENTENCE: Final = 8192  # a word of its own that ends a sentence (spaCy's sentencizer)
# UAX #29
EXTEND: Final = 16384  # joins whatever stands before it
ALONE: Final = 32768  # letter or digit, a word by itself: Han, Hiragana, Thai, ...

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
# Unicode's Sentence_Terminal; datatrove takes it whole, spaCy's sentencizer an older state of it.
_STOPS = """21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736
17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D
2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1
ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143
111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38
16B44 16E98 1BC9F 1DA88"""
_NO_SENTENCE = "61D-61E 837 839 83D-83E 17D4-17DA 1B7D-1B7E 2E53-2E54 10F55-10F59 10F86-10F89 11944 11946 11EF7-11EF8 11F43-11F44 16E98"
# Letters without spaces between words (line break class SA), and kana and ideographs, which UAX #29 leaves alone.
_ALONE = """E01-E3A E40-E4E E81-EDF 1000-109F 1780-17D3 17D7 17DC-17DD 1950-1974 1980-19DF 1A20-1AAD 2E80-2FDF 3005-3007
3021-3029 3038-303B 3041-3096 309D-309F 3400-4DBF 4E00-9FFF A9E0-A9FE AA60-AADF F900-FAFF 11700-1174F 16FF0-18DFF
1B001-1B11F 1B150-1B152 20000-3FFFF"""


@lru_cache(maxsize=1)
def bits() -> npt.NDArray[np.uint16]:
    """Bits per code point, uint16[0x110000]."""
    table = np.zeros(0x110000, np.uint16)
    cased = np.zeros(0x110000, np.bool_)
    for first, last in points(_CASED):
        cased[first:last] = True
    for point in range(0x40000):
        char = chr(point)
        category = unicodedata.category(char)
        own = 0
        if category[0] == "L":
            own |= ALPHA
        elif category[0] == "P":
            own |= PUNCT
        elif category[0] == "M" or (category == "Cf" and point != 0x200B):
            own |= EXTEND
        elif category == "So":
            own |= ICON | PREFIX | SUFFIX
        if char.isspace():
            own |= SPACE
        if cased[point]:
            own |= LETTER | (UPPER if category == "Lu" else LOWER if category == "Ll" else 0)
        table[point] = own
    for first, last in points(_NEW_ICONS):
        table[first:last] &= ~np.uint16(ICON | PREFIX | SUFFIX)
    table[0x0294] |= LOWER
    for text, what in (
        (_UNCASED, LETTER | LOWER | UPPER), (_STOPS, STOP | SENTENCE | SYMBOL), (_ALONE, ALONE), ("0-8 B-1F 7F-9F", SYMBOL),
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
    table[(table & LOWER) != 0] |= BEFORE_STOP
    table.flags.writeable = False
    return table
