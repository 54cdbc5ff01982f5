"""A block of tokens on its way into a tar: the three members of `shards.py`, and the block's line in the index."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from corpusmill.common.tar import TarWriter, npy

Tokens = npt.NDArray[np.unsignedinteger[Any]]


class Cut(NamedTuple):
    """A block: its tokens, and per document segment the document's id (16 bytes), first token, and characters.

    Characters count from the document's beginning. A token may end inside a UTF-8 character: that character
    belongs to both blocks, so `char_ends` is rounded up and the next block's `char_starts` down.
    """

    tokens: Tokens
    ids: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.uint32]
    char_starts: npt.NDArray[np.int64]
    char_ends: npt.NDArray[np.int64]


def add_block(tar: TarWriter, cut: Cut, key: str) -> dict[str, Any]:
    """Append the members of a block; the fields of its line in the index (`schemas.shards.Block`), where they lie."""
    header, tokens = npy(cut.tokens)
    tar.begin_sample()
    first = tar.add(f"{key}.tokens.npy", header, tokens)
    second = tar.add(f"{key}.docs.npy", *npy(cut.starts))
    third = tar.add(f"{key}.json", described(cut))
    return {
        "key": key, "offset": first.offset, "size": first.size, "header": len(header), "xxh3": first.xxh3,
        "docs_offset": second.offset, "docs_size": second.size, "docs_xxh3": second.xxh3,
        "json_offset": third.offset, "json_size": third.size, "json_xxh3": third.xxh3,
        "ntokens": len(cut.tokens), "ndocs": len(cut.ids),
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
