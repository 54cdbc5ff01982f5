"""From a source's paths to its files: named, sized, hashed, in an order that only their names decide."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from corpusmill.common.errors import UserError, WorkError, nearest
from corpusmill.common.format import without_query
from corpusmill.common.hub import SCHEME, parse, pin
from corpusmill.common.storage import REMOTE, Folder
from corpusmill.pipeline.ingest.local_files import Found, look_at, shown, walk
from corpusmill.pipeline.ingest.streams import COMPRESSED_SUFFIXES
from corpusmill.schemas.sources import Source

UNKNOWN: Final = "unknown"  # the name does not identify it: the first bytes decide
_SUFFIXES = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".parquet": "parquet", ".pq": "parquet",
    ".txt": "text", ".text": "text", ".md": "markdown", ".markdown": "markdown", ".mdown": "markdown",
    ".warc": "warc", ".arc": "arc", ".wet": "wet", ".html": "html", ".htm": "html", ".xhtml": "html", ".xml": "mediawiki",
    ".pdf": "pdf", ".epub": "epub", ".docx": "docx",
    ".tar": "tar", ".tgz": "tar", ".tzst": "tar", ".tbz2": "tar", ".tbz": "tar", ".txz": "tar", ".zip": "zip",
}  # fmt: skip
ARCHIVES: Final = frozenset({"tar", "zip"})  # formats whose files hold files
LISTED_AGAIN: Final = "files/listed_again"  # counter: a list names a file once more
Known = MutableMapping[str, tuple[int, str, str]]  # "<source>/<path>" -> (bytes, change tag, xxh3)


class Part(NamedTuple):
    """Bytes `begin` to `end` of a file that is read by several tasks; `number` counts the parts, `record` is the first one's."""

    number: int
    begin: int
    end: int
    record: int


@dataclass(frozen=True)
class InputFile:
    """One input file, or a part of one. `path` is relative to the root that the recipe gave: it stays when the corpus moves."""

    source: str
    path: str
    url: str
    size: int
    tag: str
    format: str  # a `corpusmill.schemas.input_options.Format`, or `UNKNOWN`
    problem: str = ""  # why it is not read: it becomes one quarantined record
    metadata: str = ""  # of each of its documents, besides their own: JSON of what a list says of the file
    counted: tuple[str, ...] = ()  # counters that it adds to when it is read
    part: Part | None = None  # all of it
    member: str = ""  # the member that is meant, of the archive at `url`

    @property
    def key(self) -> str:
        """Name of the file over all sources."""
        return f"{self.source}/{self.path}"

    @property
    def stored(self) -> int:
        """Bytes to be read."""
        return self.part.end - self.part.begin if self.part else self.size

    @property
    def begins(self) -> bool:
        """Whether the first byte of the file is among them."""
        return not (self.part and self.part.begin)


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


