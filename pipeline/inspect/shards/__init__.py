"""`verify` for shards: `sets.py` the lists and what tars hold together, `tar.py` and `text.py` a tar, `contents.py` a block,
`documents.py` the way back to the cleaned documents."""

from corpusmill.pipeline.inspect.shards.sets import ShardsChecked, check_shards, verify_shards

__all__ = ["ShardsChecked", "check_shards", "verify_shards"]
