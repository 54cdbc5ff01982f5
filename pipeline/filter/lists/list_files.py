"""Files of entries, one per line: read, checked and sorted."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.filter import FilterParams

Found = TypeVar("Found")


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
            raise UserError(f"{where}: {path} has no entry; give one word, phrase, domain or URL per line")
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
        where: [checksum(_asked(where, path, Folder.read)) for path in paths]
        for where, paths in named.items()
        if paths
    }


def state(where: str, paths: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """(path, bytes, change tag) of files, by which a process knows that what it loaded still holds."""
    entries = [_asked(where, path, Folder.entry) for path in paths]
    return tuple((path, entry.size, entry.tag) for path, entry in zip(paths, entries, strict=True))


def _asked(where: str, path: str, method: Callable[[Folder], Found]) -> Found:
    try:
        return method(Folder(path))
    except FileNotFoundError:
        raise UserError(
            f"{where}: {path}: no such file; relative paths start at the working directory"
        ) from None


def _text(where: str, path: str) -> str:
    data = _asked(where, path, Folder.read)
    try:
        if path.endswith(".gz"):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error):
        raise UserError(f"{where}: {path}: not a gzip file, or a damaged one") from None
    except UnicodeDecodeError:
        raise UserError(f"{where}: {path}: not a text file in UTF-8") from None
