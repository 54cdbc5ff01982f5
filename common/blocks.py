"""Encoded documents into a tar of token blocks (`schemas.shards`): cut at a fixed number of tokens, three members a block.

Both the `shard` stage, with its own kernels, and a training run on texts, with the `tokenizers` library, write their shards
with `write_blocks`; conversations, which are packed in rows, with `BlockWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from corpusmill.common.tar import Sink, TarWriter, npy

Tokens = npt.NDArray[np.unsignedinteger[Any]]
Longs = npt.NDArray[np.int64]


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds every token id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def vocabulary(vocab_size: int, eos_id: int) -> dict[str, Any]:
    """The fields that describe the tokens in every index of a shard set."""
    return {"vocab_size": vocab_size, "eos_id": eos_id, "dtype": id_type(vocab_size).name}


class Encoded(NamedTuple):
    """Some whole documents, each with its end-of-document token.

    `tokens` with their len + 1 `offsets`, none of them empty; `ids` of n x 16 bytes; `chars`, the characters of each;
    `text_bytes` of all. Where a block's edge falls into document i, before its tokens p, `cuts_of(i, p)` gives for each of
    them (where the characters of the token before end, where its own begin).
    """

    tokens: Tokens
    offsets: Longs
    ids: npt.NDArray[np.uint8]
    chars: Longs
    text_bytes: int
    cuts_of: Callable[[int, Sequence[int]], Iterable[tuple[int, int]]]


class Cut(NamedTuple):
    """A block: its tokens, and per document segment the document's id (16 bytes), first token, and characters.

    Characters count from the document's beginning. A token may end inside a UTF-8 character: that character
    belongs to both blocks, so `char_ends` is rounded up and the next block's `char_starts` down. `targets`: of each token,
    what training does with it (`schemas.shards.Target`); None: every one is a label.
    """

    tokens: Tokens
    ids: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.uint32]
    char_starts: npt.NDArray[np.int64]
    char_ends: npt.NDArray[np.int64]
    targets: npt.NDArray[np.uint8] | None = None


class Cutter:
    """Cuts a stream of documents into blocks of `block_tokens`; holds less than a block between calls."""

    def __init__(self, block_tokens: int, dtype: npt.DTypeLike) -> None:
        self.block_tokens = block_tokens
        self._tokens: Tokens = np.zeros(0, dtype=dtype)  # what fills no block yet
        self._ids = np.zeros((0, 16), dtype=np.uint8)  # of its document segments; the next three too
        self._starts, self._char_starts, self._char_ends = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def feed(self, docs: Encoded) -> Iterator[Cut]:
        """The blocks that these documents fill. A document that is cut goes on in the next block."""
        tokens, offsets = docs.tokens, docs.offsets
        edges = np.arange(self.block_tokens - len(self._tokens), len(tokens), self.block_tokens)
        inner = edges[~np.isin(edges, offsets)]
        starts = np.union1d(offsets[:-1], inner)
        rows = offsets.searchsorted(starts, side="right") - 1
        char_starts, char_ends = np.zeros(len(starts), dtype=np.int64), docs.chars[rows]
        cut_rows = offsets.searchsorted(inner, side="right") - 1
        for row in np.unique(cut_rows).tolist():
            places = inner[cut_rows == row]
            at = starts.searchsorted(places)
            cuts = np.array(list(docs.cuts_of(row, (places - offsets[row]).tolist())), dtype=np.int64)
            char_ends[at - 1], char_starts[at] = cuts[:, 0], cuts[:, 1]
        self._starts = np.concatenate([self._starts, starts + len(self._tokens)])
        self._tokens = np.concatenate([self._tokens, tokens])
        self._ids = np.concatenate([self._ids, docs.ids[rows]])
        self._char_starts = np.concatenate([self._char_starts, char_starts])
        self._char_ends = np.concatenate([self._char_ends, char_ends])
        while len(self._tokens) >= self.block_tokens:
            yield self._cut(self.block_tokens)
        self._tokens = self._tokens.copy()  # what is left alone, not all that was fed

    def rest(self) -> Iterator[Cut]:
        """The last block, if tokens are left: a shorter one."""
        if len(self._tokens):
            yield self._cut(len(self._tokens))

    def _cut(self, size: int) -> Cut:
        n = int(self._starts.searchsorted(size))
        cut = Cut(
            self._tokens[:size], self._ids[:n], self._starts[:n].astype(np.uint32), self._char_starts[:n],
            self._char_ends[:n],
        )  # fmt: skip
        self._tokens, self._ids, self._starts = self._tokens[size:], self._ids[n:], self._starts[n:] - size
        self._char_starts, self._char_ends = self._char_starts[n:], self._char_ends[n:]
        return cut


class BlockTar(NamedTuple):
    """A tar that was written: the fields of its entry in the index (`schemas.shards.Shard`), its xxh3, and its `.idx`."""

    shard: dict[str, Any]
    xxh3: str
    sidecar: bytes


def write_blocks(
    documents: Iterable[Encoded], stem: str, block_tokens: int, dtype: npt.DTypeLike, sink: Sink
) -> BlockTar:
    """Write the tar `<stem>.tar` of documents in their order to `sink`. Keys are `<stem>-<block>`."""
    writer, cutter = BlockWriter(stem, sink), Cutter(block_tokens, dtype)
    ndocs = text_bytes = 0
    for docs in documents:
        writer.add(cutter.feed(docs))
        ndocs += len(docs.ids)
        text_bytes += docs.text_bytes
    writer.add(cutter.rest())
    return writer.finish(ndocs, text_bytes)


class BlockWriter:
    """Writes the blocks of the tar `<stem>.tar` to `sink`, one by one. Keys are `<stem>-<block>`."""

    def __init__(self, stem: str, sink: Sink) -> None:
        self._stem, self._tar = stem, TarWriter(sink)
        self._blocks: list[dict[str, Any]] = []

    def add(self, cuts: Iterable[Cut]) -> None:
        for cut in cuts:
            self._blocks.append(add_block(self._tar, cut, f"{self._stem}-{len(self._blocks):06d}"))

    def finish(self, ndocs: int, text_bytes: int) -> BlockTar:
        """End the tar. `ndocs`: documents that begin in it; `text_bytes`: UTF-8 bytes behind its labels."""
        sidecar, blocks = self._tar.finish(), self._blocks
        shard = {
            "url": f"{self._stem}.tar", "nsamples": len(blocks), "filesize": self._tar.size, "sha256": self._tar.sha256,
            "ntokens": sum(block["ntokens"] for block in blocks), "ndocs": ndocs, "text_bytes": text_bytes,
            "blocks": blocks,
        }  # fmt: skip
        return BlockTar(shard, self._tar.xxh3, sidecar)


def add_block(tar: TarWriter, cut: Cut, key: str) -> dict[str, Any]:
    """Append the members of a block; the fields of its line in the index (`schemas.shards.Block`), where they lie."""
    header, tokens = npy(cut.tokens)
    tar.begin_sample()
    first = tar.add(f"{key}.tokens.npy", header, tokens)
    second = tar.add(f"{key}.docs.npy", *npy(cut.starts))
    targets = {}
    if cut.targets is not None:
        member = tar.add(f"{key}.targets.npy", *npy(cut.targets))
        targets["targets"] = {"offset": member.offset, "size": member.size, "xxh3": member.xxh3}
    third = tar.add(f"{key}.json", described(cut))
    return {
        "key": key, "offset": first.offset, "size": first.size, "header": len(header), "xxh3": first.xxh3,
        "docs_offset": second.offset, "docs_size": second.size, "docs_xxh3": second.xxh3,
        "json_offset": third.offset, "json_size": third.size, "json_xxh3": third.xxh3,
        "ntokens": len(cut.tokens), "ndocs": len(cut.ids), **targets,
    }  # fmt: skip


def described(cut: Cut) -> bytes:
    """The `.json` member (`BlockDocuments`), made of arrays."""
    size = 2 * cut.ids.shape[1]
    quoted = np.full((len(cut.ids), size + 3), ord('"'), dtype=np.uint8)
    digits = np.frombuffer(cut.ids.tobytes().hex().encode(), dtype=np.uint8)
    quoted[:, 1 : size + 1] = digits.reshape(-1, size)
    quoted[:, -1] = ord(",")
    ids = b"[" + quoted.tobytes()[:-1] + b"]"
    fields = {
        "doc_ids": orjson.Fragment(ids), "token_starts": cut.starts, "char_starts": cut.char_starts,
        "char_ends": cut.char_ends,
    }  # fmt: skip
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
