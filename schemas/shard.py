"""The parameters of `shard`; what it writes is `shards.py`."""

from __future__ import annotations

from pydantic import Field

from schemas.manifest import Strict


class ShardParams(Strict):
    """WebDataset tars of token blocks, per source and split."""

    block_tokens: int = Field(default=2**19, ge=64, description="tokens in a block: 1 MiB as uint16")
    shard_mb: float = Field(default=256.0, gt=0, description="wanted size of a tar, MiB")
