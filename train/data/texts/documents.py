"""The documents of a tar of texts: samples as WebDataset groups them, each with its id and its text or an error, in batches;
and whether the tar is complete."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import doc_id, named_id
from corpusmill.train.data.texts.inputs import Tar
from corpusmill.train.data.texts.tar import Member, TarReader

MAX_TEXT = 32 << 20  # bytes of .txt or .json; `tokenizers` takes about 140 bytes of memory for each of them


class Sample(NamedTuple):
    """A document: its sample's key and text; or `wrong`, the reason why there is none."""

    key: str
    text: str
    wrong: str = ""


def place(name: str) -> tuple[str, str]:
    """(key, extension) of a member: cut at the first dot of its last part, as WebDataset does. Both are empty for names that
    it ignores: without a dot, or beginning with one."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if stem and dot else ("", "")


def foreign(name: str, size: int) -> bool:
    """Whether a member is read: `.txt` or `.json`, if not too large."""
    return size <= MAX_TEXT and place(name)[1] in ("txt", "json")


def ours(name: str, size: int) -> bool:
    """The same in a text shard of ours, whose `.json` is only a description."""
    return size <= MAX_TEXT and place(name)[1] == "txt"


def samples(members: Iterable[Member]) -> Iterator[Sample]:
    """A sample for each key; members of one key lie together."""
    keyed = (member for member in members if place(member.name)[0])
    for key, group in itertools.groupby(keyed, key=lambda member: place(member.name)[0]):
        yield sample(key, list(_first(group)))


def _first(members: Iterable[Member]) -> Iterator[Member]:
    """The members, with the bytes of the first of each extension alone: a key may have any number of them."""
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


BATCH = 1 << 20  # characters of text that are encoded at once


class Batch(NamedTuple):
    """Some documents: 16 bytes of id, and the text, of each."""

    ids: list[bytes]
    texts: list[str]


@dataclass
class Documents:
    """The documents of a tar of `source`, in batches; what was found on the way."""

    tar: Tar
    source: str
    samples: int = 0
    sha256: str = ""
    bad: list[dict[str, str]] = field(default_factory=list)  # lines of the quarantine
    seen: set[int] = field(default_factory=set)  # 8 bytes of the ids of its documents

    def batches(self) -> Iterator[Batch]:
        """About `BATCH` characters of text at a time. Raises `WorkError` at the end if the tar is not complete."""
        tar = self.tar
        ids: list[bytes] = []
        texts: list[str] = []
        length = 0
        with self._open() as stream:
            reader = TarReader(stream, tar.size, str(tar.file))
            for sample in samples(reader.members(foreign if tar.listed is None else ours)):
                self.samples += 1
                identity = self._identity(sample)
                if identity is None:
                    continue
                ids.append(identity)
                texts.append(sample.text)
                length += len(sample.text)
                if length >= BATCH:
                    yield Batch(ids, texts)
                    ids, texts, length = [], [], 0
        self.sha256 = reader.sha256.hexdigest()
        self._whole(reader.position)
        if ids:
            yield Batch(ids, texts)

    def _open(self) -> BinaryIO:
        try:
            return self.tar.file.open()
        except FileNotFoundError:
            named = "it was listed" if self.tar.listed is None else "its index names it"
            raise WorkError(f"{self.tar.file}: missing, though {named}") from None

    def _identity(self, sample: Sample) -> bytes | None:
        """The document's id; None for a sample that is put into the quarantine."""
        path, wrong = self.tar.path, sample.wrong
        identity = named_id(sample.key)
        if self.tar.listed is None:
            identity = doc_id(self.source, f"{path}#{sample.key}")
        elif identity is None:
            raise WorkError(f"{self.tar.file}: '{sample.key}' is not a doc_id, as keys of text shards are")
        short = int.from_bytes(identity[:8], "little")
        if not wrong and short in self.seen:
            wrong = "its key was there before"
        if wrong:
            place = {"source": self.source, "tar": path, "key": sample.key}
            self.bad.append({**place, "doc_id": identity.hex(), "reason": wrong})
            return None
        self.seen.add(short)
        return identity

    def _whole(self, read: int) -> None:
        """Raises `WorkError` if the tar is not the one that was to be read."""
        tar, listed = self.tar, self.tar.listed
        problem = ""
        if read != tar.size:
            problem = f"{read} bytes, {tar.size} were expected"
        elif listed is None:
            now = tar.file.entry()
            problem = "" if (now.size, now.tag) == (tar.size, tar.tag) else "changed while it was read"
        elif self.sha256 != listed.sha256:
            problem = "changed since its index was written (sha256 differs); `corpusmill verify` shows where"
        elif self.samples != listed.nsamples:
            problem = f"{self.samples} documents, its index says {listed.nsamples}"
        if problem:
            raise WorkError(f"{tar.file}: {problem}")


def ahead(items: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, each made by a thread while the one before is processed."""
    with ThreadPoolExecutor(1, thread_name_prefix="texts") as thread:
        under_way = thread.submit(next, items, None)
        while (item := under_way.result()) is not None:
            under_way = thread.submit(next, items, None)
            yield item
