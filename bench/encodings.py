"""Encodings found without a declaration, bytes lost and mojibake repaired: real sentences of 75 languages, encoded and damaged here.

Right is a text that comes out as it was, letter by letter; the name of the encoding does not count. Sentences that an encoding does not
have are left out of it, as are texts that come out as plain ASCII. `ours` is what `ingest` does: UTF-16 by its code units, all else by
chardet's candidates, compared by what each makes of the text. UTF-8 with one byte less: texts of 10 kB, a byte of a character
beyond ASCII taken out; right is a text in which at most one character is another. Mojibake: UTF-8 read as cp1252, once or twice over;
`ours` is ftfy without its other changes.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from corpusmill.pipeline.ingest.decoding import Undecodable, decode
from corpusmill.pipeline.ingest.encodings import detect
from corpusmill.pipeline.ingest.text_cleaning import clean

LINGUA = Path(__file__).resolve().parents[2] / "shared/data/langid/lingua_testdata/lingua_test.jsonl.gz"
SIZES = (1, 5, 20)  # sentences of a text
TEXTS = 6  # of a language in an encoding, at most
_WESTERN = "af ca da de en es eu fi fr ga is it la nb nl nn pt sq sv sw"
# Group -> languages, and the encodings that their texts are found in.
LEGACY = {
    "Western": (_WESTERN, "cp1252 mac_roman cp850"),
    "Central European": ("bs cs hr hu pl ro sk sl sq", "cp1250 iso8859_2"),
    "Cyrillic": ("be bg mk ru sr uk", "cp1251 koi8_r koi8_u iso8859_5 cp866 mac_cyrillic"),
    "Greek": ("el", "cp1253 iso8859_7"),
    "Turkish": ("az tr", "cp1254 iso8859_9"),
    "Hebrew, Arabic": ("ar fa he ur", "cp1255 iso8859_8 cp1256 iso8859_6"),
    "Baltic": ("et lt lv", "cp1257 iso8859_13 iso8859_4"),
    "Kazakh, Welsh, Esperanto": ("cy eo kk", "kz1048 ptcp154 iso8859_14 iso8859_3"),
    "Vietnamese, Thai": ("th vi", "cp1258 cp874 tis_620"),
    "Japanese": ("ja", "cp932 euc_jp iso2022_jp"),
    "Korean": ("ko", "cp949 euc_kr iso2022_kr johab"),
    "Chinese": ("zh", "gb18030 gbk big5 hz"),
}
_TONES = frozenset("\u0300\u0301\u0303\u0309\u0323")
Detector = Callable[[bytes], str | None]


class Case(NamedTuple):
    group: str
    text: str
    data: bytes


def sentences() -> dict[str, list[str]]:
    """language -> its sentences; raises `FileNotFoundError` without the shared data."""
    found: dict[str, list[str]] = defaultdict(list)
    with gzip.open(LINGUA, "rt", encoding="utf-8") as file:
        for line in file:
            if (row := json.loads(line))["kind"] == "sentences":
                found[row["lang"]].append(row["text"])
    return dict(found)


def cases(by_language: dict[str, list[str]], size: int) -> Iterator[Case]:
    """Texts of `size` sentences in every encoding of their language."""
    for language, found in sorted(by_language.items()):
        encodings = [("UTF-16, unmarked", name) for name in ("utf_16_le", "utf_16_be")]
        encodings += [
            (group, name)
            for group, (languages, names) in LEGACY.items()
            if language in languages.split()
            for name in names.split()
        ]
        for group, encoding in encodings:
            fit = [fitted for text in found if (fitted := _in_encoding(text, encoding)) is not None]
            texts = [" ".join(fit[i : i + size]) for i in range(0, len(fit) - size + 1, size)]
            coded = ((text, text.encode(encoding)) for text in texts)
            wanted = [
                Case(group, text, data)
                for text, data in coded
                if text.isascii() <= (group[:3] == "UTF") or not data.isascii()
            ]
            yield from wanted[:TEXTS]


def _in_encoding(text: str, encoding: str) -> str | None:
    """The text as the encoding has it, None if it does not: Vietnamese of cp1258 writes its tones apart."""
    if encoding == "cp1258":
        parts = []
        for char in unicodedata.normalize("NFC", text):
            marks = [mark for mark in unicodedata.normalize("NFD", char) if mark in _TONES]
            rest = "".join(mark for mark in unicodedata.normalize("NFD", char) if mark not in _TONES)
            parts.append(unicodedata.normalize("NFC", rest) + "".join(marks))
        text = "".join(parts)
    try:
        return text if text.encode(encoding).decode(encoding) == text else None
    except UnicodeError:
        return None


def _decoded(data: bytes, encoding: str | None) -> str | None:
    try:
        return data.decode(encoding) if encoding else None
    except (UnicodeError, LookupError):
        return None


def detectors() -> dict[str, Detector]:
    """Name with version -> what gives a name of Python's, or None."""
    import chardet
    import charset_normalizer
    from resiliparse.parse.encoding import detect_encoding

    def normalizer(data: bytes) -> str | None:
        best = charset_normalizer.from_bytes(data).best()
        return best.encoding if best else None

    return {
        "ours": detect,
        f"chardet {version('chardet')}": lambda data: chardet.detect(data)["encoding"],
        f"charset-normalizer {version('charset-normalizer')}": normalizer,
        f"uchardet (resiliparse {version('resiliparse')})": detect_encoding,
    }


