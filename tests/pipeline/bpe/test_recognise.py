"""What the kernels are asked for, and the reason where they are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpusmill.common.pre_tokenizers import pre_tokenizer
from corpusmill.pipeline.bpe.engine import Engine
from corpusmill.pipeline.bpe.kernels.merge import MAX_ID
from corpusmill.pipeline.bpe.kernels.pretokenize import CL100K, DIGITS, GPT2, NUMBERS, O200K
from corpusmill.pipeline.bpe.recognise import Reading, UnknownToUs, nfc, read
from tests.pipeline.bpe.vocabularies import FORMS, byte_level, digits, sequence, split, trained

ANY = r"\p{N}+"


def asks(section: Any, normalizer: Any = None, **model: Any) -> dict[str, Any]:
    return {"model": model, "pre_tokenizer": section, "normalizer": normalizer}


@pytest.mark.parametrize(
    ("name", "kind", "threes"), [("gpt2", GPT2, 0), ("llama3", CL100K, 3), ("gpt4o", O200K, 3)]
)
def test_what_the_stage_trains_is_known(name: str, kind: int, threes: int) -> None:
    def steps(numbers: str) -> list[tuple[int, int]]:
        return read(asks(pre_tokenizer(name, numbers))).steps

    before = name == "gpt2"  # numbers are cut before its own pattern
    assert steps("as_pattern") == [(kind, threes)]
    assert steps("triples") == ([(NUMBERS, 3), (kind, 0)] if before else [(kind, 3)])
    assert steps("single") == ([(DIGITS, 1), (kind, 0)] if before else [(kind, 1)])


def test_sequences_are_read_in_order_at_any_depth() -> None:
    nested = sequence(digits(True), sequence(split(ANY), sequence(byte_level(True))))
    assert read(asks(nested)).steps == [(DIGITS, 1), (NUMBERS, 0), (GPT2, 0)]
    assert read(asks(nested)).name() == "digits, one digit a piece then numbers then GPT-2"
    assert read(asks(byte_level(False))) == Reading([], 0, False)
    assert read(asks(byte_level(False))).name() == "no cuts"
    several = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFC"}]}
    assert read(asks(byte_level(True), several)).nfc and not nfc(asks(None))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (asks(byte_level(True), dropout=0.1), r"dropout"),
        (asks(byte_level(True), continuing_subword_prefix="##"), "prefix or suffix"),
        (asks(byte_level(True), end_of_word_suffix="</w>"), "prefix or suffix"),
        (asks({**byte_level(True), "add_prefix_space": True}), "puts a space before each text"),
        (asks({"type": "ByteLevel"}), "puts a space before each text"),  # as the library reads it
        (asks(None), "no ByteLevel"),
        (asks(digits(True)), "no ByteLevel"),
        (asks(sequence(byte_level(True), digits(True))), "cuts behind its ByteLevel"),
        (asks(sequence({"type": "Metaspace"}, byte_level(False))), "its pre-tokenizer Metaspace"),
        (asks(sequence(split(r"\w+"), byte_level(False))), r"its pattern '\\\\w\+'"),
        (asks(sequence({**split(""), "pattern": {"String": " "}}, byte_level(False))), "its pattern ' '"),
        (asks(sequence(split(ANY, "Removed", True), byte_level(False))), r"Split does with matches \(Removed\)"),
        (asks(sequence(split(ANY, invert=True), byte_level(False))), r"matches \(Isolated\)"),
        (asks(byte_level(True), {"type": "NFKC"}), r"normalizer \(NFKC\) is another"),
        (
            asks(byte_level(True), {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}),
            r"\(NFC, Strip\)",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(content: dict[str, Any], why: str) -> None:
    with pytest.raises(UnknownToUs, match=why):
        read(content)


def test_vocabularies_that_the_tables_cannot_hold_are_the_librarys() -> None:
    reading = read({"model": {}, "pre_tokenizer": FORMS["gpt2"]})
    content = json.loads(trained("gpt2").tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    Engine({"model": {**content["model"], "vocab": {**vocabulary, "far": MAX_ID}}}, reading)
    with pytest.raises(UnknownToUs, match=f"more than {MAX_ID} tokens"):
        Engine({"model": {**content["model"], "vocab": {**vocabulary, "far": MAX_ID + 1}}}, reading)
    without = {name: index for name, index in vocabulary.items() if name != "a"}
    with pytest.raises(UnknownToUs, match="no token for the byte 0x61"):
        Engine({"model": {**content["model"], "vocab": without}}, reading)
    never = {name: index for name, index in vocabulary.items() if name != "À"}  # 0xc0, in no text
    Engine({"model": {**content["model"], "vocab": never}}, reading)
