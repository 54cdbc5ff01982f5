"""From a source's paths to its files: named, sized, hashed, in an order that only their names decide."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import xxhash

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import REMOTE, Folder
from corpusmill.pipeline.ingest.local_files import Found, look_at, shown, walk
from corpusmill.pipeline.ingest.raw_file import RawFile
from corpusmill.pipeline.ingest.streams import COMPRESSED_SUFFIXES
from corpusmill.schemas.recipe import Source

UNKNOWN: Final = "unknown"  # the name does not identify it: the first bytes decide
_SUFFIXES = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".parquet": "parquet", ".pq": "parquet",
    ".txt": "text", ".text": "text", ".md": "markdown", ".markdown": "markdown", ".mdown": "markdown",
    ".warc": "warc", ".arc": "arc", ".wet": "wet", ".html": "html", ".htm": "html", ".xhtml": "html", ".xml": "mediawiki",
    ".tar": "tar", ".tgz": "tar", ".tzst": "tar", ".tbz2": "tar", ".tbz": "tar", ".txz": "tar", ".zip": "zip",
}  # fmt: skip
ARCHIVES: Final = frozenset({"tar", "zip"})  # formats whose files hold files
Known = MutableMapping[str, tuple[int, str, str]]  # "<source>/<path>" -> (bytes, change tag, xxh3)


@dataclass(frozen=True)
class InputFile:
    """One input file. `path` is relative to the root that the recipe gave: it stays when the corpus moves."""

    source: str
    path: str
    url: str
    size: int
    tag: str
    format: str  # a `corpusmill.schemas.recipe.Format`, or `UNKNOWN`
    problem: str = ""  # why it is not read: it becomes one quarantined record
    member: str = ""  # the member that is meant, of the archive at `url`

    @property
    def key(self) -> str:
        """Name of the file over all sources."""
        return f"{self.source}/{self.path}"


def format_of(name: str) -> str:
    """The format that a file's name implies, without a compression suffix; `UNKNOWN` if it implies none."""
    name = name.lower()
    stem, suffix = _split(name)
    kind = _split(stem)[1] if suffix in COMPRESSED_SUFFIXES else suffix
    return _SUFFIXES.get(kind, UNKNOWN)


def format_in(source: Source, name: str) -> str:
    """The format of a source's file: as the recipe says, else by its name. An archive by its name is one always: what
    the recipe says holds for its members."""
    by_name = format_of(name)
    return by_name if source.format == "auto" or by_name in ARCHIVES else source.format


def _split(name: str) -> tuple[str, str]:
    """A path and its last suffix, `.jsonl.gz` -> (`.jsonl`, `.gz`)."""
    stem, dot, suffix = name.rpartition(".")
    return (stem, dot + suffix) if dot and "/" not in suffix else (name, "")


def discover(name: str, source: Source) -> list[InputFile]:
    """The files of a source, sorted by path. Hidden files and `*.tmp` are left out.

    What is there and cannot be read (a FIFO, a link to nothing, a name that is not UTF-8) is among them, with its
    `problem`. Raises `UserError` with source, path and nearest name for a path where nothing is, and for a problem
    where the source says `unreadable_files: stop`.
    """
    by_url: dict[str, InputFile] = {}
    taken: set[str] = set()
    for path in source.paths:
        for root, entry in sorted(_find(name, path), key=lambda found: found[1].path):
            file = root / entry.path
            if file.url in by_url:
                continue
            unique = _unique(entry.path, file, taken)
            taken.add(unique)
            relative, unnamable = shown(unique)
            problem = entry.problem or unnamable
            if problem and source.unreadable_files == "stop":
                raise UserError(
                    f"sources.{name}.paths: {shown(file.url)[0]}: {problem} (sources.{name}.unreadable_files: quarantine"
                    " makes it one record of the ledger)"
                )
            kind = format_in(source, file.name)
            by_url[file.url] = InputFile(name, relative, file.url, entry.size, entry.tag, kind, problem)
    return sorted(by_url.values(), key=lambda file: file.path)


def hash_inputs(files: Iterable[InputFile], known: Known) -> dict[str, str]:
    """xxh3_128 (hex) of each file's content by `InputFile.key`, streamed.

    A file whose size and change tag are those in `known` is not read again; afterwards `known` holds exactly
    the files given.
    """
    hashes: dict[str, tuple[int, str, str]] = {}
    for file in files:
        size, tag, digest = known.get(file.key, (-1, "", ""))
        if file.problem:
            digest = xxhash.xxh3_128_hexdigest(file.problem.encode())
        elif (size, tag) != (file.size, file.tag):
            digest = RawFile(file.url).digest()
        hashes[file.key] = (file.size, file.tag, digest)
    known.clear()
    known.update(hashes)
    return {key: digest for key, (_, _, digest) in hashes.items()}


