"""A tokenizer that the user gives in place of training: its bytes, and which of its tokens ends a document."""

from __future__ import annotations

import json

from schemas.errors import UserError
from schemas.storage import Folder
from schemas.tokenizer import TokenizerParams

# What published byte-level tokenizers call it; of several, the first.
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>")
DEFAULT: str = TokenizerParams.model_fields["eos_token"].default


def read_given(key: str, path: str) -> bytes:
    """The bytes of a `tokenizer.json`, or of the one in a folder. Raises `UserError` naming `key` if there is none."""
    place = Folder(path)
    try:
        return (place / "tokenizer.json" if not path.endswith(".json") else place).read()
    except FileNotFoundError:
        raise UserError(f"{key}: {path}: no such file; give a tokenizer.json, or none") from None


def end_token(data: bytes, wanted: str) -> str:
    """The token that ends documents: `wanted`; but where it is the default, and the tokenizer has no such special token, the
    one that it is known to have for this. (`load_bpe` refuses a tokenizer without the one returned, and lists its special tokens.)
    """
    try:
        added = json.loads(data).get("added_tokens", [])
        special = {token["content"] for token in added if token.get("special")}
    except (ValueError, AttributeError, TypeError, KeyError):
        return wanted  # not a tokenizer.json: whoever loads it says so
    if wanted in special or wanted != DEFAULT:
        return wanted
    return next((name for name in ENDS if name in special), wanted)
