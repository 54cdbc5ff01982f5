"""Where merges come from: of the documents trained on, which tokens stand mostly in lines that many documents repeat, and
which in the tags that redaction left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode, plain
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.bpe.texts import View
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.tokenizer.kernels.walk import MIN_LINE, count_tokens, line_hashes, mark
from corpusmill.pipeline.tokenizer.sample import Drawn, Edge, below, read_part
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.redact import PiiKind

SAMPLE_BYTES = 16 << 20  # text looked at: the first of the sample
MIN_DOCS = 3  # documents that hold a line, for it to be boilerplate
MIN_COUNT = 4  # occurrences of a token about which something is said
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
