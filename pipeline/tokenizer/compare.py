"""Other tokenizers, measured on the documents that ours is measured on. Any `tokenizer.json` that the library reads will do:
they only count."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.bpe.encode import chunks
from corpusmill.pipeline.bpe.load import library

load_other = lru_cache(maxsize=4)(library)


def token_counts(tokenizer: Any, texts: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """int64[texts]: tokens of each, no special token among them."""
    counts = [
        len(encoding.ids)
        for chunk in chunks(texts)
        for encoding in tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
    ]
    return np.array(counts, dtype=np.int64)
