"""Which characters of a text the tokens of a byte-level tokenizer stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from corpusmill.common.errors import WorkError
from corpusmill.common.hugging_face import continuing_prefix, token_bytes

Tokens = npt.NDArray[np.unsignedinteger[Any]]


class TokenText:
    """The tokens of a `tokenizer.json`, whose bytes are `data`. `where` names its file."""

    def __init__(self, data: bytes, eos_id: int, where: str) -> None:
        content: dict[str, Any] = orjson.loads(data)
        self.data, self.eos_id, self.where = data, eos_id, where
        self.added: dict[int, str] = {t["id"]: t["content"] for t in content.get("added_tokens", ())}
        vocab = content["model"]["vocab"]
        ids = vocab.items() if isinstance(vocab, dict) else ((row[0], i) for i, row in enumerate(vocab))
        self._names: dict[int, str] = {index: name for name, index in ids}
        self.prefix = continuing_prefix(content)
        self.alters = content.get("normalizer") is not None  # NFC, or one that alters nothing
        decoder = content.get("decoder") or {}
        kinds = [decoder, *decoder.get("decoders", ())]
        self.byte_level = any(kind.get("type") == "ByteLevel" for kind in kinds)

    def bytes_of(self, token: int) -> bytes:
        """The bytes of text that a token stands for; none for the end of a document."""
        if token == self.eos_id:
            return b""
        if token in self.added:
            return self.added[token].encode()
        if token not in self._names:
            raise WorkError(f"{self.where}: has no token {token}, which is in the shards")
        return token_bytes(self._names[token], self.prefix)

    def knows(self, token: int) -> bool:
        """Whether the tokenizer has this token."""
        return token in self._names or token in self.added

    def within_words(self, token: int) -> bool:
        """Whether it stands only inside a word, behind another token: WordPiece has tokens of their own for that."""
        return bool(self.prefix) and self._names.get(token, "").startswith(self.prefix)

    def characters(self, tokens: Tokens) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(UTF-8 characters that begin in each token, whether it begins inside of one)."""
        alone, places = np.unique(tokens, return_inverse=True)
        data = [self.bytes_of(token) for token in alone.tolist()]
        lead = np.array([sum((byte & 0xC0) != 0x80 for byte in part) for part in data], np.int64)
        inside = np.array([bool(part) and (part[0] & 0xC0) == 0x80 for part in data], np.bool_)
        return lead[places], inside[places]

    def reach(self, tokens: Tokens, begin: int, first: int, last: int) -> tuple[int, int]:
        """(first, one past the last) of the characters that `tokens[first : last + 1]` stand for; `tokens` are those of a
        document, or of its part in a block, which has the characters from `begin` on. One that lies in two tokens belongs to
        both."""
        lead, inside = self.characters(tokens[: last + 1])
        # The byte at the start of a block may be the last one's.
        begun = begin + int(inside[0]) + int(lead[:first].sum())
        return begun - int(inside[first]), begun + int(lead[first:].sum())
