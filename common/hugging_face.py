"""`tokenizer.json` as `tokenizers` and `transformers` have it: read, loaded, its tokens as bytes, and the files beside it."""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder

DEFAULT_END = "<|endoftext|>"
# What published byte-level tokenizers call the end of a document; of several, the first.
ENDS = (DEFAULT_END, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>")
TRAIN = ", or leave it out to train one"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


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


def vocabulary(tokenizer: bytes) -> Any:
    """The parts of a tokenizer.json on which the numbers of tokens depend."""
    model = json.loads(tokenizer)["model"]
    return model.get("vocab"), len(model.get("merges") or ())


def end_token(data: bytes, wanted: str) -> str:
    """The token that ends documents: `wanted`; but where it is the default, and the tokenizer has no such special token, the
    one that it is known to have for this. (`load_bpe` refuses a tokenizer without the one returned, and lists its special tokens.)
    """
    try:
        added = json.loads(data).get("added_tokens", [])
        special = {token["content"] for token in added if token.get("special")}
    except (ValueError, AttributeError, TypeError, KeyError):
        return wanted  # not a tokenizer.json: loading it raises the error
    if wanted in special or wanted != DEFAULT_END:
        return wanted
    return next((name for name in ENDS if name in special), wanted)


def library(data: bytes, where: str) -> Any:
    """A `tokenizers.Tokenizer` that encodes texts whole, and what looks like a special token as text. Raises `UserError` naming
    `where` if `data` is no `tokenizer.json`."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exception
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{where}: not a tokenizer.json that `tokenizers` reads: {reason}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


@lru_cache(maxsize=1)
def alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


@lru_cache(maxsize=1)
def _codec() -> Any:
    """The alphabet as Python's codecs of one byte a character take it."""
    return codecs.charmap_build("".join(sorted(alphabet(), key=alphabet().__getitem__)))


def alphabet_bytes(name: str) -> bytes | None:
    """The bytes that characters of the alphabet stand for; None for a name with others."""
    try:
        return codecs.charmap_encode(name, "strict", _codec())[0]
    except UnicodeEncodeError:
        return None


def token_bytes(token: str, prefix: str = "") -> bytes:
    """The bytes that a byte-level token's name stands for, `prefix` (`continuing_prefix`) left out; a name outside the alphabet
    stands for itself."""
    found = alphabet_bytes(token.removeprefix(prefix))
    return token.encode() if found is None else found


def continuing_prefix(content: Mapping[str, Any]) -> str:
    """What the names of tokens begin with that go on within a word, in a `tokenizer.json` (parsed) whose model is WordPiece;
    empty for all other models."""
    model = content["model"]
    return str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else ""


# The files beside it with which `transformers` loads the folder: `AutoTokenizer.from_pretrained(folder)`.
def config(
    tokenizer: bytes, eos_token: str, chat_template: str | None = None, mask_token: str | None = None
) -> bytes:
    """`tokenizer_config.json` for a `tokenizer.json`: its added tokens, and nothing that would add a token to a text. The template is
    there too for readers that do not know its file of its own yet."""
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
        **({} if mask_token is None else {"mask_token": mask_token}),
        "additional_special_tokens": _others(added, eos_token, mask_token),
        "model_max_length": int(1e30),
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({} if chat_template is None else {"chat_template": chat_template}),
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def special_tokens_map(tokenizer: bytes, eos_token: str, mask_token: str | None = None) -> bytes:
    """`special_tokens_map.json`: the end of a document, and a mask, by their roles, the other special tokens by name."""
    added = json.loads(tokenizer).get("added_tokens", [])
    content: dict[str, Any] = {
        "eos_token": eos_token,
        **({} if mask_token is None else {"mask_token": mask_token}),
    }
    content["additional_special_tokens"] = _others(added, eos_token, mask_token)
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _others(added: list[dict[str, Any]], *named: str | None) -> list[str]:
    return [token["content"] for token in added if token["special"] and token["content"] not in named]
