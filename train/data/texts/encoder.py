"""Texts to token ids by the `tokenizers` library, and where in a text a token begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.blocks import Tokens, id_type
from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import library
from corpusmill.common.storage import Folder

# Names of end-of-document tokens, in the order of preference.
ENDS = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>")
CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class Encoder:
    """`tokenizer`: a `tokenizers.Tokenizer` that adds no tokens, does not truncate, and encodes the names of special tokens as
    text. `composes`: it normalises texts to NFC, in which characters are counted."""

    tokenizer: Any
    eos_id: int
    vocab_size: int  # one more than the highest id
    composes: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every id."""
        return id_type(self.vocab_size)

    def plain(self, text: str) -> str:
        """The text that the tokens represent."""
        return str(self.tokenizer.normalizer.normalize_str(text)) if self.composes else text

    def encode(self, texts: Sequence[str]) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """(tokens of all texts, an end-of-document one after each; the len + 1 offsets of the texts in them)."""
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(one) + 1 for one in found], out=offsets[1:])
        tokens = np.full(int(offsets[-1]), self.eos_id, dtype=self.dtype)
        for one, low, high in zip(found, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            tokens[low : high - 1] = one.ids
        return tokens, offsets

    def cuts(self, text: str, places: Sequence[int]) -> list[tuple[int, int]]:
        """For each of these tokens of a text: (where the characters of the token before end, where its own begin). A
        token may begin inside a character, which then belongs to both."""
        whole = self.tokenizer.encode(text, add_special_tokens=False)
        found = []
        for place in places:
            end = whole.token_to_chars(place - 1)[1]
            begin = whole.token_to_chars(place)[0] if place < len(whole) else len(text)
            found.append((end, min(begin, end)) if place < len(whole) else (len(text), len(text)))
        return found


def load_encoder(data: bytes, where: str, eos_id: int | None = None, config: bytes | None = None) -> Encoder:
    """From the bytes of a `tokenizer.json`; `config`: those of the `tokenizer_config.json` beside it, if there is one.

    The end-of-document token is `eos_id`, or the one that `config` names, or the first of `ENDS` that is there. Raises
    `UserError` naming `where` if it is no tokenizer, or has no such token.
    """
    tokenizer, content = library(data, where), json.loads(data)
    # It would only add tokens, or leave white space out of the tokens' characters.
    tokenizer.post_processor = None
    if eos_id is None:
        eos_id = _end(tokenizer, _named(config, where), where)
    name = tokenizer.id_to_token(eos_id)
    if name is None:
        raise UserError(f"{where}: has no token {eos_id}, by which documents should end")
    if eos_id in tokenizer.encode(name, add_special_tokens=False).ids:
        raise UserError(
            f"{where}: text can forge the end of a document: '{name}' in a text becomes the token {eos_id};"
            " use a tokenizer in which it is a special token"
        )
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    return Encoder(tokenizer, eos_id, size, _composes(content.get("normalizer")))


def read_encoder(file: Folder) -> tuple[bytes, Encoder]:
    """The bytes of a user's `tokenizer.json`, and its encoder. Raises `UserError` if there is none."""
    try:
        data = file.read()
    except FileNotFoundError:
        raise UserError(f"data.tokenizer: {file}: no such file; give the path of a tokenizer.json") from None
    try:
        config = (file.parent / CONFIG).read()
    except FileNotFoundError:
        config = None
    return data, load_encoder(data, str(file), config=config)


def _named(config: bytes | None, where: str) -> str | None:
    """The `eos_token` of a `tokenizer_config.json`: a string, or an object with `content`."""
    if config is None:
        return None
    try:
        named = json.loads(config).get("eos_token")
    except (ValueError, AttributeError):
        raise UserError(f"{CONFIG} beside {where}: not a JSON object") from None
    return named.get("content") if isinstance(named, dict) else named


def _end(tokenizer: Any, named: str | None, where: str) -> int:
    special = {token.content: i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    if named is not None and named not in special:
        raise UserError(f"{where}: no special token '{named}', which {CONFIG} beside it names as eos_token")
    found = next((name for name in ([named] if named else ENDS) if name in special), None)
    if found is None:
        raise UserError(
            f"{where}: no special token that ends documents, such as {', '.join(ENDS)}; name it as eos_token in a"
            f" {CONFIG} beside it"
        )
    return int(special[found])


def _composes(normalizer: dict[str, Any] | None) -> bool:
    """Whether a tokenizer's normalizer is NFC alone."""
    if normalizer is None:
        return False
    if normalizer["type"] == "Sequence":
        parts = normalizer["normalizers"]
        return bool(parts) and all(_composes(part) for part in parts)
    return bool(normalizer["type"] == "NFC")
