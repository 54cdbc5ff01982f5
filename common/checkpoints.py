"""Run once and resume: a task publishes its files and then a marker that names them with their sizes and checksums, and the
key of all that they depend on. The same task, asked again, takes what is there if the key is the same and the files are whole.

Files are held to their sizes, or with `read_files` to their bytes: sizes where readers check the bytes themselves (documents,
shards), bytes where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from pydantic import ValidationError

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder


class Published(Protocol):
    """A file that a marker names (`schemas.manifest.PublishedFile`)."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def xxh3(self) -> str: ...


class Parsed(Protocol):
    """A pydantic model."""

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray) -> Self: ...
    def model_dump_json(self) -> str: ...


class Keyed(Parsed, Protocol):
    """A model that can be a marker (`schemas.manifest.Marker`)."""

    @property
    def key(self) -> str: ...
    @property
    def files(self) -> Sequence[Published]: ...


Known = TypeVar("Known", bound=Keyed)
Model = TypeVar("Model", bound=Parsed)


def once(
    model: type[Known], marker: Folder, key: str, place: Folder, make: Callable[[], Known], *, read_files: bool = False
) -> Known:  # fmt: skip
    """What `make` made for `key` below `place`, now or in an earlier run; its marker is written last, atomically."""
    found = known(model, marker, key, place, read_files=read_files)
    if found is not None:
        return found
    made = make()
    marker.write(made.model_dump_json().encode())
    return made


def known(
    model: type[Known], marker: Folder, key: str, place: Folder, *, read_files: bool = False
) -> Known | None:
    """What `marker` holds, if it is of this key and its files lie whole below `place`."""
    found = parse(model, marker)
    if found is None:
        return None
    return found if found.key == key and whole(place, found.files, read_files=read_files) else None


def whole(place: Folder, files: Iterable[Published], *, read_files: bool = False) -> bool:
    """Whether published files are there, of their sizes or with their bytes."""
    try:
        if read_files:
            return all(checksum((place / file.path).read()) == file.xxh3 for file in files)
        return all((place / file.path).entry().size == file.bytes for file in files)
    except FileNotFoundError:
        return False


def parse(model: type[Model], marker: Folder, *, sealed: bool = False) -> Model | None:
    """What a marker holds; None if there is none, or it was cut or is something else: then nothing is finished."""
    try:
        data = unseal(marker.read()) if sealed else marker.read()
        return None if data is None else model.model_validate_json(data)
    except (FileNotFoundError, ValidationError):
        return None


def seal(data: bytes) -> bytes:
    """A line with the checksum of `data`, then that: for markers whose own bytes must be proven."""
    return checksum(data).encode() + b"\n" + data


def unseal(data: bytes) -> bytes | None:
    """What was sealed; None if it is not as it was written."""
    line, _, rest = data.partition(b"\n")
    return rest if line == checksum(rest).encode() else None
