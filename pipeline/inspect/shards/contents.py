"""Check a block's members against each other, against the index and against the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.common.hugging_face import continuing_prefix, token_bytes
from corpusmill.pipeline.bpe.load import Bpe
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.shard.read import BlockData
from corpusmill.pipeline.shard.segments import weigh
from corpusmill.schemas.shards import Block, Shard, ShardIndex


class _Table(NamedTuple):
    data: npt.NDArray[np.uint8]  # the bytes of all tokens, one after the other
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def text_of(bpe: Bpe, tokens: npt.NDArray[np.unsignedinteger]) -> bytes:
    """UTF-8 of a document's tokens, its end-of-document token left out."""
    table = _table(bpe.tokenizer, bpe.vocab_size)
    lengths = table.lengths[tokens]
    ends = np.cumsum(lengths)
    if len(ends) == 0:
        return b""
    shift = table.starts[tokens] - (ends - lengths)
    text: bytes = table.data[np.arange(ends[-1]) + np.repeat(shift, lengths)].tobytes()
    return text


@lru_cache(maxsize=1)
def _table(tokenizer: object, size: int) -> _Table:
    """By the tokenizer's own vocabulary, not by the tables that the shards were written with."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}  # type: ignore[attr-defined]
    prefix = continuing_prefix(json.loads(tokenizer.to_str()))  # type: ignore[attr-defined]
    pieces = [b""] * size
    for token, index in tokenizer.get_vocab(with_added_tokens=True).items():  # type: ignore[attr-defined]
        pieces[index] = token.encode() if token in added else token_bytes(token, prefix)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return _Table(np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(lengths) - lengths, lengths)


IDS = np.dtype("V16")
SAMPLE_SEED = 0x5EED  # of the hash by which documents are chosen to be decoded


class DocumentHashes(NamedTuple):
    """Documents, and the xxh3_128 of their text: V16 each, row by row."""

    ids: npt.NDArray[np.void]
    hashes: npt.NDArray[np.void]


class Contents:
    """Blocks of one tar in their order. A document may go on from one to the next.

    `bpe` None: what follows from the tokens is not checked. `limit`: which documents are decoded.
    """

    def __init__(self, index: ShardIndex, bpe: Bpe | None, limit: int) -> None:
        self.index, self.bpe, self.limit = index, bpe, limit
        self._open = 0  # 1: a document goes on in the next block; -1: not known, a block could not be read
        self._char_end = 0
        self._begun: list[bytes] = []
        self._text_bytes = 0
        self._pending: list[npt.NDArray[np.unsignedinteger]] | None = None  # of a chosen document
        self._chosen: list[tuple[bytes, bytes]] = []

    def lost(self) -> None:
        """A block could not be read: the next one's first document cannot be judged."""
        self._open, self._pending = -1, None

    def judge(self, data: BlockData, block: Block) -> list[str]:
        """Problems of the next block."""
        problems = self._tokens(data, block) or self._documents(data, block)
        if problems:
            self.lost()
            return problems
        if self.index.row_tokens is not None:  # whose texts are not those of the tokens
            self._begun.append(bytes.fromhex("".join(data.documents.doc_ids)))
            return []
        problems = self._characters(data)
        ids = bytes.fromhex("".join(data.documents.doc_ids))
        goes_on = self._open == 1 or (self._open == -1 and data.documents.char_starts[:1] not in ([], [0]))
        self._begun.append(ids[16:] if goes_on and ids else ids)
        self._sample(data, ids, goes_on)
        self._open = int(len(data.tokens) > 0 and int(data.tokens[-1]) != self.index.eos_id)
        return problems

    def totals(self, shard: Shard) -> list[str]:
        """Problems of the whole tar; called only where no block had one."""
        begun = sum(map(len, self._begun)) // 16
        if begun != shard.ndocs:
            return [f"{begun} documents begin here, the index says {shard.ndocs}"]
        if self._open:
            return ["its last document has no end"]
        whole = self.index.row_tokens is None
        if whole and self.bpe is not None and self._text_bytes != shard.text_bytes:
            return [
                f"its tokens stand for {self._text_bytes} bytes of text, the index says {shard.text_bytes}"
            ]
        return []

    def found(self) -> tuple[npt.NDArray[np.void], DocumentHashes]:
        """(documents that begin here, the chosen ones with the hash of their text)."""
        ids, hashes = (b"".join(pair[i] for pair in self._chosen) for i in (0, 1))
        return _void(b"".join(self._begun)), DocumentHashes(_void(ids), _void(hashes))

    def _tokens(self, data: BlockData, block: Block) -> list[str]:
        tokens, index = data.tokens, self.index
        if tokens.dtype != np.dtype(index.dtype) or tokens.ndim != 1:
            return [f"tokens are {tokens.dtype}, the index says {index.dtype}"]
        if len(tokens) != block.ntokens:
            return [f"{len(tokens)} tokens, the index says {block.ntokens}"]
        if len(tokens) and int(tokens.max()) >= index.vocab_size:
            return [f"token {int(tokens.max())} is not in the vocabulary of {index.vocab_size}"]
        if block.header != block.size - tokens.nbytes:
            return [f"a header of {block.size - tokens.nbytes} bytes, the index says {block.header}"]
        return []

    def _documents(self, data: BlockData, block: Block) -> list[str]:
        documents, tokens, starts = data.documents, data.tokens, data.starts
        lists = (documents.doc_ids, documents.token_starts, documents.char_starts, documents.char_ends)
        if {len(one) for one in lists} != {block.ndocs} or documents.token_starts != starts.tolist():
            return [f"documents: .docs.npy and .json disagree, or are not the {block.ndocs} of the index"]
        if any(len(doc_id) != 32 for doc_id in documents.doc_ids):
            return ["documents: an id that is not 32 hex digits"]
        if self.index.row_tokens is not None:
            return self._rows(tokens, starts, self.index.row_tokens)
        ends = np.flatnonzero(tokens == self.index.eos_id) + 1
        if not np.array_equal(np.concatenate([[0], ends[ends < len(tokens)]]), starts):
            return ["documents do not begin where the one before ends"]
        return []

    def _rows(
        self, tokens: npt.NDArray[np.unsignedinteger], starts: npt.NDArray[np.uint32], size: int
    ) -> list[str]:
        """Of a block of rows: one end-of-document token before them, and a document begins each."""
        if len(tokens) % size != 1:
            return [f"{len(tokens)} tokens are not one and rows of {size}"]
        begins = np.arange(1, len(tokens), size)
        if (tokens[begins - 1] != self.index.eos_id).any():
            return ["a row does not follow the end of a document"]
        if starts[0] or not np.isin(begins[1:], starts).all():
            return ["a row does not begin with a document"]
        return []

    def _characters(self, data: BlockData) -> list[str]:
        """Character ranges follow from the tokens: as many as UTF-8 sequences begin in them."""
        firsts = np.array(data.documents.char_starts, np.int64)
        lasts = np.array(data.documents.char_ends, np.int64)
        if len(firsts) == 0:
            return []
        before, self._char_end = self._char_end, int(lasts[-1])
        if (firsts > lasts).any():
            return ["a document's characters end before they begin"]
        if firsts[1:].any() or (self._open == 0 and firsts[0]):
            return ["a document does not begin at its first character, and no block before holds the rest"]
        if self.bpe is None:
            return []
        edges = np.append(data.starts.astype(np.int64), len(data.tokens))
        counted, sizes = np.empty(len(firsts), np.int64), np.empty(len(firsts), np.int64)
        weigh(data.tokens, edges, self.bpe.lead_bytes, counted)
        weigh(data.tokens, edges, self.bpe.byte_lengths, sizes)
        goes_on = self._open == 1
        inside = int(goes_on and bool(self.bpe.inside[data.tokens[0]]) and before > 0)
        counted[0] += inside
        self._text_bytes += int(sizes.sum())
        if self._open == -1:  # what came before is not known
            counted, firsts, lasts = counted[1:], firsts[1:], lasts[1:]
        elif goes_on and int(firsts[0]) != before - inside:
            return [f"its first document goes on at character {firsts[0]}, the block before ends at {before}"]
        wrong = np.flatnonzero(lasts - firsts != counted)
        return [f"{len(wrong)} character ranges are not those of the tokens"] if len(wrong) else []

    def _sample(self, data: BlockData, ids: bytes, goes_on: bool) -> None:
        if self.bpe is None or self.limit == 0 or not ids:
            return
        edges = np.append(data.starts.astype(np.int64), len(data.tokens))
        chosen = np.flatnonzero(below(ids, self.limit))
        for row in chosen.tolist():
            piece = data.tokens[edges[row] : edges[row + 1]]
            first = row == 0 and goes_on
            if first and self._pending is None:
                continue  # its beginning could not be read
            parts = [*(self._pending or []), piece] if first else [piece]
            self._pending = None
            if int(piece[-1]) != self.index.eos_id:
                self._pending = [part.copy() for part in parts]
                continue
            text = text_of(self.bpe, np.concatenate(parts)[:-1])
            self._chosen.append((ids[16 * row : 16 * row + 16], xxhash.xxh3_128_digest(text)))


def below(ids: bytes, limit: int) -> npt.NDArray[np.bool_]:
    """Which of these documents (16 bytes each, one after the other) are chosen by a limit."""
    count = len(ids) // 16
    if limit >= 2**64:
        return np.ones(count, bool)
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids)])
    return hash_ids(array, SAMPLE_SEED) < np.uint64(limit)


def joined(parts: Iterable[npt.NDArray[np.void]]) -> npt.NDArray[np.void]:
    """Documents one after the other."""
    return _void(b"".join(part.tobytes() for part in parts))


def _void(data: bytes) -> npt.NDArray[np.void]:
    return np.frombuffer(data, IDS)
