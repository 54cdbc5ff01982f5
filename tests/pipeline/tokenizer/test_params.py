"""The parameters: what is refused, in one line, and that the command offers them."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.__main__ import build
from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.pipeline.tokenizer.stage import Tokenizer
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.command_line import CliRunner
from tests.pipeline.corpus import recipe


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"pre_tokenizer": "llama2"}, "pre_tokenizer: 'llama2' is not allowed; did you mean 'llama3'?"),
        ({"digits": "one"}, "digits: 'one' is not allowed"),
        ({"special_tokens": ["<|a|>", "<|a|>"]}, "special_tokens: '<|a|>' is named twice"),
        (
            {"special_tokens": ["<|endoftext|>"]},
            "'<|endoftext|>' is named twice (eos_token is one of itself)",
        ),
        ({"eos_token": ""}, "must not be empty"),
        ({"vocab_size": 258, "special_tokens": ["<|a|>", "<|b|>"]}, "vocab_size: 258 cannot hold"),
        ({"model": "word"}, "model: 'word' is not allowed"),
        (
            {"model": "wordpiece", "vocab_size": 512},
            "vocab_size: 512 cannot hold the 512 bytes and 1 special tokens; at least 513",
        ),
        (
            {"model": "wordpiece", "max_token_bytes": 9},
            "max_token_bytes: training WordPiece knows no such limit",
        ),
        ({"max_token_bytes": 1}, "max_token_bytes: input should be greater than or equal to 2, is 1"),
        ({"vocab_multiple": 0}, "vocab_multiple: input should be greater than or equal to 1, is 0"),
        ({"vocab_sise": 3}, "vocab_sise: unknown key; did you mean 'vocab_size'?"),
    ],
)
def test_mistakes_take_one_line(params: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(TokenizerParams, params, "recipe.yaml")
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "multiple", "expected"), [(32_000, 1, 32_000), (32_000, 128, 32_000), (50_257, 64, 50_304)]
)
def test_the_size_is_rounded_up(size: int, multiple: int, expected: int) -> None:
    assert TokenizerParams(vocab_size=size, vocab_multiple=multiple).size == expected


def test_every_parameter_changes_the_key() -> None:
    other: dict[str, Any] = {
        "model": "unigram", "vocab_size": 999, "vocab_multiple": 8, "pre_tokenizer": "gpt2", "digits": "single", "nfc": True,
        "special_tokens": ["<|a|>"], "max_token_bytes": 9, "sample_mb": 3, "weights": {"web": 1}, "min_frequency": 5, "eos_token": "<e>",
    }  # fmt: skip
    assert set(other) == set(TokenizerParams.model_fields) - {"path", "compare"}
    plain = Tokenizer(recipe()).key_params()
    for name, value in other.items():
        assert Tokenizer(recipe(tokenizer={name: value})).key_params() != plain, name


def test_the_command_offers_every_parameter_with_its_meaning() -> None:
    shown = " ".join(
        CliRunner().invoke(build(), ["tokenizer", "--help"], env={"COLUMNS": "200"}).output.split()
    )
    for name, field in TokenizerParams.model_fields.items():
        assert field.description, name
        if name != "weights":  # of sources, which the command has one of
            assert f"--{name.replace('_', '-')}" in shown
            assert field.description.split()[0] in shown


def test_keys_of_bpe_are_as_they_were_before_there_was_a_choice() -> None:
    assert "model" not in Tokenizer(recipe()).key_params()
    assert "model" not in Tokenizer(recipe(tokenizer={"model": "bpe"})).key_params()
    assert Tokenizer(recipe(tokenizer={"model": "wordpiece"})).key_params()["model"] == "wordpiece"
    assert (
        TokenizerParams.model_validate_json(TokenizerParams(model="unigram").model_dump_json()).model
        == "unigram"
    )
