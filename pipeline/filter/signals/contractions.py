"""Words that spaCy's English tokenizer knows as they are: contractions that it takes apart, abbreviations and
emoticons that it leaves whole (`spacy/lang/en/tokenizer_exceptions.py` and `spacy/lang/tokenizer_exceptions.py`,
3.8, MIT), and the units that it cuts off after a digit. As hash tables of byte strings for `spacy_words.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.words import hash_of

_PRONOUNS = "he i it she they we you"
_WORDS = "that there these this those what when where who why how"
_AUX = "ca could did does do had may might must need ought sha should wo would"
# endings -> the words that take them; each also with a capital, with ’ for ', and, unless the result is in `_KEEP`,
# without the apostrophe.
_ENDINGS: Final = {
    "'d": f"{_PRONOUNS} {_WORDS}",
    "'d 've": f"{_PRONOUNS} {_WORDS}",
    "'ll": f"{_PRONOUNS} {_WORDS}",
    "'ll 've": f"{_PRONOUNS} {_WORDS}",
    "'s": "he how it let she that there this what when where who why",
    "'re": "how there these they those we what when where who why you",
    "'ve": "could how i might must not should there these they those we what when where who why would you",
    "'m": "i",
    "'m a": "i",
    "n't": f"{_AUX} ai are dare has have is was were",
    "n't 've": _AUX,
}
_KEEP: Final = {"ill", "its", "hell", "shell", "shed", "were", "well", "whore", "lets", "whos"}
# spaCy excludes "whore" and takes "whos" apart.
_APART: Final = """can|not gon|na got|ta c'm|on y'|all y|all how|'d|'y who|s"""
_CLOCK: Final = "am pm a.m. p.m."
_WHOLE: Final = r"""'' 'S 'bout 'cause 'cos 'coz 'cuz 'd 'em 'll 'nuff 're 's ‘S ‘s 'Cause 'Cos 'Coz 'Cuz
(*_*) (-8 (-: (-; (-_-) (._.) (: (; (= (>_<) (^_^) (o: (¬_¬) (ಠ_ಠ) (╯°□°）╯︵┻━┻ )-: ): ._. 8) 8-) 8-D :'( :')
:'-( :'-) :( :(( :((( :() :) :)) :))) :* :-( :-(( :-((( :-) :-)) :-))) :-* :-/ :-0 :-3 :-> :-D :-O :-P :-X :-] :-o
:-p :-x :-| :-} :/ :0 :1 :3 :> :D :O :P :X :] :o :o) :p :x :| :} ;) ;-) ;-D ;D ;_; <.< </3 <3 <33 <333 <space> =(
=) =/ =3 =D =[ =] =| >.< >.> >:( >:o ><(((*> [-: [: [= \") ]= and/or w/o o.O
Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. Calif. Co. Colo. Conn. Corp. Dec. Del. Dr. E.g. Feb. Fla. Ga. Gen. Gov.
I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. Ky. La. Ltd. Mar. Mass. Md. Messrs. Mich. Minn. Miss. Mo.
Mont. Mr. Mrs. Ms. Mt. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. Sen. Sep. Sept. St. Tenn. Va.
Wash. Wis. a.m. co. e.g. i.e. p.m. v.s. vs. ä. ö. ü."""
_APOSTROPHE_AT_END: Final = "doin goin havin lovin nothin nuthin ol somethin"
_UNITS: Final = """km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh
mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг м/с км/ч
кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ тбكم كم² كم³ م م² م³ سم سم² سم³ مم مم² مم³ كم غرام جرام جم كغ ملغ كوب
اكواب + US$ C$ A$ $ £ € ¥ ฿ ₽ ﷼ ₴""" + "".join(f" {chr(point)}" for point in range(0x20A0, 0x20C0))


# An open table of byte strings is one array, uint64[slots + 1, 6]: the key of a string (0: empty), how many pieces it has, and
# the bytes of up to four of them; in the last row the bytes of the longest string. One array, since kernels count the
# references of each array of a named tuple at each look-up.
KEY: Final = 0
PIECES: Final = 1
SIZES: Final = 2
Known = npt.NDArray[np.uint64]


def exceptions() -> list[tuple[str, ...]]:
    """The pieces of each word that spaCy takes apart or leaves whole on sight."""
    apart: dict[str, tuple[str, ...]] = {}
    for endings, words in _ENDINGS.items():
        for word in words.split():
            pieces = (word, *endings.split())
            bare = tuple(piece.replace("'", "") for piece in pieces)
            for form in (pieces, bare):
                if form is pieces or "".join(form) not in _KEEP:
                    apart["".join(form)] = form
    for entry in _APART.split():
        apart[entry.replace("|", "")] = tuple(entry.split("|"))
    for form in list(apart.values()):
        if form[0] not in ("y", "y'"):
            capital = (form[0][0].upper() + form[0][1:], *form[1:])
            apart["".join(capital)] = capital
    for hour in range(1, 13):
        for half in _CLOCK.split():
            apart[f"{hour}{half}"] = (str(hour), half)
    for scale in "CFKcfk":
        apart[f"°{scale}."] = ("°", scale, ".")
    whole = [*_WHOLE.split(), *(f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyz")]
    for word in _APOSTROPHE_AT_END.split():
        whole += [f"{word}'", f"{word.capitalize()}'"]
    for word in whole:
        apart[word] = (word,)
    for word, form in list(apart.items()):
        apart[word.replace("'", "’")] = tuple(piece.replace("'", "’") for piece in form)
    return list(apart.values())


@lru_cache(maxsize=1)
def known_words() -> Known:
    """`exceptions` as a table."""
    return _table(exceptions())


@lru_cache(maxsize=1)
def known_units() -> Known:
    """What is cut off after a digit."""
    return _table([(unit,) for unit in dict.fromkeys(_UNITS.split())])


def _table(entries: list[tuple[str, ...]]) -> Known:
    slots = 1 << (4 * len(entries)).bit_length()
    known = np.zeros((slots + 1, 6), np.uint64)
    for form in entries:
        raw = np.frombuffer("".join(form).encode(), np.uint8)
        known[slots, KEY] = max(int(known[slots, KEY]), len(raw))
        key = np.uint64(hash_of(raw, 0, len(raw)))
        slot = int(key) & (slots - 1)
        while known[slot, KEY]:
            slot = (slot + 1) & (slots - 1)
        known[slot, KEY], known[slot, PIECES] = key, len(form)
        known[slot, SIZES : SIZES + len(form)] = [len(piece.encode()) for piece in form]
    return known


@compiled
def find(data: Any, first: int, last: int, known: Any) -> int:
    """Slot of the bytes [first, last) in a table, -1 if they are not in it."""
    mask = len(known) - 2
    if last - first > np.int64(known[mask + 1, KEY]):
        return -1
    key = hash_of(data, first, last)
    slot = np.int64(key & np.uint64(mask))
    while known[slot, KEY]:
        if known[slot, KEY] == key:
            return int(slot)
        slot = (slot + 1) & mask
    return -1
