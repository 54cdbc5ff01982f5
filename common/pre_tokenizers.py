"""How byte-level BPE tokenizers split text before merging: the sections of `tokenizer.json`, and what llama.cpp calls the same rules."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class LlamaCpp(NamedTuple):
    """A rule as llama.cpp has it: the value of `tokenizer.ggml.pre`, whether a word that is a token itself is taken without
    merging, and where its splits differ from the rule's."""

    name: str
    ignore_merges: bool = False
    differs: str | None = None


# `src/llama-vocab.cpp`. `llama-bpe` and `dbrx` have one pattern and differ in merging alone.
LLAMA_CPP: dict[tuple[str, str], tuple[LlamaCpp, ...]] = {
    ("gpt2", "as_pattern"): (LlamaCpp("gpt-2"),),
    ("gpt2", "single"): (LlamaCpp("starcoder"),),
    ("llama3", "as_pattern"): (LlamaCpp("dbrx"), LlamaCpp("llama-bpe", ignore_merges=True)),
    ("llama3", "single"): (LlamaCpp("qwen2"),),
    ("gpt4o", "as_pattern"): (
        LlamaCpp(
            "gpt-4o",
            differs="llama.cpp knows A to Z alone as capitals and takes combining marks for signs: ASCII text is split as in"
            " training, other text may not be",
        ),
    ),
}


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


def shortened(section: dict[str, Any], longest: int) -> dict[str, Any]:
    """A byte-level section whose pieces are cut after every `longest` bytes."""
    return _sequence(section, _split(f".{{1,{longest}}}"))


def llama_cpp(section: Any, ignore_merges: bool) -> LlamaCpp | None:
    """What llama.cpp calls the rule of a `pre_tokenizer` section, merging as `ignore_merges` says; None if it has no such rule."""
    for (name, digits), known in LLAMA_CPP.items():
        if _plain(section) == _plain(pre_tokenizer(name, digits)):
            return next((one for one in known if one.ignore_merges == ignore_merges), None)
    return None


def _plain(section: Any) -> Any:
    """A section without what does not change its pieces; `use_regex` and sequences of one written out."""
    if not isinstance(section, dict):
        return section
    if section.get("type") == "Sequence":
        parts = [_plain(part) for part in section.get("pretokenizers") or ()]
        return parts[0] if len(parts) == 1 else parts
    if section.get("type") == "ByteLevel":
        return {"use_regex": True, **{key: value for key, value in section.items() if key != "trim_offsets"}}
    return section


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}
