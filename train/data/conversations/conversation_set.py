"""Files of conversations as a token shard set, made once and kept: `conversation_set`.

The folder has what `corpusmill shard` writes (`docs/shards.md`), and `chat_template.jinja`, `conversations.json` (`Conversations`) and
`quarantine.jsonl` with the lines that are in no row. Its blocks are one end-of-document token and rows of whole documents, each row
filled up with that token, so that windows of a row's length are the rows (`corpusmill.train.data.pack.windows`) and every document
follows the end of another one, as in pretraining.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

import xxhash

from corpusmill.common.blocks import vocabulary
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum, doc_id, write_pieces
from corpusmill.common.storage import Entry, Folder
from corpusmill.schemas.conversation_lines import Line, Wrong, read_line
from corpusmill.schemas.conversations import (
    SUMMARY,
    TEMPLATE,
    ConversationConfig,
    Conversations,
    ConversationSource,
)
from corpusmill.schemas.manifest import MANIFEST, Counts, PublishedFile, StageManifest, hash_json
from corpusmill.schemas.shards import INDEX, ShardIndex, ShardSet, set_entry
from corpusmill.train.data.conversations.encode import ConversationEncoder
from corpusmill.train.data.conversations.model import ReadWith, read_with
from corpusmill.train.data.conversations.rows import Rows
from corpusmill.train.data.conversations.style import prompt_of, read_guide
from corpusmill.train.data.texts.inputs import SPLITS, Split, source_name
from corpusmill.train.data.texts.token_set import QUARANTINE, TOKENIZER, alone, is_complete, publish

VERSION = "1"  # raised with every change that may change a byte of the output
AT_ONCE = 1 << 20  # bytes of lines that are encoded together
LONGEST = 32 << 20  # bytes of a line
SUFFIX = ".jsonl"
Log = Callable[[str], None]


@dataclass(frozen=True)
class File:
    """A file of lines. `split`: that of its folder; None: by a hash of each line."""

    file: Folder
    path: str
    split: Split | None
    entry: Entry


def conversation_set(
    url: str, cache: str, config: ConversationConfig, length: int, *, tokenizer: str | None = None,
    start: str | None = None, unrelated: bool = False, virtual: int = 0, log: Log | None = None,
) -> Folder:  # fmt: skip
    """The shard set of the conversations at `url`, in a folder below `cache`; made unless it is there already.

    `url`: a file of lines of JSON, or a folder of them: `<source>.jsonl`, `<source>/*.jsonl`, `<source>/train/*.jsonl` or
    `<source>/validation/*.jsonl`. `length`: tokens of a row. `tokenizer` and `start` as `read_with` takes them, `unrelated` and
    `virtual` as `ConversationEncoder`. Bytes depend on the
    lines, their order and these alone. Raises `UserError` if there is nothing to read, `WorkError` if no line is kept.
    """
    log = log or (lambda line: None)
    if config.style is not None:
        rules = prompt_of(read_guide(config.style))
        config = config.model_copy(update={"system": rules, "style": None})
    sources = survey(url)
    reading = read_with(tokenizer, config.template, start)
    files = [
        [name, [[f.path, f.split, f.entry.size, f.entry.tag] for f in each]] for name, each in sources.items()
    ]
    made_with = [config.model_dump(exclude={"template"}), reading.template.source, checksum(reading.data)]
    more = [virtual] if virtual else []
    key = hash_json([VERSION, length, reading.encoder.eos_id, unrelated, *made_with, files, *more])
    folder = Folder(cache) / key
    if is_complete(folder):
        log(f"conversations: {url}: rows reused from {folder}")
        return folder
    with alone(folder, log):
        if not is_complete(folder):
            encoder = ConversationEncoder(
                reading.data, reading.encoder, reading.template, config, length, unrelated, virtual
            )
            _make(url, sources, reading, encoder, key, folder, log)
    return folder


def survey(url: str) -> dict[str, list[File]]:
    """The files of each source, by path."""
    folder = Folder(url)
    if url.endswith(SUFFIX):
        try:
            entry = folder.entry()
        except FileNotFoundError:
            raise UserError(f"data.shards: {url}: no such file") from None
        name = source_name(folder.parent, folder.name.removesuffix(SUFFIX))
        return {name: [File(folder, folder.name, None, entry)]}
    found: dict[str, list[File]] = {}
    for entry in sorted(folder.list(), key=lambda entry: entry.path):
        if not entry.path.endswith(SUFFIX):
            continue
        *parents, _ = entry.path.split("/")
        split = next((one for one in SPLITS if parents[-1:] == [one]), None)
        if len(parents) > 1 + (split is not None):
            raise UserError(
                f"{folder / entry.path}: files of conversations are <source>.jsonl, or lie in <source>/, <source>/train/ or"
                " <source>/validation/; move it or name a folder further down"
            )
        named = parents[: len(parents) - (split is not None)]
        source = named[0] if named else folder.name if split else entry.path.removesuffix(SUFFIX)
        file = File(folder / entry.path, entry.path, split, entry)
        found.setdefault(source_name(folder, source), []).append(file)
    if not found:
        raise UserError(
            f"data.shards: {url}: no file of conversations there; give a file of lines of JSON, {SUFFIX}, or a folder of them"
        )
    return found


def _make(
    url: str, sources: dict[str, list[File]], reading: ReadWith, encoder: ConversationEncoder, key: str, folder: Folder,
    log: Log,
) -> None:  # fmt: skip
    length = encoder.length
    folder.sweep()
    log(
        f"conversations: {url}: {sum(map(len, sources.values()))} files into rows of {length} tokens in {folder}"
    )
    files = [
        publish(folder, TOKENIZER, reading.data),
        publish(folder, TEMPLATE, reading.template.source.encode()),
    ]
    summaries: dict[str, ConversationSource] = {}
    entries, bad = [], list[dict[str, str | int]]()
    for name, each in sources.items():
        made = _Source(name, encoder, folder)
        with ExitStack() as stack:
            made.read(each, stack)
        bad += sorted(made.bad, key=lambda line: (line["file"], line["line"]))
        summaries[name] = made.summary()
        for split, rows in made.splits.items():
            if rows.shard is None:
                continue
            index = _index(name, split, rows, reading, length)
            path = f"{name}/{split}/{INDEX}"
            file = publish(folder, path, index.to_json(), rows=index.ndocs)
            files += [*rows.files, file]
            entries.append(set_entry(index, path, file.xxh3))
        log(f"conversations: {name}: {described(summaries[name])}")
    lines = [json.dumps(line).encode() + b"\n" for line in bad]
    size, xxh3 = write_pieces(folder / QUARANTINE, lines)
    files.append(PublishedFile(path=QUARANTINE, rows=len(bad), bytes=size, xxh3=xxh3))
    if not entries:
        raise WorkError(f"{folder / QUARANTINE}: no line of {url} is in a row; it says why")
    about = Conversations(
        template=reading.name, marked=reading.template.marks, row_tokens=length, sources=summaries
    )
    files.append(publish(folder, SUMMARY, about.to_json()))
    top = ShardSet.model_validate(
        {
            "tokenizer": TOKENIZER,
            "tokenizer_xxh3": checksum(reading.data),
            **_vocabulary(reading),
            "sets": entries,
        }
    ).to_json()
    files.append(PublishedFile(path=INDEX, bytes=len(top), xxh3=checksum(top)))
    manifest = StageManifest(
        stage="shard", version=f"conversations-{VERSION}", key=key, params=encoder.config.model_dump(), inputs={}, partitions=[],
        counts=Counts(), files=files, counters={"lines": sum(one.lines for one in summaries.values()), "quarantined": len(bad)},
    )  # fmt: skip
    publish(folder, MANIFEST, manifest.to_json())
    publish(folder, INDEX, top)
    if bad:
        log(f"conversations: {len(bad):,} lines are in no row: {folder / QUARANTINE} lists them")


def described(source: ConversationSource) -> str:
    """A source in one line."""
    lost = sum(source.quarantined.values())
    return (
        f"{source.lines:,} lines, {source.kept:,} kept, {lost:,} quarantined, {source.shortened:,} shortened;"
        f" {source.rows:,} rows, {source.tokens:,} tokens, {source.labels:,} of them labels"
    )


def _vocabulary(reading: ReadWith) -> dict[str, object]:
    return vocabulary(reading.encoder.vocab_size, reading.encoder.eos_id)


def _index(source: str, split: Split, rows: Rows, reading: ReadWith, length: int) -> ShardIndex:
    assert rows.shard is not None
    fields = {
        "name": f"{source}-{split}", "source": source, "split": split, "tokenizer": f"../../{TOKENIZER}",
        "tokenizer_xxh3": checksum(reading.data), "block_tokens": rows.block_tokens, "row_tokens": length,
        "ntargets": rows.scored, "shardlist": [rows.shard],
    }  # fmt: skip
    return ShardIndex.model_validate(fields | _vocabulary(reading) | ShardIndex.totals([rows.shard]))


class _Source:
    """The lines of a source: counted, encoded, packed into the rows of their split."""

    def __init__(self, name: str, encoder: ConversationEncoder, folder: Folder) -> None:
        self.name, self.encoder = name, encoder
        self.splits = {split: Rows(name, split, encoder, folder) for split in SPLITS}
        self.bad: list[dict[str, str | int]] = []
        self.formats, self.reasons = Counter[str](), Counter[str]()
        self.lines = self.kept = self.shortened = 0

    def read(self, files: Sequence[File], stack: ExitStack) -> None:
        """All files; `stack` ends what a failure leaves open."""
        for rows in self.splits.values():
            rows.stack = stack.enter_context(ExitStack())
        for file in files:
            with file.file.open() as stream:
                for batch in _batches(stream):
                    self._take(file, batch)
        for rows in self.splits.values():
            rows.finish()

    def _take(self, file: File, batch: list[tuple[int, bytes | None]]) -> None:
        numbers, lines = list[int](), list[Line]()
        for number, data in batch:
            self.lines += 1
            try:
                if data is None:
                    raise Wrong(f"a line of more than {LONGEST} bytes")
                line = read_line(data)
            except Wrong as wrong:
                self._quarantine(file, number, wrong)
                continue
            self.formats[line.format] += 1
            numbers.append(number)
            lines.append(line)
        for number, line, found in zip(numbers, lines, self.encoder.encode(lines), strict=True):
            if isinstance(found, Wrong):
                self._quarantine(file, number, found)
                continue
            self.kept += 1
            self.shortened += found.shortened
            ids = [
                doc_id(self.name, f"{file.path}#{number}{f'.{part}' if part else ''}")
                for part in range(len(found.documents))
            ]
            self.splits[file.split or self._split(line)].add(ids, found.documents, line.format == "text")

    def _split(self, line: Line) -> Split:
        """By a hash of its first message: conversations that begin alike are in one split."""
        level = xxhash.xxh3_64_intdigest(line.first.encode()) / 2**64
        return "validation" if level < self.encoder.config.validation_share else "train"

    def _quarantine(self, file: File, number: int, wrong: Wrong) -> None:
        reason = str(wrong)
        self.reasons[re.sub(r"\d+", "N", reason.partition(":")[0])] += 1
        self.bad.append({"source": self.name, "file": file.path, "line": number + 1, "reason": reason})

    def summary(self) -> ConversationSource:
        both = self.splits.values()
        return ConversationSource(
            lines=self.lines, formats=dict(self.formats), kept=self.kept, quarantined=dict(sorted(self.reasons.items())),
            shortened=self.shortened, documents=sum(rows.documents for rows in both), rows=sum(rows.rows for rows in both),
            tokens=sum(rows.tokens for rows in both), labels=sum(rows.labels for rows in both),
        )  # fmt: skip


def _batches(stream: IO[bytes]) -> Iterator[list[tuple[int, bytes | None]]]:
    """(number, line) of the lines that are not blank, some `AT_ONCE` bytes at a time; None: a line longer than `LONGEST`."""
    batch, size, number = list[tuple[int, bytes | None]](), 0, 0
    while line := stream.readline(LONGEST + 1):
        if len(line) > LONGEST and not line.endswith(b"\n"):
            while (rest := stream.readline(LONGEST)) and not rest.endswith(b"\n"):
                pass
            batch.append((number, None))
        elif line.strip():
            batch.append((number, line.rstrip(b"\r\n")))
            size += len(line)
        number += 1
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
