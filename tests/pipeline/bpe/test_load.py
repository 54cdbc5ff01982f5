"""Which files are accepted as tokenizers, and the errors for others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.bpe.load import load_bpe
from tests.pipeline.bpe.vocabularies import EOS, of_library, trained


def content() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(trained("gpt2").tokenizer.to_str())
    return read


def test_a_model_that_does_not_name_its_type_is_known_by_what_it_holds() -> None:
    old = content()  # as GPT-2's own file has it
    del old["model"]["type"]
    old["model"] |= {"unk_token": "", "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    bpe = load_bpe(json.dumps(old).encode(), EOS, "old.json")
    assert bpe.engine is not None
    assert of_library(bpe, ["it's 12"]) == of_library(trained("gpt2"), ["it's 12"])


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_added_tokens_that_take_the_blanks_beside_them_are_refused(side: str) -> None:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {side: True}
    for special in (True, False):
        changed = content()
        changed["added_tokens"].append({"id": 900, "content": "<tool>", "special": special, **flags})
        data = json.dumps(changed).encode()
        if special:  # it stays text
            load_bpe(data, EOS, "given.json")
        else:
            with pytest.raises(UserError, match=r"^given\.json: .*'<tool>'.* keep every byte") as caught:
                load_bpe(data, EOS, "given.json")
            assert "\n" not in str(caught.value)


def test_the_tables_say_what_each_token_stands_for() -> None:
    bpe = trained("gpt2", added=("<é>",))
    data, bounds = bpe.pieces
    assert len(bounds) == bpe.vocab_size + 1 == len(bpe.byte_lengths) + 1
    for token, index in bpe.tokenizer.get_vocab(with_added_tokens=True).items():
        raw = data[bounds[index] : bounds[index + 1]].tobytes()
        if index == bpe.eos_id:
            assert (raw, bpe.byte_lengths[index], bpe.lead_bytes[index]) == (token.encode(), 0, 0)
            continue
        assert bpe.byte_lengths[index] == len(raw)
        assert bpe.lead_bytes[index] == len(raw.decode("latin-1")) - sum(0x80 <= byte < 0xC0 for byte in raw)
        assert bpe.inside[index] == (0x80 <= raw[0] < 0xC0)
    assert bpe.lead_bytes[bpe.tokenizer.token_to_id("<é>")] == 3
