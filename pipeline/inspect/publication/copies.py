"""What goes out as it is: token shards with their indexes, and the tokenizer. Each file is held to its checksum while it is copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import Checked
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.publication.destination import (
    Written,
    make_file,
    pieces,
    write_file,
)
from corpusmill.pipeline.inspect.publication.finished import SHARD, TOKENIZER, Finished
from corpusmill.pipeline.shard.read import read_set
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.publication import PublishedShards, TokenSet
from corpusmill.schemas.shards import INDEX

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def publish_shards(
    found: Finished, dest: Folder, scheduler: Scheduler
) -> tuple[PublishedShards | None, list[Written]]:
    """Copy the token shards; (None, []) if there are none. Text shards stay: their samples name the raw record, and the documents
    hold the same text. So does the log of takedowns, which names documents that are gone."""
    folder = found.folders[SHARD]
    top = read_set(folder, found.read(SHARD, INDEX))
    if not top.sets:
        return None, []
    places = tuple(f"{entry.place}/" for entry in top.sets)
    wanted = [
        file for file in found.files(SHARD) if file.path == top.tokenizer or file.path.startswith(places)
    ]
    copy = partial(_copy, folder, dest, "shards")
    written = scheduler.map(copy, wanted, "publish: shards", [file.bytes for file in wanted])
    index = write_file(dest, f"shards/{INDEX}", top.model_copy(update={"texts": []}).to_json())
    sets = [
        TokenSet(source=entry.source, split=entry.split, documents=entry.ndocs, tokens=entry.ntokens)
        for entry in top.sets
    ]
    return PublishedShards(index=index.path, sets=sets), [*written, index]


def publish_tokenizer(found: Finished, dest: Folder) -> list[Written]:
    """Copy the tokenizer's files, tokenizer.json the first; none if the run has no tokenizer."""
    files = {file.path: file for file in found.files(TOKENIZER)}
    return [
        _copy(found.folders[TOKENIZER], dest, "tokenizer", files[name])
        for name in TOKENIZER_FILES
        if name in files
    ]


def _copy(folder: Folder, dest: Folder, below: str, file: PublishedFile) -> Written:
    return make_file(dest, f"{below}/{file.path}", file.xxh3, _filler(folder, file))


def _filler(folder: Folder, file: PublishedFile) -> Callable[[Checked], tuple[int, int]]:
    def fill(sink: Checked) -> tuple[int, int]:
        for piece in pieces(folder / file.path):
            sink.write(piece)
        if sink.xxh3.hexdigest() != file.xxh3:
            raise WorkError(
                f"{folder / file.path}: its bytes changed since they were published (checksum differs); run"
                " `corpusmill verify` on the run"
            )
        return 0, 0

    return fill
