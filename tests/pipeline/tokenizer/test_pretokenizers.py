"""The sections that other tools publish, and what they do to text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from corpusmill.common.pre_tokenizers import pre_tokenizer
from corpusmill.pipeline.tokenizer.train import normalizer

NAMES, DIGITS = ("gpt2", "llama3", "gpt4o"), ("as_pattern", "triples", "single")


def library(name: str, digits: str, nfc: bool = False) -> Any:
    sections = json.loads(Tokenizer(models.BPE()).to_str())
    sections |= {"pre_tokenizer": pre_tokenizer(name, digits), "normalizer": normalizer(nfc)}
    return Tokenizer.from_str(json.dumps(sections))


def cut(name: str, digits: str, text: str) -> list[str]:
    pieces = library(name, digits).pre_tokenizer.pre_tokenize_str(text)
    return [text[a:b] for _, (a, b) in pieces]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("digits", DIGITS)
def test_the_library_writes_the_section_as_it_reads_it(name: str, digits: str) -> None:
    assert json.loads(library(name, digits).to_str())["pre_tokenizer"] == pre_tokenizer(name, digits)


def test_sections_are_those_of_published_tokenizers() -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    assert pre_tokenizer("gpt2", "as_pattern") == {**byte_level, "use_regex": True}
    assert pre_tokenizer("gpt2", "single")["pretokenizers"] == [  # SmolLM, StarCoder
        {"type": "Digits", "individual_digits": True},
        {**byte_level, "use_regex": True},
    ]
    llama = (  # from the published file, as JSON has it
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
        ' ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"'
    )
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    expected = [{**split, "pattern": {"Regex": json.loads(llama)}}, {**byte_level, "use_regex": False}]
    assert pre_tokenizer("llama3", "as_pattern") == {"type": "Sequence", "pretokenizers": expected}
    qwen = json.loads(llama).replace("{1,3}", "")
    assert pre_tokenizer("llama3", "single")["pretokenizers"][0]["pattern"]["Regex"] == qwen


@pytest.mark.parametrize("name", NAMES)
def test_digits_are_cut_as_asked(name: str) -> None:
    long = [" 12345"] if name == "gpt2" else [" ", "123", "45"]
    assert cut(name, "as_pattern", "x 12345") == ["x", *long]
    assert cut(name, "triples", "x 12345") == ["x", " ", "123", "45"]
    assert cut(name, "single", "x 12345") == ["x", " ", "1", "2", "3", "4", "5"]


def test_patterns_differ_where_they_should() -> None:
    assert cut("gpt2", "as_pattern", "it'S a b\n\n") == ["it", "'", "S", " a", " b", "\n\n"]
    assert cut("llama3", "as_pattern", "it'S (x") == ["it", "'S", " (", "x"]
    assert cut("gpt4o", "as_pattern", "helloWorld it'S") == ["hello", "World", " it'S"]
    assert cut("llama3", "as_pattern", "नमस्ते") != ["नमस्ते"]  # a vowel sign is no letter
    assert cut("gpt4o", "as_pattern", "नमस्ते") == ["नमस्ते"]


def test_composition_comes_first() -> None:
    made = library("gpt2", "as_pattern", nfc=True)
    assert made.normalizer.normalize_str("e\u0301") == "\u00e9"
    assert library("gpt2", "as_pattern").normalizer is None
