"""The folder of a publication: whose it is, files with their SHA-256 taken on the way, and how a killed publication goes on.

What lies in `unfinished/` tells that a publication is under way: `begun.json`, and a marker for each finished file. It is deleted
after `publication.json`, which is written last, was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pydantic import Field

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.engine.publish import Checked, publish_bytes
from corpusmill.pipeline.inspect.damage import read_present
from corpusmill.schemas.manifest import PublishedFile, Strict
from corpusmill.schemas.publication import CROISSANT, PUBLICATION, SUMS, Publication

UNFINISHED = "unfinished"
BEGUN = f"{UNFINISHED}/begun.json"
README, LICENSES, REPORT_PAGE, REPORT_FIGURES = "README.md", "LICENSES.md", "report.html", "report.json"
_FOLDERS = ("data/", "ledger/", "shards/", "tokenizer/", "licenses/", f"{UNFINISHED}/")
_FILES = (README, LICENSES, REPORT_PAGE, REPORT_FIGURES, CROISSANT, SUMS, PUBLICATION, OWNER)
PIECE = 8 << 20  # bytes of a file that are read at once


class Written(Strict):
    """A finished file, as its marker has it. `rows` and `text_bytes`: of documents or of the ledger."""

    key: str
    files: list[PublishedFile]
    rows: int = 0
    text_bytes: int = 0

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def sha256(self) -> str:
        return self.files[0].sha256

    @property
    def bytes(self) -> int:
        return self.files[0].bytes


class Begun(Strict):
    """`unfinished/begun.json`."""

    key: str = Field(description="of the publication that is being made")


def make_file(dest: Folder, path: str, key: str, fill: Callable[[Checked], tuple[int, int]]) -> Written:
    """The file that `fill` writes, now or before a kill; `fill` returns (rows, bytes of text), and `key` is a hash of all that its
    bytes depend on."""

    def make() -> Written:
        with (dest / path).create() as stream:
            sink = Checked(stream)
            rows, text_bytes = fill(sink)
        return Written(key=key, files=[sink.described(path)], rows=rows, text_bytes=text_bytes)

    return once(Written, dest / f"{UNFINISHED}/{path}.json", key, dest, make)


def write_file(dest: Folder, path: str, data: bytes) -> Written:
    """A small file, written again by every try."""
    return Written(key="", files=[publish_bytes(dest, path, data)])


def pieces(file: Folder) -> Iterator[bytes]:
    """The bytes of a file, a piece at a time."""
    with file.open() as stream:
        while piece := stream.read(PIECE):
            yield piece


def sums_of(files: list[Written]) -> bytes:
    """`SHA256SUMS`, as `sha256sum -c` reads it: by path."""
    return "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda f: f.path)).encode()


def read_publication(dest: Folder) -> Publication | None:
    """The publication that a folder holds; None if none was finished there. Raises `WorkError` if the file is damaged."""
    try:
        data = read_present(dest / PUBLICATION)
    except FileNotFoundError:
        return None
    return Publication.from_json(data, dest / PUBLICATION)


def standing(dest: Folder) -> str | None:
    """The key of the publication that is finished there, "" if it cannot be read; None if there is none: the folder is empty, or
    has one that was begun. Raises `UserError` if it holds anything else."""
    names = [entry.path for entry in dest.list() if entry.path != OWNER]
    strange = [name for name in names if not name.startswith(_FOLDERS) and name not in _FILES]
    if strange or (names and PUBLICATION not in names and BEGUN not in names):
        first = (strange or names)[0]
        raise UserError(
            f"{dest}: holds something else than a publication, such as {first}; give an empty folder, or one that"
            " `corpusmill publish` made"
        )
    if PUBLICATION not in names:
        return None
    try:
        found = read_publication(dest)
    except WorkError:
        return ""
    return found.key if found else None


def begin(dest: Folder, key: str) -> None:
    """From here on the folder holds no finished publication. What an earlier one left stays where it is of use."""
    (dest / BEGUN).write(Begun(key=key).to_json())
    with contextlib.suppress(FileNotFoundError):
        dest.delete([PUBLICATION])


def end(dest: Folder, publication: Publication, files: list[Written]) -> None:
    """Delete what belongs to no file of the publication, then publish it."""
    wanted = {OWNER, *(file.path for file in files)}
    stale = [entry.path for entry in dest.list() if entry.path not in wanted]
    dest.delete([path for path in stale if not path.startswith(f"{UNFINISHED}/")])
    dest.sweep()
    (dest / PUBLICATION).write(publication.to_json())
    sweep(dest)


def sweep(dest: Folder) -> None:
    """Delete the markers."""
    (dest / UNFINISHED).delete()
