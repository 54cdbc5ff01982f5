"""`verify` for shards: `sets.py` the lists and what tars hold together, `tar.py` and `text.py` a tar (`walk.py`:
what they share), `contents.py` a block, `decode.py` and `documents.py` the way back to the cleaned documents."""

from corpusmill.pipeline.inspect.shards.sets import ShardsChecked, check_shards, verify_shards

__all__ = ["ShardsChecked", "check_shards", "verify_shards"]
