"""A byte-level tokenizer (BPE, Unigram, WordPiece), loaded and checked: it must give back every text as it was, or its canonical
composition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.blocks import id_type
from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import continuing_prefix, library, token_bytes
from corpusmill.pipeline.bpe.engine import Engine
from corpusmill.pipeline.bpe.recognise import UnknownToUs, nfc, read
from corpusmill.pipeline.bpe.texts import Needles

MODELS = ("BPE", "Unigram", "WordPiece")
# What any byte-level tokenizer must give back as it was.
_PROBES = (
    "a",
    " a",
    "a  b\n\n\tc ",
    "É é ﬁ e\u0301",
    "日本語 привет",
    "👩🏽‍🚀\u200b\ufeff",
    "\x00\x7f\r\n",
    "it's 12,345.67",
)


class Pieces(NamedTuple):
    """Token i stands for `data[bounds[i]:bounds[i + 1]]` (uint8, int64[V + 1])."""

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]


class Bpe(NamedTuple):
    """`tokenizer` is a `tokenizers.Tokenizer`; the tables are indexed by token id."""

    tokenizer: Any
    eos_id: int
    vocab_size: int  # one more than the highest id
    byte_lengths: npt.NDArray[np.int32]  # bytes of text that a token stands for
    lead_bytes: npt.NDArray[np.int32]  # UTF-8 characters that begin in the token; 0 for the end of a document
    inside: npt.NDArray[np.bool_]  # the token begins in the middle of a UTF-8 character
    pieces: Pieces  # the bytes of every token
    nfc: bool  # texts are put into canonical composition first: `encode.normalized`
    engine: Engine | None  # our kernels, made ready for it; None: the library encodes
    why: str  # what of it the kernels do not know, where there is no engine
    in_text: tuple[str, ...]  # added tokens that are not special: text that holds one is the library's
    needles: Needles  # the same, to be found in texts

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every id."""
        return id_type(self.vocab_size)


def load_bpe(data: bytes, eos_token: str, where: str) -> Bpe:
    """A tokenizer from the bytes of a `tokenizer.json`; the last two are kept, with their tables of pre-tokens.

    Raises `UserError` naming `where` if it is not one, is not byte-level, alters text or lacks `eos_token`.
    """
    return _load(data, eos_token, where)


@lru_cache(maxsize=2)
def _load(data: bytes, eos_token: str, where: str) -> Bpe:
    tokenizer, content = library(data, where), json.loads(data)
    kind = type(tokenizer.model).__name__
    if kind not in MODELS or "ByteLevel" not in _types(content.get("decoder")):
        raise UserError(
            f"{where}: only byte-level BPE tokenizers (GPT-2, Llama 3 and their like) are supported, and Unigram and"
            " WordPiece over bytes, as `corpusmill tokenizer` trains them"
        )
    composes, why = False, ""
    with suppress(UnknownToUs):
        composes = nfc(content)
    for probe in _PROBES:
        wanted = tokenizer.normalizer.normalize_str(probe) if composes else probe
        if decode(tokenizer, tokenizer.encode(probe, add_special_tokens=False).ids) != wanted:
            raise UserError(
                f"{where}: it does not give back the text {probe!r} (a normalizer, a prefix space, a missing"
                " byte); only tokenizers that keep every byte are supported"
            )
    added = {token["content"]: token for token in content.get("added_tokens", [])}
    for name, token in added.items():
        if not token.get("special") and (token.get("lstrip") or token.get("rstrip")):
            raise UserError(
                f"{where}: its added token {name!r} takes the white space beside it (lstrip, rstrip), which does not come"
                " back; only tokenizers that keep every byte are supported"
            )
    if not added.get(eos_token, {}).get("special"):
        special = sorted(name for name, token in added.items() if token.get("special"))[:8]
        raise UserError(
            f"{where}: no special token '{eos_token}' to end documents; set tokenizer.eos_token to its own"
            + (f": {', '.join(special)}" if special else "")
        )
    eos_id = int(tokenizer.token_to_id(eos_token) or 0)
    try:
        engine: Engine | None = Engine(content, read(content))
    except UnknownToUs as reason:
        engine, why = None, str(reason)
    in_text = tuple(sorted(name for name, token in added.items() if name and not token.get("special")))
    needles = {*in_text, *(tokenizer.normalizer.normalize_str(name) for name in in_text if composes)}
    return Bpe(
        tokenizer, eos_id, *_tables(tokenizer, frozenset(added), eos_id, continuing_prefix(content)), composes, engine,
        why, in_text, Needles(sorted(needles)),
    )  # fmt: skip


def _types(decoder: Any) -> set[str]:
    """Types of a decoder and of those in its sequence."""
    if not isinstance(decoder, dict):
        return set()
    return {str(decoder.get("type"))}.union(*(_types(part) for part in decoder.get("decoders", [])))


def _tables(
    tokenizer: Any, added: frozenset[str], eos_id: int, prefix: str
) -> tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.bool_], Pieces]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values()) + 1
    of = [b""] * size
    for token, index in vocabulary.items():
        of[index] = token.encode() if token in added else token_bytes(token, prefix)
    bounds = np.zeros(size + 1, np.int64)
    np.cumsum([len(data) for data in of], out=bounds[1:])
    lengths = np.diff(bounds).astype(np.int32)
    data = np.frombuffer(b"".join(of), np.uint8)
    begins = (data & 0xC0) != 0x80  # a UTF-8 character, at that byte
    leads = np.diff(np.cumsum(begins, dtype=np.int32)[bounds - 1] * (bounds > 0)).astype(np.int32)
    inside = np.zeros(size, np.bool_)
    inside[lengths > 0] = ~begins[bounds[:-1][lengths > 0]]
    lengths[eos_id] = leads[eos_id] = 0
    return size, lengths, leads, inside, Pieces(data, bounds)


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of ids, special tokens included."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))
