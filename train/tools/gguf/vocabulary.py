"""A `tokenizer.json` as GGUF has it: tokens with their types, merges, and llama.cpp's name of the rule by which text is split.

A name that stands for another rule changes what the model reads without a word, so a tokenizer whose rule llama.cpp does not have
is refused.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.pre_tokenizers import LlamaCpp, llama_cpp

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # token types (`gguf.TokenType`)
FLAGS = ("lstrip", "rstrip", "single_word")


class Vocabulary(NamedTuple):
    """`tokens` and `types`: of every row of the embedding. `notes`: where llama.cpp may read text otherwise than training did."""

    tokens: list[str]
    types: list[int]
    merges: list[str]
    rule: LlamaCpp
    notes: list[str]


def vocabulary(tokenizer: bytes, rows: int, where: object) -> Vocabulary:
    """Of a model with `rows` rows of embedding, of which those without a token are unused ones.

    Raises `UserError`, naming the file `where`, for a tokenizer that llama.cpp would read otherwise.
    """
    data = json.loads(tokenizer)
    model, added = data.get("model") or {}, data.get("added_tokens") or []
    if model.get("type", "BPE") != "BPE":
        raise UserError(f"{where}: model.type: {model['type']}: GGUF is written for BPE alone")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise UserError(
                f"{where}: model.{key}: {model[key]}: GGUF cannot say it (it would have to be null)"
            )
    for token in added:
        flag = next((flag for flag in FLAGS if token.get(flag)), None)
        if flag:
            raise UserError(f"{where}: added_tokens: {token['content']!r} has {flag}, which GGUF cannot say")
    rule = _rule(data, bool(model.get("ignore_merges")), where)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or []]
    if not merges:
        raise UserError(f"{where}: has no merges, and llama.cpp loads no tokenizer without them")
    notes = [] if rule.differs is None else [rule.differs]
    if data.get("normalizer") is not None:
        notes.append(
            "llama.cpp does not compose characters (NFC) as the tokenizer does: text that is not composed is read otherwise"
        )
    return Vocabulary(*_tokens(model["vocab"], added, rows, where), merges, rule, notes)


def _rule(data: dict[str, Any], ignore_merges: bool, where: object) -> LlamaCpp:
    normalizer = data.get("normalizer")
    if normalizer not in (None, {"type": "NFC"}):
        raise UserError(
            f"{where}: normalizer: {normalizer.get('type')}: llama.cpp has it for no BPE tokenizer"
        )
    found = llama_cpp(data.get("pre_tokenizer"), ignore_merges)
    if found is None:
        raise UserError(
            f"{where}: pre_tokenizer: llama.cpp splits text by no such rule{', merging not' if ignore_merges else ''}, and another"
            " one would change what the model reads; export --format hf, or train a tokenizer with pre_tokenizer gpt2 or llama3"
            " and digits as_pattern or single, or gpt4o and as_pattern"
        )
    return found


def _tokens(
    known: dict[str, int], added: list[dict[str, Any]], rows: int, where: object
) -> tuple[list[str], list[int]]:
    """Texts and types of all rows, in order."""
    tokens, types = [f"[PAD{row}]" for row in range(rows)], [UNUSED] * rows
    extra = {token["content"]: CONTROL if token.get("special") else USER_DEFINED for token in added}
    numbers = {**known, **{token["content"]: int(token["id"]) for token in added}}
    for text, number in numbers.items():
        if number >= rows:
            raise UserError(f"{where}: token {text!r} has number {number}, and the model has {rows} rows")
        tokens[number], types[number] = text, extra.get(text, NORMAL)
    return tokens, types
