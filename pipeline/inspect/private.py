"""`corpusmill verify --private`: whether anything that `redact` recognised is left in what is published, by keyed hash.

Every file is read as what it is: Parquet by columns of strings, JSON lines by their strings, tars by members, tokens decoded, other
text as it stands. What is reported is a kind and a place, never a value.
"""

from __future__ import annotations

import gzip
import html
import io
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.layout import folders_of, recipe_of
from corpusmill.pipeline.inspect.shards.contents import text_of
from corpusmill.pipeline.redact import SEPARATOR
from corpusmill.pipeline.redact.batch import Look, find_edits
from corpusmill.pipeline.redact.clean import redact_folder
from corpusmill.pipeline.redact.fields import redact_column
from corpusmill.pipeline.redact.known import Known
from corpusmill.pipeline.redact.prepare import load
from corpusmill.pipeline.redact.pseudonyms import tag
from corpusmill.pipeline.shard.read import above, read_index, read_tokenizer
from corpusmill.schemas.private import PRIVATE, SET
from corpusmill.schemas.publication import PUBLICATION
from corpusmill.schemas.shards import INDEX
from corpusmill.schemas.tables import DOCUMENTS

CHUNK: Final = 8 << 20  # bytes of lines, or of text, searched at once
TAIL: Final = 400  # bytes of a piece that are searched with the next one: more than any datum has
_NO_TEXT: Final = (".npy", ".idx", ".png", ".jpg", ".woff2")
_UNREAD: Final = (".bin", ".ds", ".safetensors", ".pdf", ".arrow")
_SECRET: Final = (f"{PRIVATE}/{SET}", f"{PRIVATE}/known.u64")
# Columns of a run's documents that `redact` leaves by default; publications have them cleaned.
IN_RUN: Final = frozenset(("source_id", "locator"))


@dataclass(frozen=True)
class Find:
    """What is left in one file. `first`: where the first of them is, a row, line or member."""

    file: str
    kind: str
    count: int
    first: str


@dataclass
class Found:
    """What a search found: `counts` by kind is empty if nothing is left."""

    files: int = 0
    bytes: int = 0
    finds: list[Find] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # files of which nothing can be said, and why

    @property
    def counts(self) -> dict[str, int]:
        """Kind -> how many are left."""
        total: Counter[str] = Counter()
        for find in self.finds:
            total[find.kind] += find.count
        return dict(sorted(total.items()))


def known_of_run(run: Folder) -> Known | None:
    """The keyed set that a run's `redact` collected; None if it has no `redact`, or collected nothing (`redact.everywhere: []`).
    Raises `UserError` if the pseudonyms' key is needed and not in the environment."""
    folder = redact_folder(run)
    return None if folder is None else load(folder)


def published(run: Folder) -> list[str]:
    """Of a run's files those that a publication is made of: the documents of its last local stage, split, tokenizer, shards and
    the report; of a stage's command its documents and report."""
    recipe, alone = recipe_of(run.url)
    last = folders_of(run, recipe.stage_names, alone)[recipe.local[-1]]
    place = last.url.removeprefix(run.url).lstrip("/")
    roots = (f"{place}/documents/".lstrip("/"), "split/", "tokenizer/", "shards/", "report/")
    return [entry.path for entry in run.list() if entry.path.startswith(roots) or entry.path == "report.html"]


def search_published(path: str, run: str = "") -> Found:
    """`verify --private`: what a run would publish or, with `run`, a publication of that run. Raises `UserError` where there is no
    set to search for."""
    made = Folder(run or path)
    if not run and (made / PUBLICATION).exists():
        raise UserError(f"{path}: a publication; name the run that it was made from with --run")
    known = known_of_run(made)
    if known is None:
        raise UserError(
            f"{made}: nothing to search for: its recipe has no redact, or redact.everywhere is []; give the run of the"
            " publication with --run"
        )
    if run:
        return search(Folder(path), known)
    return search(made, known, published(made), IN_RUN)


def search(
    folder: Folder, known: Known, paths: Sequence[str] | None = None, without: Iterable[str] = ()
) -> Found:
    """Search the files below `folder`, or these of them. `without`: columns of documents that are left out."""
    searcher = _Search(folder, known, frozenset(without))
    entries = {entry.path: entry.size for entry in folder.list()}
    searcher.tokenizers = [path for path in entries if path.rpartition("/")[2] == "tokenizer.json"]
    for path in sorted(entries) if paths is None else paths:
        searcher.file(path, entries[path])
    return searcher.found


