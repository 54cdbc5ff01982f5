"""The labelled sets of `bench decisions --task near_duplicates`: files and short texts with a planted copy each, and others that
are like them and are no copies.

Every second text has one copy, made by one of the edits in turn. Nothing here was used in choosing the rules or thresholds
of the presets. `code` was tuned on Python's standard library, numba, ATen's headers, rxjs, lodash, eslint, golang.org/x/net,
gin, Rust's regex and serde, java.util and rack; `short` on titles of papers (SciTLDR) and on SMS (sms_spam).
"""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import importlib.util
import io
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pygments.token import Literal, Name

from bench import _code_edits, _short_edits
from bench._code_edits import Source
from bench.natural import DATA, rows

# Projects that are beside the bench (packages of this environment) or on any Debian.
PROJECTS = (
    "sympy",
    "networkx",
    "sqlalchemy",
    "pandas",
    "pyarrow/include",
    "torch/include/torch",
    "/usr/share/perl",
)
LANGUAGES = {
    ".py": "python", ".h": "cpp", ".hpp": "cpp", ".c": "c", ".pm": "perl", ".pl": "perl", ".js": "javascript", ".go": "go",
    ".rs": "rust", ".java": "java", ".rb": "ruby",
}  # fmt: skip
FILES, TEXTS, PHRASES = 120, 1_500, 1_000  # of a project; of a set of short texts; of templates
SMALLEST, LARGEST = 1_000, 25_000  # bytes of a file
LINES = 30  # of code: below, what is left of a file without names is what many have
SAME_LINES = 0.7  # share of lines, names and literals aside, from which files are clones (BigCloneBench: strong type 3)
SAME_WORDS = 0.6


class Planted(NamedTuple):
    """Texts by id; of each copy the id of its original, and the edit that made it; whether two texts are alike all the same."""

    name: str
    texts: dict[str, str]
    original: dict[str, str]
    edit: dict[str, str]
    alike: Callable[[str, str], bool]


def code(projects: Sequence[str] = PROJECTS) -> Planted:
    """Files of the projects (packages or folders) that are there, of 30 lines of code or more."""
    sources: dict[str, Source] = {}
    names = []
    for project in projects:
        found = _files(project)
        sources |= found
        if found:
            names.append(project.strip("/").split("/")[0 if "include" in project else -1])
    texts, original, edit = {}, {}, {}
    kinds = list(_code_edits.EDITS.items())
    for number, (name, source) in enumerate(sources.items()):
        texts[name] = source.text
        kind, make = kinds[number // 2 % len(kinds)]
        copy = make(source, random.Random(number)) if number % 2 == 0 else None
        if copy is not None and copy != source.text:
            texts[f"{name}#copy"], original[f"{name}#copy"], edit[f"{name}#copy"] = copy, name, kind
    lines: dict[str, list[str]] = {}

    def alike(a: str, b: str) -> bool:
        return (
            _same_lines(*(lines.setdefault(name, _plain_lines(sources[name])) for name in (a, b)))
            >= SAME_LINES
        )

    return Planted(f"{len(sources)} files of {', '.join(names)}", texts, original, edit, alike)


def _files(project: str) -> dict[str, Source]:
    if project.startswith("/"):
        folder: Path | None = Path(project)
    else:
        package, _, rest = project.partition("/")
        spec = importlib.util.find_spec(package)
        folder = Path(spec.origin).parent / rest if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        return {}
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in LANGUAGES and path.is_file()]
    random.Random(project).shuffle(paths)
    found: dict[str, Source] = {}
    seen = set()
    for path in paths:
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if len(found) == FILES or not SMALLEST <= len(data) <= LARGEST or digest in seen:
            continue
        seen.add(digest)
        try:
            source = Source(data.decode(), LANGUAGES[path.suffix])
        except UnicodeDecodeError:
            continue
        if len(_plain_lines(source)) >= LINES:
            found[str(path)] = source
    return found


def _plain_lines(source: Source) -> list[str]:
    """The lines of code without white space, names and literals replaced by a letter."""
    parts = []
    for kind, text in _code_edits.tokens(source):
        if _code_edits.is_comment(kind):
            parts.append("\n" * text.count("\n"))
        elif kind in Name:
            parts.append("N")
        else:
            parts.append("L" + "\n" * text.count("\n") if kind in Literal else text)
    lines = (re.sub(r"\s", "", line) for line in "".join(parts).split("\n"))
    return [line for line in lines if line.strip("{}();")]


def _same_lines(a: list[str], b: list[str]) -> float:
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, len(a), len(b))


def short() -> list[Planted]:
    """One set of summaries, no two of which are alike, one of comments, and one of the beginnings of stories."""
    summaries = [row["tldr"][0] for row in rows(DATA / "natural/science_scitldr") if row["tldr"]]
    comments = [row["text"] for row in rows(DATA / "toxicity/edos_sexism")]
    begun = [row["ctx"] for row in rows(DATA / "evalsets/hellaswag_val")]
    return [
        _short("one-line summaries (SciTLDR)", summaries, lambda a, b: False),
        _short("comments (EDOS)", comments, _same_words),
        _short("contexts (HellaSwag)", begun, _same_words),
    ]


def _short(name: str, found: list[str], same: Callable[[str, str], bool]) -> Planted:
    found = [text for text in dict.fromkeys(found) if 4 <= len(text.split()) <= 50]
    random.Random(name).shuffle(found)
    texts, original, edit = {}, {}, {}
    kinds = list(_short_edits.EDITS.items())
    for number, text in enumerate(found[:TEXTS]):
        texts[f"{number}"] = text
        kind, make = kinds[number // 2 % len(kinds)]
        copy = make(text, random.Random(number)) if number % 2 == 0 else None
        if copy is not None and copy != text:
            key = f"{number}#copy"
            texts[key], original[key], edit[key] = copy, f"{number}", kind
    return Planted(name, texts, original, edit, lambda a, b: same(texts[a], texts[b]))


def _same_words(a: str, b: str) -> bool:
    """Whether the two have most of their words in common."""
    one, other = (re.findall(r"[^\W\d_]+", re.sub(r"https?://\S+|@\w+", "", text.lower())) for text in (a, b))
    shared = sum(min(one.count(word), other.count(word)) for word in set(one))
    return 2 * shared >= SAME_WORDS * max(1, len(one) + len(other))


def templates() -> list[str]:
    """Sentences that differ in one phrase (identity_templates): how many of them are one text to the preset `short`."""
    file = next(
        path for path in sorted((DATA / "toxicity/identity_templates").iterdir()) if ".csv" in path.name
    )
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [row["phrase"] for row in csv.DictReader(io.StringIO(data.decode()))][:PHRASES]
