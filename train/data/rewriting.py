"""What the rows of a run are changed into: `data.masking` or `data.infill`, by the tokens of its tokenizer."""

from __future__ import annotations

import json
from typing import NamedTuple

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.data import DataConfig
from corpusmill.train.data.infill import Infill
from corpusmill.train.data.masking import Masking, Words
from corpusmill.train.data.shards import Shards

Rewriting = Masking | Infill


class Vocabulary(NamedTuple):
    """A tokenizer.json, its end of text, how many ids it has, and where it lies."""

    tokenizer: bytes
    eos_id: int
    size: int
    where: str

    @classmethod
    def of(cls, shards: Shards) -> Vocabulary:
        kept = shards.set
        return cls(shards.tokenizer(), kept.eos_id, kept.vocab_size, str(shards.folder / kept.tokenizer))


def rewriting(data: DataConfig, vocabulary: Vocabulary, seed: int) -> Rewriting | None:
    """None: rows stay as they are. Raises `UserError` for a token that the tokenizer does not have."""
    kept = vocabulary.tokenizer, vocabulary.where
    if data.masking is not None:
        mask = special_id(*kept, data.masking.token, "masking.token")
        text = TokenText(vocabulary.tokenizer, vocabulary.eos_id, vocabulary.where)
        return Masking(data.masking, Words.of(text, vocabulary.size), mask, seed)
    if data.infill is not None:
        keys = ("prefix_token", "suffix_token", "middle_token")
        prefix, suffix, middle = (
            special_id(*kept, getattr(data.infill, key), f"infill.{key}") for key in keys
        )
        return Infill(data.infill, (prefix, suffix, middle), vocabulary.eos_id, seed)
    return None


def special_id(tokenizer: bytes, where: str, token: str, key: str) -> int:
    """The id of a special token of a tokenizer.json. Raises `UserError` naming the `data` key that asks for it."""
    added = {row["content"]: int(row["id"]) for row in json.loads(tokenizer).get("added_tokens", [])}
    if token not in added:
        raise UserError(
            f"data.{key}: '{token}' is no special token of {where}{nearest(token, list(added))} (they are: {', '.join(added) or 'none'});"
            " add it to special_tokens of the recipe's tokenizer"
        )
    return added[token]
