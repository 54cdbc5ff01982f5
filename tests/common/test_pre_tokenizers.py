"""Names of rules: every one that is trained, and what llama.cpp calls it."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models

from corpusmill.common.pre_tokenizers import LLAMA_CPP, llama_cpp, pre_tokenizer

# As `src/llama-vocab.cpp` of llama.cpp has them, as one alternation each; contractions there are written out in both cases.
CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
THERE = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "dbrx": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o": r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+"
    + CONTRACTIONS
    + r"?|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*"
    + CONTRACTIONS
    + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
ASCII = "It's 12345 HTTPServer's  x\n\n\tA1b2 I'LL/\n/ (foo_bar) == 3.14;\r\n  end "


def pieces(section: object, text: str) -> list[str]:
    data = json.loads(Tokenizer(models.BPE()).to_str())
    made = Tokenizer.from_str(json.dumps({**data, "pre_tokenizer": section}))
    return [text[a:b] for _, (a, b) in made.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(("name", "digits"), list(LLAMA_CPP))
def test_each_rule_has_its_names_back(name: str, digits: str) -> None:
    for one in LLAMA_CPP[name, digits]:
        assert llama_cpp(pre_tokenizer(name, digits), one.ignore_merges) == one
    assert llama_cpp(pre_tokenizer(name, digits), True) in (
        None,
        *(one for one in LLAMA_CPP[name, digits] if one.ignore_merges),
    )


def test_rules_that_llama_cpp_does_not_have() -> None:
    for section in (
        pre_tokenizer("gpt2", "triples"),
        pre_tokenizer("gpt4o", "single"),
        None,
        {"type": "Whitespace"},
    ):
        assert llama_cpp(section, False) is None


@pytest.mark.parametrize(
    "rule", [("gpt2", "as_pattern"), ("llama3", "as_pattern"), ("llama3", "single"), ("gpt4o", "as_pattern")]
)
def test_the_patterns_there_split_as_ours(rule: tuple[str, str]) -> None:
    """All text where nothing is noted; else ASCII."""
    known = LLAMA_CPP[rule][0]
    split = {
        "type": "Split",
        "pattern": {"Regex": THERE[known.name]},
        "behavior": "Isolated",
        "invert": False,
    }
    other = "Éclair ÉCLAIR naïve हिन्दी ５６７８ Привет, МИР! 日本語 e\u0301t\u0301e"
    assert pieces(split, ASCII) == pieces(pre_tokenizer(*rule), ASCII)
    assert (pieces(split, other) == pieces(pre_tokenizer(*rule), other)) == (known.differs is None)
