"""What stands before and behind a telephone number: labels, requests to call, lists, and words about numbers of other kinds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from corpusmill.pipeline.redact import ALNUM, before, context, phone_words

LEFT = 64  # bytes before a number in which its label is looked for
# All patterns read bytes whose ASCII letters are small. `kernels.hints` knows the first bytes of each word here, and passes nothing
# without one.
_PUNCTUATION = rb"(?:[ \t./&(),:;=#*|\"'>\[-]|\xc2\xa0|\xc2[\xab\xb0\xba]|\xe2\x80[\x93\x94]|\xef\xbc\x9a)"
# What may stand between a label and its number: then any grouping will do, of any country's plan or none.
_TO_NUMBER = re.compile(
    rb"(?:" + _PUNCTUATION + rb"{0,3}(?:" + phone_words.qualifiers() + rb"(?![a-z])|\([^()0-9\n]{1,24}\))){0,4}" + _PUNCTUATION + rb"{0,5}$"
)  # fmt: skip
# A request that has the same effect.
_REQUEST = re.compile(
    rb"(?:\b(?:call(?:ed|ing|s)?|reach(?:ed)?|text(?:ed)?|ring|rang|dial(?:l?ed|ing)?|phoned)(?: me| us| him| her| them| back)?"
    rb"(?: on| at| from)?:?|\b(?:my|his|her|their|our|your) (?:new )?number is:?"
    rb"|\b(?:[ms][iu]|nuestro) n\xc3\xbamero es:?(?: el)?|\b(?:answer(?:ing|s|ed)? (?:on|at)|messages? to))\s{0,3}$"
)
_REQUEST_ENDS = frozenset(
    b"ll ed ng ls ch xt ng al me us im er em ck on at om is es el to".split()
)  # of any of them
# A label, what it is of, and a colon: `Phone of the ward: …`. What follows may be a count of telephones.
_TO_COLON = re.compile(rb"[^0-9\n:]{1,32}:[ \t]{0,3}$")
# Numbers before this one in a list that has the label.
_EARLIER = re.compile(
    rb"(?:[(+]{0,2}[0-9][0-9 ()./-]{4,20}[0-9](?:[ ,]{0,2}(?:ext|x)[. ]{0,2}[0-9]{1,5})?"
    rb"[ \t]{0,2}(?:[/,;|&]|-(?= )|\b(?:y|and|or|et|ou|und|oder|e|o|i|en|of|und)\b|\xd0\xb8 |\xe3\x80\x81)[ \t]{0,2}){1,3}[(]?$"
)  # fmt: skip
_CONNECTORS = frozenset((*(bytes([c]) for c in b"/,;|&-(yedrnto\xb8\x81"),))
# A label right behind it: "… fax", "…-Office". Rooms and years have offices too, so the label must end something.
BEHIND = re.compile(
    rb"(?i)[ \t]?[-,(]?[ \t]?(?:fax|mobile|cell|phone|(?:office|work|home)(?=[\s,;.)\\]*(?:$|[\r\n,;)\\])))"
    rb"(?![a-z0-9])"
)
_OTHER = re.compile(
    phone_words.trie(
        b"isbn issn doi oclc pmid lccn arxiv ssn invoice order case ticket version section serial patent p. pp. page isin ean upc iban account"
        b" nass nhc n.h.c nif nie n.i.f d.n.i dni cif cipa colegiad col ncol expediente cuenta historia afiliaci mrn record passport licen".split()
    )
)
_OTHER_WHOLE = frozenset(
    b"doi ssn order case isin ean upc iban account nass nhc nif nie dni cif cipa mrn col p. pp.".split()
)
_GLUED = re.compile(rb"(?:^|[\s(>|/])[a-z\x80-\xff]{2,16}\.$")
_KEY = re.compile(
    rb"[\"'][ \t]?:[ \t]?[\"']?$"
)  # of a record, where much is counted by "mobile" and the like


# A letter that stands for a word, where a line or a field begins: `T. 91 330 30 00 - M. 612 345 678`.
LETTER = b"letter"
_LETTER = re.compile(
    rb"(?:^|[\n\t|/,;(-]|\xc2\xb7|\xe2\x80[\x93\x94\xa2]) ?[" + phone_words.LETTERS + rb"][.:] ?\(?$"
)


class Beside(NamedTuple):
    """What stands before a number: whether a label does, whether one does with something between, and a word about telephones
    (`LETTER` for a single letter)."""

    labelled: bool
    far: bool
    word: bytes | None

    @classmethod
    def of(cls, buffer: bytes, start: int) -> Beside:
        left = context(buffer, start, LEFT).lower()
        words = phone_words.words_in(left)
        labelled = _is_labelled(left, words)
        letter = LETTER if left[-3:].strip(b" (")[-1:] in (b".", b":") and _LETTER.search(left) else None
        if not words:
            return cls(labelled, False, letter)
        if not labelled and left.rstrip()[-1:] in _CONNECTORS and (earlier := _EARLIER.search(left)):
            labelled = _is_labelled(left[: earlier.start()], words)
        near = words[-1].word if len(left) - words[-1].end < 40 else letter
        return cls(labelled, any(word.labels and _TO_COLON.match(left, word.end) for word in words), near)


def _is_labelled(left: bytes, words: Sequence[phone_words.Word]) -> bool:
    """Whether a label or a request ends `left`, in which these words about telephones stand."""
    for word in reversed(words):
        if word.labels and word.end <= len(left) and _TO_NUMBER.match(left, word.end):
            return True
    return left.rstrip(b" \t\r\n:")[-2:] in _REQUEST_ENDS and _REQUEST.search(left) is not None


def is_other(left: bytes) -> bool:
    """Whether a word before a number speaks of numbers of another kind."""
    for match in _OTHER.finditer(left):
        start, end = match.span()
        if match.group() not in _OTHER_WHOLE or (
            (start == 0 or left[start - 1] not in ALNUM) and (end == len(left) or left[end] not in ALNUM)
        ):
            return True
    return False


def is_glued(buffer: bytes, start: int) -> bool:
    """Whether a label ends with the point right before `start`: `Tel.91 330 30 00`."""
    left = context(buffer, start, LEFT).lower()
    return _GLUED.search(left) is not None and _is_labelled(left, phone_words.words_in(left))


def is_count(buffer: bytes, start: int) -> bool:
    """Whether the value at `start` is one of a record's, where much is counted by "mobile" and the like."""
    return _KEY.search(before(buffer, start, 40)) is not None


def is_behind(right: bytes) -> bool:
    """Whether text behind a number labels it."""
    return BEHIND.match(right) is not None
