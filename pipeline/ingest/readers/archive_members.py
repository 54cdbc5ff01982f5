"""Archives of files, tar and zip: each member is read as a file of its own format, and nothing is unpacked to disk under its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import xxhash

from corpusmill.pipeline.ingest.discover import ARCHIVES, InputFile, format_in, format_of, glob_pattern
from corpusmill.pipeline.ingest.local_files import shown
from corpusmill.pipeline.ingest.readers import format_of_file, read_file, tar_members, zip_members
from corpusmill.pipeline.ingest.readers.member import Member
from corpusmill.pipeline.ingest.records import Event, Reading, Rejected
from corpusmill.pipeline.ingest.spool import Spool
from corpusmill.pipeline.ingest.streams import Damaged
from corpusmill.schemas.sources import Source

# Names of one archive that are kept to notice duplicates, as 8-byte hashes. Behind these each name has its number.
MAX_NAMES = 1 << 20
_UNSAFE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_PARTS = re.compile(r"[/\\]")


Members = Callable[[Reading], Iterator[Member | Rejected]]


def read_tar(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    return _events(reading, tar_members.members)


def read_zip(reading: Reading) -> Iterator[Event]:
    """A `corpusmill.pipeline.ingest.records.Reader`."""
    return _events(reading, zip_members.members)


def find(reading: Reading, path: str) -> Reading | None:
    """The reading of a member, named as in a locator behind the archive's own `!`; None if there is no such member.

    Its content is read to its end, so that the archive can be closed.
    """
    members = {"tar": tar_members.members, "zip": zip_members.members}.get(format_of_file(reading))
    if members is None or reading.depth > 1:
        return None
    for found in _selected(reading, members):
        if isinstance(found, Rejected):
            continue
        file, member = found
        name = file.path.removeprefix(f"{reading.file.path}!")
        if path != name and not path.startswith(f"{name}!"):
            continue
        spool = Spool(member.content)
        inner = reading.read_as_member(file, _source_of_members(reading.source), spool.open)
        if path != name:
            below = find(inner, path.removeprefix(f"{name}!"))
            if below is None:
                continue
            return below
        with suppress(Damaged):  # what is before the damage can be read
            spool.end()
        return inner
    return None


def _events(reading: Reading, members: Members) -> Iterator[Event]:
    for found in _selected(reading, members):
        if isinstance(found, Rejected):
            yield found
            continue
        file, member = found
        with Spool(member.content) as spool:
            inner = reading.read_as_member(file, _source_of_members(reading.source), spool.open)
            name = file.path.removeprefix(f"{reading.file.path}!")
            for event in read_file(inner):
                reading.member = f"{name}!{inner.member}" if inner.member else name
                yield event
        reading.member = ""  # what follows is of the archive itself


def _selected(reading: Reading, members: Members) -> Iterator[tuple[InputFile, Member] | Rejected]:
    """The members that are input, each as a file under a name of its own; what is left out is counted."""
    selects = _selection(reading.source)
    source = _source_of_members(reading.source)
    names, number = _Names(), 0
    for member in members(reading):
        if isinstance(member, Rejected):
            yield member
            continue
        reading.recognised = True
        number += 1
        name = member.name
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        if member.folder:
            reading.counters["skipped/member_is_folder"] += 1
        elif _hidden(name):
            reading.counters["skipped/member_hidden"] += 1
        elif format_of(name) not in ARCHIVES and not selects(name):
            reading.counters["skipped/member_not_selected"] += 1
        else:
            reading.counters["members"] += 1
            problem = member.problem or _unsafe(name)
            unique = names.unique(shown(name)[0] or "unnamed", number)
            file = InputFile(
                reading.file.source, f"{reading.file.path}!{unique}", reading.file.url, member.size, "",
                format_in(source, name), problem,
            )  # fmt: skip
            yield file, member


class _Names:
    """Keeps members of one name apart, in bounded memory."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def unique(self, name: str, number: int) -> str:
        """`name`, with the member's number in the archive, from 1 on, if it is not the first of that name."""
        full = len(self._seen) >= MAX_NAMES
        unique = f"{name}~{number}" if full else name
        while (digest := xxhash.xxh3_64_intdigest(unique.encode())) in self._seen:
            unique += f"~{number}"
        if not full:
            self._seen.add(digest)
        return unique


def _source_of_members(source: Source) -> Source:
    return source.model_copy(update={"format": "auto"}) if source.format in ARCHIVES else source


def _selection(source: Source) -> Callable[[str], bool]:
    """Which names `members` of a source selects."""
    if source.members is None:
        return lambda name: True
    patterns = [
        re.compile(("" if "/" in pattern.rstrip("/") else "(?:.*/)?") + glob_pattern(pattern.removeprefix("./").rstrip("/")))
        for pattern in source.members
    ]  # fmt: skip
    return lambda name: any(pattern.match(name) for pattern in patterns)


def _hidden(name: str) -> bool:
    parts = [part for part in _PARTS.split(name) if part not in ("", ".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts) or name.endswith(".tmp")


def _unsafe(name: str) -> str:
    """Why no tool may unpack a member of that name; "" if one may."""
    if _UNSAFE.match(name):
        return "its name is an absolute path"
    return "its name leads out of the archive ('..')" if ".." in _PARTS.split(name) else ""
