"""Deterministic changes of texts: noise of characters and words at a rate, for perturbed evaluation and augmentation. What is changed
depends on the text, the rate, the seed and a key alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.perturb import characters, words
from corpusmill.common.perturb.draw import drawn_from
from corpusmill.common.perturb.tables import Table, read_sentences, read_synonyms


class Kind(NamedTuple):
    """`change(text, rate, random, table)`; `read`: of a kind with a file, what reads it."""

    about: str
    change: Callable[..., str]
    read: Callable[[str], Table] | None = None


KINDS: Mapping[str, Kind] = {
    "typos": Kind("letters become neighbours on a QWERTY keyboard", characters.typos),
    "ocr": Kind("characters become what optical recognition takes them for", characters.ocr),
    "homoglyphs": Kind("Latin letters become Cyrillic or Greek ones of the same look", characters.homoglyphs),
    "case": Kind("letters change their case", characters.case),
    "whitespace": Kind("spaces are doubled or left out", characters.whitespace),
    "punctuation": Kind("punctuation is left out", characters.punctuation),
    "drop": Kind("words are left out", words.drop),
    "swap": Kind("words change places with the next one", words.swap),
    "synonyms": Kind("words become synonyms from a file", words.synonyms, read_synonyms),
    "distractor": Kind("a sentence from a file stands before the text", words.distractor, read_sentences),
}


class Perturbation(NamedTuple):
    """A kind at a rate from 0 to 1: of the characters, or for whitespace, punctuation and words of those that it can change. `table`:
    what its file has."""

    kind: str
    rate: float
    file: str = ""
    table: Table | None = None

    @property
    def name(self) -> str:
        """As it is given: `typos:0.05`."""
        return ":".join([self.kind, f"{self.rate:g}", *([self.file] if self.file else [])])

    def apply(self, text: str, key: str, seed: int = 0) -> str:
        """The changed text; the same one at a rate of 0, whatever the kind. `key`: of the text, such as a document's id."""
        if not self.rate or not text:
            return text
        return KINDS[self.kind].change(text, self.rate, drawn_from(seed, self.kind, key), self.table)


def parse(given: str, option: str = "--perturb") -> Perturbation:
    """A perturbation of `KIND:RATE` or `KIND:RATE:FILE`. Raises `UserError`, naming what is allowed."""
    kind, _, rest = given.partition(":")
    if kind not in KINDS:
        raise UserError(f"{option} {given}: no such kind{nearest(kind, KINDS)} (allowed: {', '.join(KINDS)})")
    text, _, file = rest.partition(":")
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UserError(f"{option} {given}: must be {kind}:RATE with a rate from 0 to 1, such as {kind}:0.05")
    read = KINDS[kind].read
    if read is None and file:
        raise UserError(f"{option} {given}: {kind} reads no file: leave out :{file}")
    if read is not None and not file:
        raise UserError(f"{option} {given}: needs a file: {kind}:{text}:FILE")
    return Perturbation(kind, rate, file, read(file) if read is not None else None)


def parse_all(given: Sequence[str], option: str = "--perturb") -> list[Perturbation]:
    """`parse` of each. Raises `UserError`, also for one that is given twice."""
    found = [parse(text, option) for text in given]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{option} {name}: is given twice")
    return found
