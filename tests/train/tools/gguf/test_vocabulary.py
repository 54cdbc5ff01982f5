"""Tokenizers as GGUF has them: the rule's name is the one that llama.cpp splits by, or the tokenizer is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.pre_tokenizers import pre_tokenizer
from corpusmill.train.tools.gguf.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, vocabulary
from tests.train.conftest import tokenizer_json
from tests.train.generate.models import BYTES, byte_tokenizer


def changed(model: dict[str, Any] | None = None, **sections: Any) -> bytes:
    """The byte-level tokenizer with other sections."""
    data = json.loads(byte_tokenizer().to_str())
    return json.dumps({**data, **sections, "model": {**data["model"], **(model or {})}}).encode()


@pytest.mark.parametrize(
    ("rule", "digits", "ignore_merges", "name"),
    [
        ("gpt2", "as_pattern", False, "gpt-2"),
        ("gpt2", "single", False, "starcoder"),
        ("llama3", "as_pattern", False, "dbrx"),
        ("llama3", "triples", False, "dbrx"),
        ("llama3", "as_pattern", True, "llama-bpe"),
        ("llama3", "single", False, "qwen2"),
        ("gpt4o", "as_pattern", False, "gpt-4o"),
    ],
)
def test_the_rule_has_its_name(rule: str, digits: str, ignore_merges: bool, name: str) -> None:
    data = changed({"ignore_merges": ignore_merges}, pre_tokenizer=pre_tokenizer(rule, digits))
    found = vocabulary(data, BYTES, "tokenizer.json")
    assert found.rule.name == name
    assert [note.startswith("llama.cpp knows A to Z alone as capitals") for note in found.notes] == [True] * (
        name == "gpt-4o"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(pre_tokenizer=pre_tokenizer("gpt2", "triples")), "pre_tokenizer: llama.cpp splits text by no such"),
        (changed(pre_tokenizer=pre_tokenizer("gpt4o", "single")), "pre_tokenizer: llama.cpp splits text by no such"),
        (changed({"ignore_merges": True}), "no such rule, merging not, and another"),
        (changed(pre_tokenizer=None), "pre_tokenizer: llama.cpp splits text by no such rule"),
        (changed(pre_tokenizer={**pre_tokenizer("gpt2", "as_pattern"), "add_prefix_space": True}), "no such rule"),
        (tokenizer_json(), "pre_tokenizer: llama.cpp splits text by no such rule"),
        (changed(normalizer={"type": "Lowercase"}), "normalizer: Lowercase: llama.cpp has it for no BPE tokenizer"),
        (changed({"type": "Unigram"}), "model.type: Unigram: GGUF is written for BPE alone"),
        (changed({"dropout": 0.1}), "model.dropout: 0.1: GGUF cannot say it"),
        (changed({"end_of_word_suffix": "</w>"}), "model.end_of_word_suffix: </w>: GGUF cannot say it"),
        (changed({"merges": []}), "has no merges, and llama.cpp loads no tokenizer without them"),
    ],
)  # fmt: skip
def test_what_llama_cpp_would_read_otherwise_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UserError) as error:
        vocabulary(data, BYTES, "runs/x/tokenizer.json")
    assert str(error.value).startswith("runs/x/tokenizer.json: ") and message in str(error.value)


def test_composition_of_characters_is_noted() -> None:
    assert vocabulary(changed(normalizer={"type": "NFC"}), BYTES, "").notes == [
        "llama.cpp does not compose characters (NFC) as the tokenizer does: text that is not composed is read otherwise"
    ]


def test_sections_that_split_alike_have_one_name() -> None:
    bare = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    for section in (bare, {"type": "Sequence", "pretokenizers": [bare]}):
        assert vocabulary(changed(pre_tokenizer=section), BYTES, "").rule.name == "gpt-2"


def test_tokens_have_types_and_rows_without_one_are_unused() -> None:
    data = json.loads(byte_tokenizer().to_str())
    data["added_tokens"][1]["special"] = False
    found = vocabulary(json.dumps(data).encode(), BYTES + 2, "")
    assert found.tokens[-2:] == [f"[PAD{BYTES}]", f"[PAD{BYTES + 1}]"] and found.types[-2:] == [UNUSED] * 2
    assert found.types[0] == CONTROL and found.types[BYTES - 2 : BYTES] == [USER_DEFINED, CONTROL]
    assert set(found.types[1 : BYTES - 2]) == {NORMAL} and found.tokens[1 : BYTES - 2].count("Ġthe") == 1
    pairs = [merge.split(" ") for merge in found.merges]
    assert vocabulary(changed({"merges": pairs}), BYTES, "").merges == found.merges


def test_a_token_beyond_the_rows_and_one_that_takes_blanks_are_refused() -> None:
    with pytest.raises(
        UserError, match=f"token .* has number {BYTES - 1}, and the model has {BYTES - 1} rows"
    ):
        vocabulary(changed(), BYTES - 1, "")
    data = json.loads(byte_tokenizer().to_str())
    data["added_tokens"][1]["lstrip"] = True
    with pytest.raises(UserError, match="added_tokens: .*im_start.* has lstrip, which GGUF cannot say"):
        vocabulary(json.dumps(data).encode(), BYTES, "")