class _Search:
    """A search under way; `at` collects the finds of one file."""

    def __init__(self, folder: Folder, known: Known, without: frozenset[str]) -> None:
        self.folder, self.known, self.without = folder, known, without
        self.found = Found()
        self.tokenizers: list[str] = []
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self._look = Look((), known=known)

    def file(self, path: str, size: int) -> None:
        """Search one file."""
        self.counts, self.first = Counter(), {}
        try:
            if path.endswith(_NO_TEXT):
                return
            if path.endswith(_UNREAD):
                raise ValueError("a format that is not searched")
            if f"/{path}".endswith(tuple(f"/{name}" for name in _SECRET)):
                self._note(Counter(["private_set"]), "the hashes themselves: never publish them")
                return
            with (self.folder / path).open() as stream:
                self._stream(path, stream)
        except (
            Exception
        ) as error:  # of whatever reads the format: the file was not searched, and that is said
            reason = (str(error) or type(error).__name__).splitlines()[0]
            self.found.skipped.append(f"{path}: {reason[:200]}")
            return
        finally:
            self.found.finds += [
                Find(path, kind, count, self.first[kind]) for kind, count in sorted(self.counts.items())
            ]
        self.found.files += 1
        self.found.bytes += size

    def _stream(self, path: str, stream: IO[bytes]) -> None:
        if path.endswith(".gz"):
            self._stream(path[:-3], io.BufferedReader(gzip.GzipFile(fileobj=stream)))
        elif path.endswith(".zst"):
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            self._stream(path[:-4], reader)
        elif path.endswith(".parquet"):
            self._parquet(stream)
        elif path.endswith(".tar"):
            self._tar(path, stream)
        elif path.endswith((".jsonl", ".ndjson")):
            self._lines(stream)
        elif path.endswith(".json"):
            self._values([_read(stream)])
        else:
            self._text(stream, path.endswith((".html", ".htm", ".xml")))

    def _parquet(self, stream: IO[bytes]) -> None:
        file = pq.ParquetFile(stream, pre_buffer=False)  # on this thread alone: see `publish.parse_table`
        ours = set(DOCUMENTS.names) <= set(file.schema_arrow.names)
        left_out = self.without if ours else frozenset[str]()
        row = 0
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, use_threads=False)
            for name in table.column_names:
                if name in left_out:
                    continue
                for start, values in _strings(table[name]):
                    self._column(values, name, row + start)
            row += len(table)

    def _column(self, values: pa.Array, name: str, row: int) -> None:
        if name == "text":  # as it stands, without an object for each
            rows = self._find(values.cast(pa.large_string()).fill_null(""))[1]
        else:
            rows = redact_column(values, name, self._find)[1]
        for place, counts in sorted(rows.items()):
            self._note(counts, f"row {row + place}, {name}")

    def _lines(self, stream: IO[bytes]) -> None:
        row, size, held = 1, 0, list[str]()
        for line in io.TextIOWrapper(io.BufferedReader(stream), "utf-8", "replace", newline="\n"):  # type: ignore[type-var]
            held.append(line)
            size += len(line)
            if size >= CHUNK:
                self._values(held, "line {}", row)
                row, size, held = row + len(held), 0, []
        self._values(held, "line {}", row)

    def _values(self, values: list[str], where: str = "", row: int = 0) -> None:
        """JSON values, by their strings: numbers of a file of ours are counts and places."""
        _, rows = redact_column(pa.array(values, pa.large_string()), "strings", self._find)
        for place, counts in sorted(rows.items()):
            self._note(counts, where.format(row + place))

    def _text(self, stream: IO[bytes], markup: bool, where: str = "") -> None:
        """Text in pieces; the end of each is searched again with the next. Markup is read whole, with its entities resolved."""
        place, tail = 0, b""
        while data := stream.read(-1 if markup else CHUNK):
            if b"\0" in data[:4096]:
                raise ValueError("neither text nor a format that is known")
            if markup:
                data = html.unescape(data.decode("utf-8", "replace")).encode()
            self._bytes(tail + data, len(tail), where or f"byte {place}")
            place, tail = place + len(data), (tail + data)[-TAIL:]

    def _bytes(self, data: bytes, seen: int, where: str) -> None:
        """Note what ends behind the first `seen` bytes, which were searched before. Of those that overlap one counts."""
        end = 0
        for hit in self.known.find(data + SEPARATOR.encode()):
            if hit.end > seen and hit.start >= end:
                self._note(Counter([hit.kind]), where)
                end = hit.end

    def _tar(self, path: str, stream: IO[bytes]) -> None:
        bpe: Bpe | None = None
        tail = b""
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if member.name.endswith(".tokens.npy"):
                    bpe = bpe or self._tokenizer(path)
                    tokens = np.load(io.BytesIO(content.read()), allow_pickle=False)
                    data = tail + text_of(bpe, tokens)
                    self._bytes(data, len(tail), f"member {member.name}")
                    tail = data[-TAIL:]
                elif member.name.endswith(".json"):
                    self._values([_read(content)], f"member {member.name}")
                elif not member.name.endswith(_NO_TEXT):
                    self._text(content, markup=False, where=f"member {member.name}")

    def _tokenizer(self, path: str) -> Bpe:
        """The tokenizer of a tar: the one that the index beside it names, or the only one below the folder."""
        index_file = (self.folder / path).parent / INDEX
        try:
            index = read_index(index_file)
        except (FileNotFoundError, WorkError):
            raise ValueError(f"tokens, and no {INDEX} beside them that names their tokenizer") from None
        named = above(index_file.parent, index.tokenizer)
        for file in [named, *(self.folder / other for other in self.tokenizers)]:
            try:
                return read_tokenizer(file, index.eos_id)
            except FileNotFoundError:
                continue
        raise ValueError("tokens, and no tokenizer.json to decode them")

    def _find(self, texts: pa.LargeStringArray) -> Any:
        return find_edits(texts, self._look, lambda kind, value: tag(kind))

    def _note(self, counts: Counter[str], where: str) -> None:
        for kind, count in counts.items():
            if "/" not in kind:
                self.counts[kind] += count
                self.first.setdefault(kind, where)


def _read(stream: IO[bytes]) -> str:
    return stream.read().decode("utf-8", "replace")


def _strings(column: pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """(first row, strings) of a column, also of those within lists and structs (whose rows are about right)."""
    row = 0
    for chunk in column.chunks:
        yield from ((row, strings) for strings in _inner(chunk))
        row += len(chunk)


def _inner(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield array
    elif pa.types.is_dictionary(kind):
        yield from _inner(array.dictionary)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _inner(array.flatten())
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _inner(part)
