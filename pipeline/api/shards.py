"""Published shards in other training loops, by `webdataset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import webdataset

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.pipeline.shard.read import open_set, register
from corpusmill.schemas.shards import ShardSetEntry


def register_stores(worker: int = 0) -> None:
    """Have `webdataset` of this process read `s3://`, `gs://`, `az://` and `memory://`, with credentials from the environment
    and without a shell. Spawned DataLoader workers take it as `worker_init_fn`; `worker` is their number, and unused."""
    register()


def open_shards(
    place: str,
    split: Literal["train", "validation"] = "train",
    format: Literal["tokens", "text"] = "tokens",
    sources: Sequence[str] | None = None,
    **options: Any,
) -> webdataset.WebDataset:
    """A `webdataset.WebDataset` over the tars of a run or a shard set, on a disk or in an object store: decoded samples.

        loader = DataLoader(corpusmill.open_shards("runs/web", format="text", shardshuffle=100), batch_size=None)

    Samples of tokens are blocks with `tokens.npy` (uint16 or uint32), `docs.npy` (where documents begin) and `json`; those of
    text are documents with `txt` and `json`. `options` go to `webdataset.WebDataset`; by default shards are not shuffled, and
    are divided among nodes and DataLoader workers. `webdataset` checks no checksums and mixes no sources:
    `corpusmill.StreamingTokens` does both, and `corpusmill verify` checks a set as a whole.

    Raises `UserError` if there are no such shards, `WorkError` if an index is not the one that was published.
    """
    opened = open_set(Folder(place))
    tokens = format == "tokens"
    found = [
        listed
        for listed in opened.sets
        if listed.entry.split == split and isinstance(listed.entry, ShardSetEntry) == tokens
    ]
    known = [listed.entry.source for listed in found]
    for source in sources or ():
        if source not in known:
            raise UserError(
                f"{place}: no {split} shards of {format} of '{source}'{nearest(source, known)}"
                f" (there: {', '.join(known) or 'none'})"
            )
    urls = [
        (opened.folder / listed.path(tar)).url
        for listed in found
        if sources is None or listed.entry.source in sources
        for tar in range(len(listed.index.shardlist))
    ]
    if not urls:
        raise UserError(
            f"{place}: no {split} shards of {format}; `shard.format` of the recipe is tokens, text or both"
        )
    register_stores()
    defaults = {"shardshuffle": False, "nodesplitter": webdataset.split_by_node}
    return webdataset.WebDataset(urls, **{**defaults, **options}).decode()
