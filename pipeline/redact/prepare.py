"""What is recognised in any document of the run, as one set of keyed hashes, before a document is edited.

A task per partition publishes the sorted entries of its finds under `scratch/`, behind the places at which their first byte
changes; the driver merges them in ranges of first bytes into `private/`, and holds one range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes, publish_chunks
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.pipeline.redact import Kind
from corpusmill.pipeline.redact.apply import Redactor, batches_of
from corpusmill.pipeline.redact.known import Entries, Known, derived_key, entries, unique
from corpusmill.pipeline.redact.pseudonyms import fingerprint, read_key
from corpusmill.schemas.manifest import Marker, PublishedFile, hash_json
from corpusmill.schemas.private import PRIVATE, SET, PrivateSet
from corpusmill.schemas.stages import RedactParams

SEEN = ("url", "metadata", "source_id")  # read besides the text, whichever of them are edited
RANGE_BYTES = 256 << 20  # of entries that the driver holds at once
_BYTES = 256  # values of an entry's first byte
_HEADER = (_BYTES + 1) * 8


@dataclass(frozen=True)
class Collect:
    """The task of a partition. `key`: of the hashes, where it does not follow from the pseudonyms' key, which each process reads
    from its environment. `task`: hash of all that the finds depend on besides the partition."""

    folder: Folder
    params: RedactParams
    key: bytes = field(repr=False)
    task: str

    def __call__(self, partition: Partition) -> PublishedFile:
        """Publish the entries of a partition, unless they are there."""
        place = f"scratch/{PRIVATE}/{partition.name}"
        key = hash_json([self.task, partition.name, partition.xxh3])

        def make() -> Marker:
            data = _with_places(self._entries(partition))
            return Marker(key=key, files=[publish_bytes(self.folder, f"{place}.u64", data)])

        marker = once(Marker, self.folder / f"{place}.json", key, self.folder, make, read_files=True)
        return marker.files[0]

    def _entries(self, partition: Partition) -> Entries:
        secret = b"" if self.key else read_key(self.params.key_env)
        # What a model finds is not collected.
        noting = _Noting(self.params.model_copy(update={"model": None}), secret)
        for batch in batches_of(partition.read(["text", "language", *SEEN])):
            noting.find(*(batch[name].combine_chunks() for name in ("text", "language")))
            for name in SEEN:
                noting.column(batch[name].combine_chunks(), name)
        return entries(noting.values, self.key or derived_key(secret), tuple(self.params.phone_regions))


class _Noting(Redactor):
    """Redacts, and notes what it recognises: also what is only recognised once its neighbour is replaced."""

    def __init__(self, params: RedactParams, key: bytes) -> None:
        super().__init__(params, key)
        self._wanted = frozenset(params.known_kinds)
        self.values: set[tuple[Kind, bytes]] = set()

    def replacement(self, kind: Kind, value: bytes) -> bytes:
        """What is written in a datum's place, which is noted."""
        if kind in self._wanted:
            self.values.add((kind, value))
        return super().replacement(kind, value)


def _with_places(found: Entries) -> bytes:
    """Entries behind the 257 places at which their first byte changes."""
    edges = np.arange(_BYTES, dtype=np.uint64) << np.uint64(56)
    places = np.append(np.searchsorted(found, edges), len(found))
    return places.astype("<u8").tobytes() + found.astype("<u8").tobytes()


def collect(
    context: Context, params: RedactParams, key: bytes, version: str
) -> tuple[list[PublishedFile], dict[str, int]]:
    """Publish the set of the run below `context.folder`; (files, counters)."""
    folder = context.folder
    own = derived_key(key or _of_input(context.partitions))  # `key`: of the pseudonyms, if any are made
    task = hash_json([version, params.model_dump(mode="json"), fingerprint(own)])
    run = Collect(folder, params, b"" if key else own, task)
    sizes = [part.text_bytes for part in context.partitions]
    found = context.scheduler.map(run, context.partitions, "redact: collect", sizes)
    file = publish_chunks(folder, f"{PRIVATE}/known.u64", _merged(folder, found))
    made = PrivateSet(
        file=file, entries=file.bytes // 8, kinds=list(params.known_kinds), regions=params.phone_regions,
        key=None if key else own.hex(), key_env=params.key_env, fingerprint=fingerprint(own),
    )  # fmt: skip
    record = publish_bytes(folder, f"{PRIVATE}/{SET}", made.to_json())
    return [file, record], {"everywhere_entries": made.entries}


def _of_input(partitions: Sequence[Partition]) -> bytes:
    """A key that is the run's own: of its documents, whatever their names. It is no secret from who has the run."""
    return hashlib.sha256(hash_json([part.xxh3 for part in partitions]).encode()).digest()


def _merged(folder: Folder, files: Sequence[PublishedFile]) -> Iterator[bytes]:
    """The entries of all partitions, sorted, each hash once."""
    total = sum(file.bytes for file in files)
    step = max(1, _BYTES * RANGE_BYTES // max(total, RANGE_BYTES))
    if step == _BYTES:  # the usual case: each file is read once, whole
        contents = folder.at_once(lambda file: (folder / file.path).read(), files)
        yield _joined([np.frombuffer(data[_HEADER:], "<u8") for data in contents])
        return
    begins = folder.read_ranges([(file.path, 0, _HEADER) for file in files])
    heads = [np.frombuffer(data, "<u8").astype(int) for data in begins]
    for first in range(0, _BYTES, step):
        ranges = [
            (
                file.path,
                _HEADER + 8 * int(head[first]),
                8 * int(head[min(first + step, _BYTES)] - head[first]),
            )
            for file, head in zip(files, heads, strict=True)
        ]
        slices = folder.read_ranges([one for one in ranges if one[2]])
        yield _joined([np.frombuffer(data, "<u8") for data in slices])


def _joined(parts: Sequence[Entries]) -> bytes:
    every = np.concatenate(parts).astype(np.uint64) if parts else np.empty(0, np.uint64)
    return unique(every).astype("<u8").tobytes()


def read_set(folder: Folder) -> PrivateSet | None:
    """The record of the set of a stage's folder; None if there is none."""
    try:
        file = folder / PRIVATE / SET
        return PrivateSet.from_json(file.read(), file)
    except FileNotFoundError:
        return None


def load(folder: Folder) -> Known | None:
    """The set of a stage's folder; None if there is none. Raises `UserError` without the pseudonyms' key, `WorkError` for a set
    of another key, or one that is damaged."""
    made = read_set(folder)
    if made is None:
        return None
    key = bytes.fromhex(made.key) if made.key else derived_key(read_key(made.key_env))
    if fingerprint(key) != made.fingerprint:
        raise WorkError(
            f"{folder}/{PRIVATE}/{SET}: made with another key than {made.key_env} holds; set the key that the run was made with"
        )
    return _load(folder, made.file.path, made.file.xxh3, key, tuple(made.regions))


@lru_cache(maxsize=2)
def _load(folder: Folder, path: str, xxh3: str, key: bytes, regions: tuple[str, ...]) -> Known:
    data = (folder / path).read()
    if checksum(data) != xxh3:
        raise WorkError(f"{folder}/{path}: its bytes changed since they were published; run redact again")
    return Known.of(np.frombuffer(data, "<u8").astype(np.uint64), key, regions)
