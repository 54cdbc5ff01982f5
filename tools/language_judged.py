"""Labelled texts that language identification is judged on: none of them is taken for training unless the card says so.

- `lingua`: sentences, pairs of words and single words in 75 languages (../shared/data/langid/lingua_testdata);
- `declaration`: the articles of the Universal Declaration of Human Rights (../shared/data/langid/udhr2);
- `snippets`: CLD2's own test texts, words of web pages in 170 languages (`unittest_data.h` of the source of pycld2).
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.language_codes import label

SHARED: Final = Path(__file__).resolve().parents[2] / "shared/data/langid"
SNIPPETS: Final = ("pycld2==0.41",)  # the last version whose source has them; Apache-2.0
ARTICLE: Final = 40  # letters: a shorter piece of the Declaration is a heading
PIECE: Final = 120  # characters of a piece of a snippet
DECLARED: Final = 150  # and of one of the Declaration

_LARGE_TEXT: Final = (
    "ar bg cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl pl pt ro ru sk sl sv tr vi zh uk"
)
LARGE: Final = tuple(_LARGE_TEXT.split())


class Judged(NamedTuple):
    """Texts and their labels."""

    name: str
    texts: list[str]
    labels: list[str]

    def among(self, labels: Iterable[str]) -> Judged:
        """Those of these labels."""
        wanted = frozenset(labels)
        own = [n for n, one in enumerate(self.labels) if one in wanted]
        return Judged(self.name, [self.texts[n] for n in own], [self.labels[n] for n in own])

    def without(self, labels: Iterable[str]) -> Judged:
        """Those of other labels."""
        return self.among(frozenset(self.labels) - frozenset(labels))


def _judged(name: str, rows: Iterable[tuple[str | None, str]]) -> Judged:
    own = [(one, text) for one, text in rows if one is not None and text.strip()]
    return Judged(name, [text for _, text in own], [one for one, _ in own])


def lingua(kind: str, fitted: bool = False) -> Judged:
    """`kind` is sentences, word-pairs or single-words: every second text, or with `fitted` the others, by which the profile's
    temperatures were fitted."""
    with gzip.open(SHARED / "lingua_testdata/lingua_test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    own = [row for row in rows if row["kind"] == kind][0 if fitted else 1 :: 2]
    return _judged(f"lingua {kind}", ((label(row["lang"]), row["text"]) for row in own))


def declaration() -> Judged:
    """Paragraphs of the Declaration."""
    with gzip.open(SHARED / "udhr2/udhr2.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return _judged("declaration", (pair for row in rows for pair in _articles(row["code"], row["text"])))


def declarations(pieces: bool = False) -> Judged:
    """The Declaration, one text a translation, or in pieces of about `DECLARED` characters."""
    with gzip.open(SHARED / "udhr2/udhr2.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    own = [(_declared(row["code"]), " ".join(row["text"].split())) for row in rows]
    return _judged(
        "the Declaration" + (f" in pieces of {DECLARED} characters" if pieces else ""),
        ((known, part) for known, text in own for part in (_pieces(text, DECLARED) if pieces else [text])),
    )


def _declared(code: str) -> str | None:
    name = code.partition("_")[0]
    return None if name.isdigit() else label({"als": "sq"}.get(name, name))


def _articles(code: str, text: str) -> Iterator[tuple[str | None, str]]:
    known = _declared(code)
    for part in text.split("\n"):
        if sum(map(str.isalpha, part)) >= (ARTICLE if " " in part.strip() else ARTICLE // 3):
            yield known, " ".join(part.split())


_STRING = re.compile(
    r'const char\* kTeststr_([a-z]{2,3})_([A-Z][a-z]{3})\w* =\s*((?:"(?:[^"\\]|\\.)*"\s*)+);'
)
_NOT_SNIPPETS_TEXT: Final = "xx zz zzb zze zzh zzp sit crs blu"
# Not what they are called, or in a script of another time: Hmong is called blu there, Limbu sit.
_NOT_SNIPPETS: Final = frozenset(_NOT_SNIPPETS_TEXT.split())
_NOT_IN_TEXT: Final = "my_Latn sa_Latn tl_Tglg mn_Mong ro_Cyrl ku_Arab tk_Cyrl az_Arab tg_Arab uz_Arab ky_Arab za_Hani ug_Cyrl lif_Limb"
_NOT_IN: Final = frozenset(_NOT_IN_TEXT.split())


def snippets(source: Path, pieces: bool = False) -> Judged:
    """The texts of the archive of pycld2's source, whole or in pieces of about `PIECE` characters."""
    with tarfile.open(source) as packed:
        member = next(one for one in packed if one.name.endswith("internal/unittest_data.h"))
        content = packed.extractfile(member)
        assert content is not None
        code = content.read().decode("utf-8", "replace")
    code = code.partition("#else")[0]
    rows: list[tuple[str | None, str]] = []
    for name, script, strings in _STRING.findall(code):
        if name in _NOT_SNIPPETS or f"{name}_{script}" in _NOT_IN or "\\x" in strings:
            continue
        text = " ".join("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings)).split()).replace("\\", "")
        rows += [(label(name), part) for part in (_pieces(text) if pieces else [text])]
    return _judged("CLD2's texts" + (" in pieces" if pieces else ""), rows)


def _pieces(text: str, size: int = PIECE) -> Iterator[str]:
    if " " not in text[:size]:
        yield from (text[at : at + size // 3] for at in range(0, len(text) - size // 6, size // 3))
        return
    piece = ""
    for word in text.split():
        piece += word + " "
        if len(piece) >= size:
            yield piece
            piece = ""
