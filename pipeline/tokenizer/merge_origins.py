"""Where merges come from: of the documents trained on, which tokens stand mostly in lines that many documents repeat, and
which in the tags that redaction left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.kernel_cache import compiled
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode, plain
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.bpe.texts import View
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.tokenizer.sample import Drawn, Edge, below, read_part
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.stages import PiiKind

MIN_LINE = 16  # bytes of a line, white space around it left out, that can be boilerplate
REPEATED, TAG = 1, 2
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled
def _blank(byte: Any) -> Any:
    return byte == 32 or 9 <= byte <= 13


@compiled
def _line(data: Any, start: int, stop: int) -> tuple[int, int, int, Any]:
    """(where the line's text begins, where it ends, where the next line begins, hash) of the line at `start`; the hash is 0
    for a line shorter than `MIN_LINE`."""
    end = start
    while end < stop and data[end] != 10:
        end += 1
    after = min(end + 1, stop)
    while start < end and _blank(data[start]):
        start += 1
    while end > start and _blank(data[end - 1]):
        end -= 1
    if end - start < MIN_LINE:
        return start, end, after, np.uint64(0)
    value = _BASIS
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * _PRIME
    value = (value ^ (value >> _SHIFT)) * _MIX
    return start, end, after, (value ^ (value >> _SHIFT)) | np.uint64(1)


@compiled
def line_hashes(data: Any, offsets: Any, hashes: Any, owners: Any) -> int:
    """The lines of at least `MIN_LINE` bytes: `hashes` (uint64, FNV-1a, mixed) and the text of each, `owners` (int32); how many.
    Both need one place for every `MIN_LINE` bytes of text, and one more."""
    count = 0
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        while at < stop:
            _, _, at, value = _line(data, at, stop)
            if value:
                hashes[count], owners[count] = value, k
                count += 1
    return count


@compiled
def mark(data: Any, offsets: Any, repeated: Any, names: Any, ends: Any, marks: Any) -> None:
    """Set `REPEATED` in `marks` (uint8[N], zeros) for the bytes of lines whose hash is in `repeated` (sorted uint64), and `TAG` for
    those of `<NAME>`, where NAME is one of `names[ends[i]:ends[i + 1]]`."""
    for k in range(len(offsets) - 1):
        at, stop = offsets[k], offsets[k + 1]
        while at < stop:
            first, last, at, value = _line(data, at, stop)
            if value and len(repeated):
                place = np.searchsorted(repeated, value)
                if place < len(repeated) and repeated[place] == value:
                    for i in range(first, last):
                        marks[i] |= REPEATED
        i = offsets[k]
        while i < stop:
            if data[i] == 60:  # <
                for name in range(len(ends) - 1):
                    size = ends[name + 1] - ends[name]
                    if i + size + 1 >= stop or data[i + size + 1] != 62:  # >
                        continue
                    equal = True
                    for b in range(size):
                        if data[i + 1 + b] != names[ends[name] + b]:
                            equal = False
                            break
                    if equal:
                        for b in range(i, i + size + 2):
                            marks[b] |= TAG
            i += 1


@compiled
def count_tokens(offsets: Any, ids: Any, starts: Any, bounds: Any, marks: Any, counts: Any) -> None:
    """Add each token to `counts` (int64[3, V]): all, those whose middle byte lies in a repeated line, those in a tag."""
    for k in range(len(offsets) - 1):
        at = offsets[k]
        for j in range(starts[k], starts[k + 1]):
            token = ids[j]
            size = bounds[token + 1] - bounds[token]
            counts[0, token] += 1
            if size:
                flags = marks[at + size // 2]
                if flags & REPEATED:
                    counts[1, token] += 1
                if flags & TAG:
                    counts[2, token] += 1
            at += size


SAMPLE_BYTES = 16 << 20  # text looked at: the first of the sample
MIN_DOCS = 3  # documents that hold a line, for it to be boilerplate
MIN_COUNT = 4  # occurrences of a token that is reported
SHOWN = 20
_REPEATED = "scratch/repeated.parquet"


class Origin(NamedTuple):
    """int64[3, V]: occurrences of each token; those in repeated lines; those in tags. And what was looked at."""

    counts: npt.NDArray[np.int64]
    docs: int
    bytes: int
    repeated_lines: int


@dataclass(frozen=True)
class Look:
    """Look at the texts of a part of the sample whose hash is at most that of their source in `tops`."""

    work: Folder
    edges: dict[str, Edge]
    tops: dict[str, int]
    tokenizer: Folder
    eos_token: str

    def load(self) -> Bpe:
        return load_bpe(self.tokenizer.read(), self.eos_token, str(self.tokenizer))

    def views(self, bpe: Bpe, file: PublishedFile) -> Iterator[View]:
        """The texts as their tokens stand for them."""
        table = read_part(self.work, file, self.edges)
        mask = below(table["source"], table["hash"].to_numpy(), self.tops)
        return (view.alone() for view in plain(bpe, table["text"].filter(pa.array(mask))))


class Lines(Look):
    """(hashes, documents of the part that hold them) of the lines, sorted."""

    def __call__(self, file: PublishedFile) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        found = [np.zeros(0, np.uint64)]
        for view in self.views(self.load(), file):
            hashes = np.zeros(len(view.data) // MIN_LINE + 1, np.uint64)
            owners = np.zeros(len(hashes), np.int32)
            count = line_hashes(view.data, view.bounds, hashes, owners)
            order = np.lexsort((hashes[:count], owners[:count]))
            line, owner = hashes[order], owners[order]
            once = np.ones(count, dtype=bool)
            once[1:] = (line[1:] != line[:-1]) | (owner[1:] != owner[:-1])
            found.append(line[once])
        return np.unique(np.concatenate(found), return_counts=True)


@dataclass(frozen=True)
class Count(Look):
    """Tokens, by where they stand."""

    repeated: Folder

    def __call__(self, file: PublishedFile) -> tuple[npt.NDArray[np.int64], int, int]:
        bpe = self.load()
        repeated = read_table(self.repeated)["hash"].to_numpy()
        names, ends = _names()
        counts = np.zeros((3, bpe.vocab_size), dtype=np.int64)
        docs = size = 0
        for view in self.views(bpe, file):
            ids, starts = encode(bpe, pa.chunked_array([view.texts]))
            marks = np.zeros(len(view.data), dtype=np.uint8)
            mark(view.data, view.bounds, repeated, names, ends, marks)
            count_tokens(view.bounds, ids, starts, bpe.pieces.bounds, marks, counts)
            docs, size = docs + len(view.texts), size + len(view.data)
        return counts, docs, size


def measure_origin(context: Context, bpe: Bpe, eos_token: str, drawn: Drawn) -> Origin:
    """Look at about `SAMPLE_BYTES` of the sample, the same share of each source. Lines of `MIN_LINE` bytes and more that stand
    in `MIN_DOCS` documents or more are boilerplate."""
    share = min(1.0, SAMPLE_BYTES / max(drawn.bytes, 1))
    top = 2**64 - 1
    tops = {s: top if share == 1 else int(min(edge.hash, top) * share) for s, edge in drawn.edges.items()}
    common = (drawn.work, drawn.edges, tops, context.folder / "tokenizer.json", eos_token)
    sizes = [file.bytes for file in drawn.files]
    parts = context.scheduler.map(Lines(*common), drawn.files, "tokenizer: lines", sizes)
    hashes = np.concatenate([np.zeros(0, np.uint64), *(part[0] for part in parts)])
    docs = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
    line, which = np.unique(hashes, return_inverse=True)
    repeated = line[np.bincount(which, docs, len(line)) >= MIN_DOCS]
    publish_table(context.folder, _REPEATED, pa.table({"hash": repeated}))
    count = Count(*common, context.folder / _REPEATED)
    counted = context.scheduler.map(count, drawn.files, "tokenizer: origins", sizes)
    total = np.zeros((3, bpe.vocab_size), dtype=np.int64)
    for part in counted:
        total += part[0]
    return Origin(total, sum(part[1] for part in counted), sum(part[2] for part in counted), len(repeated))


def describe(origin: Origin, merged: npt.NDArray[np.bool_], texts: list[str]) -> dict[str, Any]:
    """The figures. `merged` (bool[V]): the tokens made by merging; `texts`: what each token stands for, to be shown."""
    every, repeated, tags = origin.counts
    result: dict[str, Any] = {
        "docs": origin.docs, "bytes": origin.bytes, "repeated_lines": origin.repeated_lines,
        "tokens_in_repeated_lines": int(repeated.sum()), "tokens_in_tags": int(tags.sum()), "tokens": int(every.sum()),
    }  # fmt: skip
    for name, part in (("boilerplate", repeated), ("tags", tags)):
        mostly = merged & (every >= MIN_COUNT) & (2 * part > every)
        first = np.lexsort((np.arange(len(part)), -part))
        shown = [int(index) for index in first[mostly[first]][:SHOWN]]
        result[name] = {
            "merges": int(mostly.sum()),
            "most_frequent": [
                {"token": texts[i], "count": int(every[i]), "inside": int(part[i])} for i in shown
            ],
        }
    return result


def _names() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The tags' names, one after the other, and where each begins and ends."""
    names = [kind.upper().encode() for kind in get_args(PiiKind)]
    ends = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in names], out=ends[1:])
    return np.frombuffer(b"".join(names), np.uint8), ends
