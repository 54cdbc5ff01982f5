"""What tokens stand for, out of a `tokenizer.json` alone: looking a token up loads no encoder and compiles nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.bpe.names import token_bytes


class Vocabulary:
    """The tokens of a byte-level tokenizer that `corpusmill.pipeline.bpe.load` has accepted. `where` names its file."""

    def __init__(self, data: bytes, eos_id: int, where: str) -> None:
        content: dict[str, Any] = orjson.loads(data)
        self.data, self.eos_id, self.where = data, eos_id, where
        self.added: dict[int, str] = {
            token["id"]: token["content"] for token in content.get("added_tokens", ())
        }
        self._names: dict[int, str] = {index: name for name, index in content["model"]["vocab"].items()}
        self.alters = content.get("normalizer") is not None  # NFC, or one that alters nothing

    def bytes_of(self, token: int) -> bytes:
        """The bytes of text that a token stands for; none for the end of a document."""
        if token == self.eos_id:
            return b""
        if token in self.added:
            return self.added[token].encode()
        if token not in self._names:
            raise WorkError(f"{self.where}: has no token {token}, which is in the shards")
        return token_bytes(self._names[token])

    def characters(
        self, tokens: npt.NDArray[np.unsignedinteger]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(UTF-8 characters that begin in each token, whether it begins inside of one)."""
        alone, places = np.unique(tokens, return_inverse=True)
        data = [self.bytes_of(token) for token in alone.tolist()]
        lead = np.array([sum((byte & 0xC0) != 0x80 for byte in part) for part in data], np.int64)
        inside = np.array([bool(part) and (part[0] & 0xC0) == 0x80 for part in data], np.bool_)
        return lead[places], inside[places]

    def normalized(self, text: str) -> str:
        """A text as its tokens stand for it: the same, or its canonical composition where the tokenizer composes."""
        if not self.alters:
            return text
        import pyarrow as pa

        from corpusmill.pipeline.bpe.encode import normalized
        from corpusmill.pipeline.bpe.load import load_bpe

        bpe = load_bpe(self.data, self.added[self.eos_id], self.where)
        return str(normalized(bpe, pa.chunked_array([[text]], pa.large_string()))[0].as_py())
