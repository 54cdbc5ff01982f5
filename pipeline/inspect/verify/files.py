"""One published file against what its manifest says of it; and which files there are."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import xxhash

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.inspect.damage import read_regular, require_file
from corpusmill.schemas.manifest import PublishedFile

WHOLE = 1 << 30  # bytes of a file that is read whole; of a larger one the checksum is computed in pieces
PIECE = 16 << 20


def files_below(folder: Folder, problems: list[str]) -> dict[str, int]:
    """Path -> bytes of every file below a folder; a local one may hold anything: what is no regular file is left out, and a
    folder that cannot be read, or that a link leads back to, is a problem."""
    if not folder.local:
        return {entry.path: entry.size for entry in folder.list()}
    return dict(sorted(_walk(Path(folder.url), "", (), problems)))


def _walk(
    place: Path, prefix: str, above: tuple[tuple[int, int], ...], problems: list[str]
) -> Iterator[tuple[str, int]]:
    try:
        here = place.stat()
        if (here.st_dev, here.st_ino) in above:
            problems.append(f"{place}: a link to a folder that it is in; delete it")
            return
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError as error:
        if above or not isinstance(error, FileNotFoundError):
            problems.append(f"{shown(str(place))}: cannot be read: {error.strerror}")
        return
    for entry in entries:
        head, mark, number = entry.name.rpartition("#")
        if mark and head and number.isdigit():
            continue  # begun by a killed writer
        try:
            found = entry.stat()
        except OSError:  # a link to nothing
            continue
        if stat.S_ISDIR(found.st_mode):
            inside = (*above, (here.st_dev, here.st_ino))
            yield from _walk(place / entry.name, f"{prefix}{entry.name}/", inside, problems)
        elif stat.S_ISREG(found.st_mode):
            yield f"{prefix}{entry.name}", found.st_size


def shown(name: str) -> str:
    """A name that can be printed, also one that is no UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def check_file(folder: Folder, published: PublishedFile) -> bytes | None:
    """The bytes of a published file, if they are what its manifest says; None of one that is too large to be held.

    Raises `WorkError` if they are not: damaged bytes are never parsed.
    """
    file = folder / published.path
    if ".." in published.path.split("/") or published.path.startswith("/"):
        raise WorkError(f"{file}: not a path below {folder}")
    xxh3, sha, data = xxhash.xxh3_128(), hashlib.sha256(), None
    if published.bytes <= WHOLE:
        data = read_regular(file, published.bytes)
        pieces: Iterator[bytes] = iter((data,))
    else:
        pieces = _pieces(file, published.bytes)
    for piece in pieces:
        xxh3.update(piece)
        sha.update(piece)
    if xxh3.hexdigest() != published.xxh3 or published.sha256 not in ("", sha.hexdigest()):
        raise WorkError(f"{file}: checksum differs from the published one")
    if data is not None and published.rows is not None and published.path.endswith(".parquet"):
        rows = len(parse_table(data, []))
        if rows != published.rows:
            raise WorkError(f"{file}: {rows} rows, published with {published.rows}")
    return data


def _pieces(file: Folder, size: int) -> Iterator[bytes]:
    there = require_file(file)
    there = file.entry().size if there is None else there
    if there != size:
        raise WorkError(f"{file}: {there} bytes, published with {size}")
    with file.open() as stream:
        while piece := stream.read(PIECE):
            yield piece
