"""Opening a shard set: its index, the index of each (source, split), and one flat table of blocks per source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.data import DataConfig, FoldConfig
from corpusmill.schemas.shards import INDEX, Block, Shard, ShardIndex, ShardSet
from corpusmill.train.data.folds import held_out

Split = Literal["train", "validation"]


@dataclass(frozen=True, eq=False)
class Source:
    """One (source, split): its folder and its index. Blocks are numbered across all tars."""

    name: str
    folder: Folder
    index: ShardIndex
    xxh3: str  # of the bytes of its index.json: names the data exactly
    # Of each block, which of its documents are held out (bool [ndocs]); None: none is (`corpusmill.train.data.folds`).
    held: tuple[npt.NDArray[np.bool_], ...] | None = None
    # Of each sequence, how hard it is (`corpusmill.train.data.curriculum`); None: the order does not depend on it.
    difficulty: npt.NDArray[np.float64] | None = None

    @cached_property
    def blocks(self) -> list[tuple[Shard, Block]]:
        return [(shard, block) for shard in self.index.shardlist for block in shard.blocks]

    def sequences(self, length: int) -> npt.NDArray[np.int64]:
        """Number of sequences of `length` tokens (and one more, the last label) in each block, without overlap."""
        tokens = np.array([block.ntokens for _, block in self.blocks], dtype=np.int64)
        return np.maximum(tokens - 1, 0) // length

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype("<u2" if self.index.dtype == "uint16" else "<u4")


@dataclass(frozen=True, eq=False)
class Shards:
    """An opened shard set; `train` and `validation`: its sources by name, in the set's order, then those of an earlier run.
    `replayed`: of the latter, the share of all tokens (`data.replay`)."""

    folder: Folder
    set: ShardSet
    train: dict[str, Source]
    validation: dict[str, Source]
    replayed: dict[str, float] = field(default_factory=dict)

    def read(self, data: DataConfig) -> dict[str, Source]:
        """The train splits that the config reads in any of its stages."""
        return {
            name: source for name, source in self.train.items() if name in self.replayed or data.reads(name)
        }

    def tokenizer(self) -> bytes:
        """tokenizer.json, checked."""
        file = self.folder / self.set.tokenizer
        data = file.read()
        if checksum(data) != self.set.tokenizer_xxh3:
            raise WorkError(f"{file}: not the tokenizer that the shards were written with (checksum differs)")
        return data

    def chat_template(self) -> bytes | None:
        """chat_template.jinja, of a set made of conversations."""
        try:
            return (self.folder / TEMPLATE).read()
        except FileNotFoundError:
            return None

    @property
    def all_labels(self) -> bool:
        """Whether every token of the train splits is a label."""
        return all(source.index.ntargets is None for source in self.train.values())


def open_shards(url: str) -> Shards:
    """The shard set at `url` (its folder, or the index.json in it).

    Raises `UserError` if there is none, `WorkError` if an index is not the one that the set names.
    """
    folder = Folder(url)
    if folder.name == INDEX:
        folder = folder.parent
    try:
        data = (folder / INDEX).read()
    except FileNotFoundError:
        raise UserError(
            f"data.shards: {folder / INDEX}: no such file; give the folder of a shard set, such as"
            f" runs/<recipe>/shards (`corpusmill run RECIPE.yaml` writes one)"
        ) from None
    whole = ShardSet.from_json(data, folder / INDEX, UserError)
    splits: dict[str, dict[str, Source]] = {"train": {}, "validation": {}}
    for entry in whole.sets:
        file = folder / entry.index
        try:
            data = file.read()
        except FileNotFoundError:
            raise WorkError(f"{file}: missing, though {folder / INDEX} names it") from None
        if checksum(data) != entry.index_xxh3:
            raise WorkError(f"{file}: changed since {folder / INDEX} was written (checksum differs)")
        index = ShardIndex.from_json(data, file, UserError)
        splits[entry.split][entry.source] = Source(entry.source, file.parent, index, entry.index_xxh3)
    return Shards(folder, whole, splits["train"], splits["validation"])


def open_conversations(
    data: DataConfig, cache: str, start: str | None = None, unrelated: bool = False, virtual: int = 0,
    log: Callable[[str], None] | None = None,
) -> Shards:  # fmt: skip
    """The rows of `data.conversations`, made if they are not there; `start`: the folder of a model whose tokenizer and template are
    taken unless others are named; `unrelated`, `virtual`: see `conversation_set`, and for what it raises."""
    from corpusmill.train.data.conversations.conversation_set import conversation_set

    assert data.conversations is not None
    made = conversation_set(
        data.shards,
        cache,
        data.conversations,
        data.sequence_length,
        tokenizer=data.tokenizer,
        start=start,
        unrelated=unrelated,
        virtual=virtual,
        log=log,
    )
    return open_shards(made.url)


def open_data(data: DataConfig, shards: Shards) -> Shards:
    """An opened shard set as a run reads it: with what its fold holds out."""
    if data.fold is None:
        return shards
    return with_fold(shards, data.fold)


def with_fold(shards: Shards, fold: FoldConfig) -> Shards:
    """The shard set with what is held out of its train splits. Raises what `held_out` raises."""
    found = held_out(shards.train, shards.folder.url, fold)
    return replace(shards, train={name: replace(one, held=found[name]) for name, one in shards.train.items()})


def open_tokens(
    url: str, cache: str | None = None, tokenizer: str | None = None, log: Callable[[str], None] | None = None
) -> Shards:
    """The token shard set at `url`, or, if it has texts, the one made from them in a folder below `cache`.

    Raises `UserError` if there is nothing to read, or texts and no cache; and what `token_set` raises.
    """
    from corpusmill.train.data.texts.inputs import is_text
    from corpusmill.train.data.texts.token_set import token_set

    if not is_text(url):
        return open_shards(url)
    if cache is None:
        raise UserError(f"data.token_cache: {url} holds texts; name a folder in which their tokens are kept")
    return open_shards(token_set(url, cache, tokenizer=tokenizer, log=log).url)
