"""Files of entries, one per line: read, checked and sorted."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Entry, Folder
from corpusmill.schemas.filter import FilterParams


def read_entries(where: str, paths: Sequence[str], normal: Callable[[str], str]) -> list[str]:
    """The distinct entries of text files (also .gz), sorted, as `normal` makes them; empty ones are dropped.

    Blank lines and lines that begin with `#` are no entries. Raises `UserError`, naming `where` in the recipe and the
    file, for one that is missing, unreadable or without an entry.
    """
    found: set[str] = set()
    for path in paths:
        lines = (line.strip() for line in _text(where, path).split("\n"))
        entries = {normal(line) for line in lines if line and not line.startswith("#")} - {""}
        if not entries:
            raise UserError(
                f"{where}: {path} has no entry; a word, phrase, domain or URL stands on a line of its own"
            )
        found |= entries
    return sorted(found)


def list_hashes(params: FilterParams) -> dict[str, list[str]]:
    """Key in the recipe -> content hashes of its files of words and URLs, for the stage's key."""
    named = {
        f"filter.word_lists.{name}.{part}": getattr(given, part)
        for name, given in params.word_lists.items()
        for part in ("files", "allow")
    }
    if params.urls is not None:
        named.update(
            {f"filter.urls.{part}": getattr(params.urls, part) for part in type(params.urls).model_fields}
        )
    return {
        where: [checksum(_bytes(where, path)) for path in paths] for where, paths in named.items() if paths
    }


def state(where: str, paths: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """(path, bytes, change tag) of files, by which a process knows that what it loaded still holds."""
    return tuple((path, entry.size, entry.tag) for path in paths for entry in [_entry(where, path)])


def _entry(where: str, path: str) -> Entry:
    try:
        return Folder(path).entry()
    except FileNotFoundError:
        raise _missing(where, path) from None


def _missing(where: str, path: str) -> UserError:
    return UserError(f"{where}: {path}: no such file; relative paths start at the working directory")


def _bytes(where: str, path: str) -> bytes:
    try:
        return Folder(path).read()
    except FileNotFoundError:
        raise _missing(where, path) from None


def _text(where: str, path: str) -> str:
    data = _bytes(where, path)
    try:
        if path.endswith(".gz"):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error):
        raise UserError(f"{where}: {path}: not a gzip file, or a damaged one") from None
    except UnicodeDecodeError:
        raise UserError(f"{where}: {path}: not a text file in UTF-8") from None