def measure_detection(by_language: dict[str, list[str]]) -> list[list[str]]:
    """Rows of the first table: share right by group and size, then milliseconds a text."""
    found = detectors()
    right: dict[tuple[str, str, int], int] = Counter()
    total: dict[tuple[str, int], int] = Counter()
    seconds: dict[str, float] = Counter()
    for size in SIZES:
        made = list(cases(by_language, size))
        for case in made:
            total[case.group, size] += 1
        for name, detector in found.items():
            detector(made[0].data)  # its tables are loaded at first use
            start = time.process_time()
            answers = [detector(case.data) for case in made]
            seconds[name] += time.process_time() - start
            for case, answer in zip(made, answers, strict=True):
                right[name, case.group, size] += _decoded(case.data, answer) == case.text
    rows = [["texts", *found]]
    groups = [*LEGACY, "UTF-16, unmarked"]
    for label, chosen in [*((group, [group]) for group in groups), ("**all but UTF-16**", list(LEGACY))]:
        for size in SIZES if label.startswith(("**", "UTF")) else (5,):
            count = sum(total[group, size] for group in chosen)
            shares = [sum(right[name, group, size] for group in chosen) / count for name in found]
            kind = f"{label}, {size} sentence{'s' * (size > 1)} ({count})"
            rows.append([kind, *(f"{share:.1%}" for share in shares)])
    texts = sum(total.values())
    rows.append(["CPU ms a text", *(f"{1e3 * seconds[name] / texts:.2f}" for name in found)])
    return rows


def measure_damage(by_language: dict[str, list[str]], seed: int = 0) -> tuple[int, int, int, int]:
    """(texts of 10 kB in UTF-8 with a byte less, right with ours, kept by Python's strict decoding, by chardet's answer)."""
    import chardet

    random_source = random.Random(seed)
    tried = ours = strict = peer = 0
    for found in by_language.values():
        text = ""
        while len(text.encode()) < 10_000:
            text += " ".join(found) + "\n"
        data = text.encode()[:10_000].decode("utf-8", "ignore").encode()
        places = [place for place, byte in enumerate(data) if byte > 0x7F]
        for place in random_source.sample(places, min(4, len(places))):
            broken = data[:place] + data[place + 1 :]
            tried += 1
            with contextlib.suppress(Undecodable):
                ours += _one_other(decode(broken).text, data.decode())
            strict += _decoded(broken, "utf-8") is not None
            answer = _decoded(broken, chardet.detect(broken)["encoding"])
            peer += answer is not None and _one_other(answer, data.decode())
    return tried, ours, strict, peer


def _one_other(text: str, whole: str) -> bool:
    """Whether a text is `whole` but for one place of at most three characters."""
    ahead = next(
        (i for i, (a, b) in enumerate(zip(text, whole, strict=False)) if a != b), min(len(text), len(whole))
    )
    behind = next(
        (i for i, (a, b) in enumerate(zip(reversed(text), reversed(whole), strict=False)) if a != b),
        min(len(text), len(whole)),
    )
    return len(text) - ahead - behind <= 3 and len(whole) - ahead - behind <= 1


def measure_mojibake(by_language: dict[str, list[str]]) -> tuple[int, int, int]:
    """(texts, restored by ingest, restored by ftfy)."""
    from ftfy import fix_text

    pairs = []
    for found in by_language.values():
        for text in found[:20]:
            for times in (1, 2):
                broken = text
                try:
                    for _ in range(times):
                        broken = broken.encode().decode("cp1252")
                except UnicodeError:
                    continue
                if broken != text:
                    pairs.append((text, broken))
    ours = clean(pa.array([broken for _, broken in pairs], pa.large_string()), True, Counter()).to_pylist()
    right = sum(text == whole for text, (whole, _) in zip(ours, pairs, strict=True))
    peer = sum(fix_text(broken, normalization=None, uncurl_quotes=False) == text for text, broken in pairs)
    return len(pairs), right, peer


def main() -> None:
    if not LINGUA.exists():
        print("The shared sentences are not there: nothing measured.")
        return
    by_language = sentences()
    print(" ".join((__doc__ or "").split("\n\n", 1)[1].split()))
    print()
    head, *rows = measure_detection(by_language)
    print("| " + " | ".join(head) + " |")
    print("|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    tried, ours, strict, peer = measure_damage(by_language)
    print(f"\n| {tried} texts of 10 kB in UTF-8, a byte lost in each | right |\n|---|---:|")
    print(
        f"| ours | {ours / tried:.1%} |\n| chardet's answer | {peer / tried:.1%} |\n| strict decoding | {strict / tried:.1%} |"
    )
    count, right, theirs = measure_mojibake(by_language)
    print(f"\n| {count} texts of mojibake | restored |\n|---|---:|")
    print(f"| ours | {right / count:.1%} |\n| ftfy {version('ftfy')} | {theirs / count:.1%} |")


if __name__ == "__main__":
    main()
