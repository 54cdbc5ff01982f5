"""Parts of files that are zip archives of XML (EPUB, DOCX): read by name, in bounded memory; nothing is ever written."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

from corpusmill.pipeline.ingest.records import Reading
from corpusmill.pipeline.ingest.spool import Spool
from corpusmill.pipeline.ingest.streams import Damaged, codec_of

DIRECTORY_BYTES = 4 << 20  # the longest directory of an archive: some 90,000 names at most
BLOCK = 1 << 16
MARKUP = 8  # XML of a part may have so many times the bytes of the longest record
MAX_DEPTH = 256  # elements open at once
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # all that EPUB and OPC allow
_ENCRYPTED, _PATCHED = 0x1 | 0x40, 0x20  # bits of a part's flags; 0x40: strongly
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, OverflowError)


class Missing(Exception):
    """The archive has no such part."""


class TooLarge(Exception):
    """A part is longer than it may be. `size`: bytes of it, at least."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Encrypted(Exception):
    """The archive's members are encrypted."""


class _Guarded:
    """A file of which no more than a directory of the longest allowed is read at once while an archive is opened."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.guarded = True

    def read(self, size: int = -1) -> bytes:
        wanted = DIRECTORY_BYTES + 1 if self.guarded and not 0 <= size <= DIRECTORY_BYTES else size
        data: bytes = self._file.read(wanted)
        if self.guarded and len(data) > DIRECTORY_BYTES:
            raise Damaged(
                "ingest.damaged", f"the archive's directory has more than {DIRECTORY_BYTES} bytes", 0
            )
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def seekable(self) -> bool:
        return True


class Archive:
    """The zip archive that a file is. Raises `Damaged` where it is none, or is cut short."""

    def __init__(self, reading: Reading) -> None:
        raw: Any = reading.raw()
        if codec_of(raw.read(16)) is not None:
            raw = Spool(reading.stream().blocks()).open()
        file = _Guarded(raw)
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            detail = f"the zip archive cannot be opened ({type(error).__name__}): cut short, or no archive"
            raise Damaged("ingest.damaged", detail, 0) from None
        except NotImplementedError:  # zipfile has no other type for a later version of the format
            detail = f"the zip archive needs a version of the format above {zipfile.MAX_EXTRACT_VERSION / 10}"
            raise Damaged("ingest.damaged", detail, 0) from None
        file.guarded = False
        self.largest = reading.max_bytes

    def __contains__(self, name: str) -> bool:
        return name in self._zip.NameToInfo

    def blocks(self, name: str, limit: int) -> Iterator[bytes]:
        """The bytes of a part. Raises `Missing`, `Encrypted`, `TooLarge` behind `limit` bytes, `Damaged`."""
        info = self._zip.NameToInfo.get(name)
        if info is None:
            raise Missing(name)
        if info.flag_bits & _ENCRYPTED:
            raise Encrypted
        if info.compress_type not in _METHODS:
            raise Damaged(
                "ingest.damaged", f"a part is compressed by method {info.compress_type}", info.header_offset
            )
        if info.flag_bits & _PATCHED:
            raise Damaged("ingest.damaged", "a part is stored as a patch of another", info.header_offset)
        size = 0
        try:
            with self._zip.open(info) as part:
                while block := part.read(BLOCK):
                    size += len(block)
                    if size > limit:
                        raise TooLarge(size)
                    yield block
        except _BROKEN as error:
            detail = f"a part of the archive is damaged ({type(error).__name__})"
            raise Damaged("ingest.damaged", detail, info.header_offset) from None

    def read(self, name: str) -> bytes:
        """A part as a whole; raises as `blocks` does for one longer than a record may be."""
        return b"".join(self.blocks(name, self.largest))

    def parse(self, name: str, start: StartHandler, end: EndHandler, text: TextHandler) -> None:
        """Parse a part as XML, calling back as expat does; names of elements and attributes are `namespace name`.

        Raises as `blocks` does, and `Damaged` for XML that is not well-formed, declares entities or nests too deep.
        """
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        depth = 0

        def opened(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth > MAX_DEPTH:
                raise Damaged("ingest.malformed_xml", f"more than {MAX_DEPTH} elements are open at once", 0)
            start(tag, attributes)

        def closed(tag: str) -> None:
            nonlocal depth
            depth -= 1
            end(tag)

        parser.StartElementHandler, parser.EndElementHandler = opened, closed
        parser.CharacterDataHandler = text
        parser.EntityDeclHandler = _refuse
        try:
            for block in self.blocks(name, MARKUP * self.largest):
                parser.Parse(block, False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            detail = f"{expat.ErrorString(error.code)} in line {error.lineno} of a part's XML"
            raise Damaged("ingest.malformed_xml", detail, 0) from None


StartHandler = Callable[[str, dict[str, str]], None]
EndHandler = Callable[[str], None]
TextHandler = Callable[[str], None]


def _refuse(*_: object) -> None:
    """Neither format declares entities; a part that does is one that should not be expanded."""
    raise Damaged("ingest.malformed_xml", "a part's XML declares entities", 0)


def local(tag: str) -> str:
    """The name of an element or attribute without its namespace."""
    return tag.rpartition(" ")[2]


def resolve(base: str, target: str) -> str:
    """The part that a reference in part `base` names, without its fragment; it never leaves the archive."""
    path = unquote(target.partition("#")[0])
    joined = path if path.startswith("/") else posixpath.join(posixpath.dirname(base), path)
    return re.sub(r"^(?:\.\./)+", "", posixpath.normpath(joined).lstrip("/"))
