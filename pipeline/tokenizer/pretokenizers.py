"""How text is cut before merging: the `pre_tokenizer` and `normalizer` sections of `tokenizer.json`, letter for letter as
the models named publish them, so that every reader knows them by their content."""

from __future__ import annotations

from typing import Any

# GPT-2 (Radford et al. 2019): the library's ByteLevel has its pattern inside. Llama 3 (Meta 2024), which is cl100k's with
# greedy quantifiers; with `\p{N}` in place of `\p{N}{1,3}` it is Qwen 2's. GPT-4o (o200k_base of tiktoken): words begin at a
# capital after small letters, and combining marks belong to their word.
_TRIPLES, _SINGLE = r"\p{N}{1,3}", r"\p{N}"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"llama3": LLAMA3, "gpt4o": GPT4O}


def pre_tokenizer(name: str, digits: str) -> dict[str, Any]:
    """The section for `name` (gpt2, llama3, gpt4o) and `digits`: `as_pattern`, `triples` (at most three digits to a piece) or
    `single` (each digit a piece of its own).

    GPT-2 with single digits is StarCoder's and SmolLM's: `Digits` before `ByteLevel`. With triples, a `Split` stands there, as
    DeepSeek has it. The other patterns have threes of themselves.
    """
    if name == "gpt2":
        if digits == "as_pattern":
            return _byte_level(use_regex=True)
        first = {"type": "Digits", "individual_digits": True} if digits == "single" else _split(_TRIPLES)
        return _sequence(first, _byte_level(use_regex=True))
    pattern = PATTERNS[name]
    if digits == "single":
        pattern = pattern.replace(_TRIPLES, _SINGLE)
    return _sequence(_split(pattern), _byte_level(use_regex=False))


def normalizer(nfc: bool) -> dict[str, Any] | None:
    """Canonical composition before all else, or nothing."""
    return {"type": "NFC"} if nfc else None


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}
