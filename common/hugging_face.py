"""The files beside `tokenizer.json` with which `transformers` loads the folder: `AutoTokenizer.from_pretrained(folder)`."""

from __future__ import annotations

import json
from typing import Any

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def config(tokenizer: bytes, eos_token: str) -> bytes:
    """`tokenizer_config.json` for a `tokenizer.json`: its added tokens, and nothing that would add a token to a text."""
    added = json.loads(tokenizer).get("added_tokens", [])
    content: dict[str, Any] = {
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {"content": token["content"], **{flag: token[flag] for flag in _FLAGS}}
            for token in added
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": eos_token,
        "additional_special_tokens": _others(added, eos_token),
        "model_max_length": int(1e30),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def special_tokens_map(tokenizer: bytes, eos_token: str) -> bytes:
    """`special_tokens_map.json`: the end of a document by its role, the other special tokens by name."""
    added = json.loads(tokenizer).get("added_tokens", [])
    content = {"eos_token": eos_token, "additional_special_tokens": _others(added, eos_token)}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _others(added: list[dict[str, Any]], eos_token: str) -> list[str]:
    return [token["content"] for token in added if token["special"] and token["content"] != eos_token]
