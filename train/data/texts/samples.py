"""From the members of a tar to documents: samples as WebDataset groups them, each with its text, or with what is wrong."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from corpusmill.train.data.texts.tar import Member

MAX_TEXT = 32 << 20  # bytes of .txt or .json; `tokenizers` takes about 140 bytes of memory for each of them


class Sample(NamedTuple):
    """A document: its sample's key and its text; or `wrong`, why there is none."""

    key: str
    text: str
    wrong: str = ""


def place(name: str) -> tuple[str, str]:
    """(key, extension) of a member: cut at the first dot of its last part, as WebDataset does. Both are empty for names
    that it passes over: without a dot, or beginning with one."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if stem and dot else ("", "")


def foreign(name: str, size: int) -> bool:
    """Whether a member is read: `.txt`, or `.json`, where they are not too large."""
    return size <= MAX_TEXT and place(name)[1] in ("txt", "json")


def ours(name: str, size: int) -> bool:
    """The same in a text shard of ours, where `.json` only describes."""
    return size <= MAX_TEXT and place(name)[1] == "txt"


def samples(members: Iterable[Member]) -> Iterator[Sample]:
    """A sample for each key; members of one key lie together."""
    keyed = (member for member in members if place(member.name)[0])
    for key, group in itertools.groupby(keyed, key=lambda member: place(member.name)[0]):
        yield sample(key, list(_first(group)))


def _first(members: Iterable[Member]) -> Iterator[Member]:
    """The bytes of the first member of each extension alone: a key may have any number of them."""
    seen: set[str] = set()
    for member in members:
        extension = place(member.name)[1]
        yield Member(member.name, member.size) if extension in seen else member
        seen.add(extension)


def sample(key: str, members: list[Member]) -> Sample:
    """The sample of these members: `.txt` before `.json`."""
    for extension, read in (("txt", _plain), ("json", _field)):
        found = [member for member in members if place(member.name)[1] == extension]
        if len(found) > 1:
            return Sample(key, "", f"{len(found)} members .{extension}")
        if found:
            data = found[0].data
            too_large = f".{extension} of {found[0].size} bytes, more than {MAX_TEXT}"
            return Sample(key, "", too_large) if data is None else read(key, data)
    return Sample(key, "", "no text: neither .txt nor .json")


def _plain(key: str, data: bytes) -> Sample:
    try:
        return Sample(key, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Sample(key, "", f"not UTF-8: byte {error.start} of .txt")


def _field(key: str, data: bytes) -> Sample:
    try:
        content = json.loads(data)
    except UnicodeDecodeError as error:
        return Sample(key, "", f"not UTF-8: byte {error.start} of .json")
    except (ValueError, RecursionError):
        return Sample(key, "", "its .json cannot be read")
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(text, str):
        return Sample(key, "", "no text: no string 'text' in its .json")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Sample(key, "", f"not Unicode: half a surrogate pair at character {error.start}")
    return Sample(key, text)
