"""A byte-level tokenizer, loaded: texts to tokens and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.hugging_face import DEFAULT_END, end_token, read_given
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode
from corpusmill.pipeline.bpe.load import load_bpe


class Tokenizer:
    """`data`: the bytes of its `tokenizer.json`, which `tokenizers` and transformers read; `stats`: how it was measured,
    if it was trained here."""

    def __init__(self, data: bytes, eos_token: str, where: str, stats: dict[str, Any] | None = None) -> None:
        self.data, self.eos_token, self.stats = data, eos_token, stats or {}
        self._bpe = load_bpe(data, eos_token, where)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        return self._bpe.vocab_size

    @property
    def eos_id(self) -> int:
        """The token that ends a document."""
        return self._bpe.eos_id

    def encode(self, texts: str | Sequence[str] | pa.Array | pa.ChunkedArray) -> Any:
        """The ids of a text (unsigned integers [tokens]), or of each of several (an Arrow list array); no token is added."""
        if isinstance(texts, str):
            return encode(self._bpe, [texts])[0].astype(self._bpe.dtype)
        ids, offsets = encode(self._bpe, texts)
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(self._bpe.dtype)))

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """The text that ids stand for; bytes that are no UTF-8 become U+FFFD."""
        data, bounds = self._bpe.pieces
        parts = [data[bounds[i] : bounds[i + 1]].tobytes() for i in np.asarray(ids, np.int64)]
        return b"".join(parts).decode("utf-8", errors="replace")

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, to a path or URL."""
        Folder(str(path)).write(self.data)


def load_tokenizer(path: str | Path, eos_token: str = DEFAULT_END) -> Tokenizer:
    """A `tokenizer.json`, or the folder that has one, at a path or URL. `eos_token`: what ends documents; where the
    tokenizer does not have the default, the special token that it is known to have for this. Raises `UserError`."""
    data = read_given("tokenizer", str(path))
    return Tokenizer(data, end_token(data, eos_token), str(path))
