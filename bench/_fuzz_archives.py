"""Tar and zip archives of the fuzz bench: each member is a file with one record, each piece a member as stored."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable

TAR_WORDS = (
    b"ustar\x0000", b"ustar  \x00", b"\0" * 512, b"\0" * 1024, b"77777777777\0", b"\x80" + b"\0" * 10 + b"\1", b"\xff" * 12, b"0000644\0",
    b"19 path=/etc/passwd\n", b"11 size=99\n", b"x", b"L", b"././@LongLink", b"../", b"/",
)  # fmt: skip
ZIP_WORDS = (
    b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\7\x08", b"\xff\xff\xff\xff", b"\xff\xff", b"\x08\0", b"\0\0", b"\1\0\x20\0", b"../", b"/",
)  # fmt: skip


def member(random: random.Random, number: int, text: str) -> tuple[str, bytes]:
    """(name, content) of a file with this text."""
    kind = random.choice(["txt", "jsonl", "jsonl.gz", "json"])
    if kind == "txt":
        return f"d/{number}.txt", text.encode()
    data = json.dumps({"id": number, "text": text}).encode() + b"\n"
    return f"d/{number}.{kind}", gzip.compress(data, mtime=0) if kind.endswith("gz") else data


def tar(random: random.Random, text: Callable[[], tuple[str, str]]) -> list[tuple[bytes, str | None]]:
    """A tar of any of Python's formats, some names too long for a header. `text` gives (mark, text)."""
    format = random.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    pieces: list[tuple[bytes, str | None]] = []
    for number in range(16):
        mark, value = text()
        name, data = member(random, number, value)
        if random.random() < 0.2 and format != tarfile.USTAR_FORMAT:
            name = "long/" * 30 + name
        header = tarfile.TarInfo(name)
        header.size = len(data)
        pieces.append((header.tobuf(format) + data + b"\0" * (-len(data) % 512), mark))
    return [*pieces, (b"\0" * 1024, None)]


class _Pipe(io.BytesIO):
    """Cannot be gone back in, so that lengths stand behind each member's content."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def zip_file(random: random.Random, text: Callable[[], tuple[str, str]]) -> list[tuple[bytes, str | None]]:
    """A zip file; method, zip64 and where the lengths stand at random. Its last piece is the directory."""
    out = _Pipe() if random.random() < 0.3 else io.BytesIO()
    methods = [zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    if not isinstance(out, _Pipe):  # of a stored member the length must precede it
        methods.append(zipfile.ZIP_STORED)
    marks = []
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(16):
            mark, value = text()
            name, data = member(random, number, value)
            header = zipfile.ZipInfo(name)
            header.compress_type = random.choice(methods)
            with archive.open(header, "w", force_zip64=random.random() < 0.2) as file:
                file.write(data)
            marks.append(mark)
    whole = out.getvalue()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        begins = [entry.header_offset for entry in archive.infolist()] + [archive.start_dir]
    pieces: list[tuple[bytes, str | None]] = [
        (whole[a:b], mark) for a, b, mark in zip(begins, begins[1:], marks, strict=False)
    ]
    return [*pieces, (whole[begins[-1] :], None)]
