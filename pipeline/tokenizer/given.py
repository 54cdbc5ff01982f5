"""A tokenizer that the user gives in place of training: its bytes, and which of its tokens ends a document."""

from __future__ import annotations

import contextlib
import json

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.tokenizer import TokenizerParams

# What published byte-level tokenizers call it; of several, the first.
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>")
TRAIN = ", or leave it out to train one"
DEFAULT: str = TokenizerParams.model_fields["eos_token"].default


def read_given(key: str, path: str, otherwise: str = "") -> bytes:
    """The bytes of a `tokenizer.json`, of any name, or of the one in a folder.

    Raises `UserError` naming `key` if there is none, or what is there is something else; `otherwise`: what else may be done.
    """
    place = Folder(path)
    give = f"give a tokenizer.json, or a folder that has one{otherwise}"
    for file in (place,) if path.endswith(".json") else (place / "tokenizer.json", place):
        with contextlib.suppress(FileNotFoundError):
            data = file.read()
            break
    else:
        raise UserError(f"{key}: {path}: no such file; {give}")
    try:
        known = "model" in json.loads(data)
    except (ValueError, TypeError, RecursionError):
        known = False
    if not known:
        raise UserError(f"{key}: {path}: not a tokenizer.json; {give}")
    return data


def end_token(data: bytes, wanted: str) -> str:
    """The token that ends documents: `wanted`; but where it is the default, and the tokenizer has no such special token, the
    one that it is known to have for this. (`load_bpe` refuses a tokenizer without the one returned, and lists its special tokens.)
    """
    try:
        added = json.loads(data).get("added_tokens", [])
        special = {token["content"] for token in added if token.get("special")}
    except (ValueError, AttributeError, TypeError, KeyError):
        return wanted  # not a tokenizer.json: loading it raises the error
    if wanted in special or wanted != DEFAULT:
        return wanted
    return next((name for name in ENDS if name in special), wanted)
