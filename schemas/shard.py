"""The parameters of `shard`; what it writes is `shards.py`."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from corpusmill.schemas.manifest import Strict


class ShardFormat(StrEnum):
    """What a sample of the tars is."""

    tokens = "tokens"
    text = "text"
    both = "both"


class ShardParams(Strict):
    """WebDataset tars of token blocks, of documents as text, or of both, per source and split."""

    format: ShardFormat = Field(
        default=ShardFormat.tokens,
        description="`tokens`: blocks of token ids; `text`: a document a sample, .txt and .json; `both`: both, apart",
    )
    block_tokens: int = Field(default=2**19, ge=64, description="tokens in a block: 1 MiB as uint16")
    shard_mb: float = Field(default=256.0, gt=0, description="wanted size of a tar, MiB")