class Files:
    """The files of a source, each once, by paths that tell them apart."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = name, source
        self._by_url: dict[str, InputFile] = {}
        self._taken: set[str] = set()

    def add(
        self, file: Folder, found: Found, key: str = "paths", metadata: str = "", counted: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        """Take a file that the source's `key` names; one that is there already is left out, and counted if a list names it.

        Raises `UserError` for a file with a problem, where the source says `unreadable_files: stop`.
        """
        before = self._by_url.get(file.url)
        if before is not None:
            if key != "paths":
                self._by_url[file.url] = replace(before, counted=(*before.counted, LISTED_AGAIN))
            return
        unique = _unique(found.path, file, self._taken)
        self._taken.add(unique)
        relative, unnamable = shown(unique)
        problem = found.problem or unnamable
        if problem and self.source.unreadable_files == "stop":
            raise UserError(
                f"sources.{self.name}.{key}: {shown(without_query(file.url))[0]}: {problem}"
                f" (sources.{self.name}.unreadable_files: quarantine makes it one record of the ledger)"
            )
        kind = format_in(self.source, address(file))
        self._by_url[file.url] = InputFile(
            self.name, relative, file.url, found.size, found.tag, kind, problem, metadata, counted
        )

    def find(self, revisions: MutableMapping[str, str] | None = None) -> None:
        """Add what the source's paths stand for; `revisions` receives commits, as `corpusmill.common.hub.pin` has it.

        Raises `UserError` with source, path and nearest name for a path where nothing is.
        """
        revisions = {} if revisions is None else revisions
        for path in self.source.paths:
            for file, entry in sorted(_find(self.name, path, revisions), key=lambda found: found[1].path):
                self.add(file, entry)

    def sorted(self) -> list[InputFile]:
        """All of them, by path."""
        return sorted(self._by_url.values(), key=lambda file: file.path)


def discover(name: str, source: Source) -> list[InputFile]:
    """The files of a source's paths, sorted by path. Hidden files and `*.tmp` are left out.

    What is there and cannot be read (a FIFO, a link to nothing, a name that is not UTF-8) is among them, with its
    `problem`. Raises `UserError` as `Files` does.
    """
    files = Files(name, source)
    files.find()
    return files.sorted()


def _find(source: str, path: str, revisions: MutableMapping[str, str] | None) -> list[tuple[Folder, Found]]:
    """Every file that a path stands for, by its name below that path."""
    try:
        place = pin(path, revisions) if path.startswith(SCHEME) else path
    except UserError as error:
        raise UserError(f"sources.{source}.paths: {error}") from None
    folder = Folder(place)
    alone = file_at(folder)
    if alone is not None:
        return [(folder, alone)]
    found = [(folder / entry.path, entry) for entry in _below(folder) if not _is_card(folder, entry)]
    if not found and _GLOB.search(path):
        root, pattern = _split_glob(place)
        match = re.compile(glob_pattern(pattern)).match
        found = [(root / entry.path, entry) for entry in _below(root) if match(entry.path)]
    if not found:
        raise UserError(_nothing_there(source, path, place))
    return found


def file_at(file: Folder) -> Found | None:
    """A path as a file of its own name; None if nothing is there, or a folder."""
    if file.local:
        return look_at(Path(file.url))
    if not file.path:
        return None
    try:
        entry = file.entry()
    except FileNotFoundError:
        return None
    return Found(address(file).rpartition("/")[2], entry.size, entry.tag)


def address(file: Folder) -> str:
    """Where a file is, without scheme, query and commit: what stays when a signature or a revision changes."""
    plain = without_query(file.url).partition("://")[2] or file.path
    if file.root == SCHEME.rstrip("/"):
        return re.sub("@[^/]*", "", file.path, count=1)
    return plain


def _is_card(folder: Folder, entry: Found) -> bool:
    """Whether this is the description of a data set of the Hub, named by nobody."""
    return folder.root == SCHEME.rstrip("/") and entry.path == "README.md" and not parse(folder.path).path


def _below(folder: Folder) -> Iterator[Found]:
    """The files below a folder that are input: neither hidden nor `*.tmp`."""
    if folder.local:
        if Path(folder.url).is_dir():
            yield from walk(Path(folder.url))
        return
    try:
        entries = folder.list()
    except WorkError:
        if folder.root.startswith("http"):  # few web servers list folders
            return
        raise
    for entry in entries:
        hidden = any(part.startswith(".") for part in entry.path.split("/"))
        if not hidden and not entry.path.endswith(".tmp"):
            yield Found(*entry)


_GLOB = re.compile(r"[*?\[]")


def _unique(path: str, file: Folder, taken: set[str]) -> str:
    """`path`, with as many of the folders above it as keep it apart from the files found before it; where that is not enough
    (web addresses that differ in their query), with a hash of the whole."""
    below = path.count("/") + 1
    scheme = "" if file.local else file.root.partition("://")[0] + "/"
    parts = f"{scheme}{address(file)}".strip("/").split("/")
    while path in taken and below < len(parts):
        below += 1
        path = "/".join(parts[-below:])
    return (
        path
        if path not in taken
        else f"{path}~{xxhash.xxh32_hexdigest(file.url.encode('utf-8', 'surrogateescape'))}"
    )


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


TABLES = "input"  # below an output: where functions on tables put the documents that they are given


def text_share(format: str, name: str) -> float:
    """About how many bytes of text a file has for each byte as stored: what compression saves, and what markup takes."""
    markup = {
        "html": 0.12,
        "warc": 0.12,
        "mediawiki": 0.6,
        "pdf": 0.05,
        "epub": 0.8,
        "docx": 0.3,
        "parquet": 2.0,
    }
    return markup.get(format, 0.9) * (4.0 if compressed(name) else 1.0)


def can_be_cut(file: InputFile, size: int) -> bool:
    """Whether a file may be read in parts of about `size` bytes, by its size and format; one that is compressed is not."""
    return file.size >= 1.5 * size and file.format in ("jsonl", "json", "parquet", "documents", UNKNOWN)


def compressed(name: str) -> bool:
    """Whether a file's name says that it is compressed as a whole."""
    return _split(name.lower())[1] in COMPRESSED_SUFFIXES


def check_apart(where: str, path: str, output: Folder) -> None:
    """Raise `UserError` if `output` lies within what a path of a recipe names, or holds it."""
    root, pattern = _split_glob(path) if _GLOB.search(path) else (Folder(path), "")
    if output.within(root) and (output != root or not pattern):
        below = output.url[len(root.url) :].strip("/") if output.url.startswith(root.url) else ""
        if not pattern or not below or "**" in pattern or re.match(glob_pattern(pattern), f"{below}/"):
            raise UserError(
                f"{where}: {path}: the output {output} lies within it, and would be read as input by the next run; give an"
                " output outside of it"
            )
    if root.within(output) and not root.within(output / TABLES):
        raise UserError(
            f"{where}: {path}: lies within the output {output}; give an output that holds no input"
        )


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


def _nothing_there(source: str, path: str, place: str) -> str:
    """What to say of a path, and the place that it leads to, where no file is."""
    where, folder = f"sources.{source}.paths: {without_query(path)}", Folder(place)
    if folder.root.startswith("http"):
        return f"{where}: the server has no such file"
    if _GLOB.search(path):
        root, _ = _split_glob(place)
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