def _find(source: str, path: str) -> list[tuple[Folder, Found]]:
    """(root, what is below it) of every file that a path stands for."""
    folder = Folder(path)
    if folder.local:
        alone = look_at(Path(folder.url))
        if alone is not None:
            return [(folder.parent, alone)]
    elif is_file(folder):
        return [(folder.parent, Found(*folder.entry()))]
    found = [(folder, entry) for entry in _below(folder)]
    if not found and _GLOB.search(path):
        root, pattern = _split_glob(path)
        match = re.compile(glob_pattern(pattern)).match
        found = [(root, entry) for entry in _below(root) if match(entry.path)]
    if not found:
        raise UserError(_nothing_there(source, path, folder))
    return found


def _below(folder: Folder) -> Iterator[Found]:
    """The files below a folder that are input: neither hidden nor `*.tmp`."""
    if folder.local:
        if Path(folder.url).is_dir():
            yield from walk(Path(folder.url))
        return
    for entry in folder.list():
        hidden = any(part.startswith(".") for part in entry.path.split("/"))
        if not hidden and not entry.path.endswith(".tmp"):
            yield Found(*entry)


_GLOB = re.compile(r"[*?\[]")


def is_file(folder: Folder) -> bool:
    """Whether a path is a file itself."""
    if folder.local:
        return Path(folder.url).is_file()
    return bool(folder.path) and folder.exists()


def _unique(path: str, file: Folder, taken: set[str]) -> str:
    """`path`, with as many of the folders above it as keep it apart from the files found before it."""
    below = path.count("/") + 1
    parts = file.url.replace("://", "/").strip("/").split("/")
    while path in taken and below < len(parts):
        below += 1
        path = "/".join(parts[-below:])
    return path


def _split_glob(path: str) -> tuple[Folder, str]:
    """(folder before the first component with a wildcard, pattern from there)."""
    scheme, sep, rest = path.rpartition("://")
    parts = rest.split("/")
    first = next(i for i, part in enumerate(parts) if _GLOB.search(part))
    root = "/".join(parts[:first])
    if not sep:
        root = root or ("/" if path.startswith("/") else ".")
    return Folder(f"{scheme}{sep}{root}"), "/".join(parts[first:])


def root_of(path: str) -> Folder:
    """The file or folder that a path of a recipe names; of a glob the folder before its first wildcard."""
    return _split_glob(path)[0] if _GLOB.search(path) else Folder(path)


def glob_pattern(pattern: str) -> str:
    """A glob as a regular expression: `*` and `?` stay in one component, `**/` crosses any number.

    A pattern that matches a folder takes everything below it, as a shell's would when given to `cp -r`.
    """
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:[^/]+/)*", at + 3
            continue
        if pattern.startswith("**", at):
            out, at = out + ".*", at + 2
            continue
        char = pattern[at]
        end = pattern.find("]", at + 2) if char == "[" else -1
        if end > 0:
            inner = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            out, at = out + "[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]", end + 1
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
        at += 1
    return f"(?s:{out})(?:/|\\Z)"


def _nothing_there(source: str, path: str, folder: Folder) -> str:
    where = f"sources.{source}.paths: {path}"
    if _GLOB.search(path):
        root, _ = _split_glob(path)
        return f"{where}: no file matches; looked below {root}"
    if folder.local and Path(folder.url).is_dir():
        return f"{where}: the folder holds no file (hidden files and *.tmp do not count)"
    above = folder.parent
    if folder.local:
        while above.path and not Path(above.url).is_dir():
            folder, above = above, above.parent
        readable = os.access(above.url, os.R_OK)
        names = sorted(entry.name for entry in Path(above.url).iterdir())[:10_000] if readable else []
    else:
        names = _names(above)
    hint = nearest(folder.name, names)
    shown = str(Path(path).parent) if "://" not in path else above.url
    absent = f"no '{folder.name}' in {shown if names and hint else above.url}"
    kinds = f"a file, a folder, a glob, or a URL ({', '.join(REMOTE[:5])}, ...) of one"
    return f"{where}: no such file or folder ({absent}{hint}); allowed: {kinds}"


def _names(folder: Folder) -> list[str]:
    """Names directly below a place in an object store; [] if it cannot be listed."""
    try:
        listing = folder.store.list_with_delimiter(f"{folder.path}/" if folder.path else None)
    except Exception:  # only a hint is lost
        return []
    paths = [*listing["common_prefixes"], *(meta["path"] for meta in listing["objects"])]
    return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)[:10_000]
