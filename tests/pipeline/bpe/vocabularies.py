"""Small tokenizers trained here, one of each form that the kernels know, and texts made to be hard to cut."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from corpusmill.common.pre_tokenizers import GPT4O
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.bpe.recognise import _DEEPSEEK, CJK_RANGES, _cl100k, _gpt2, _o200k

EOS = "<|endoftext|>"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
ANY, THREE, ONE = r"\p{N}+", r"\p{N}{1,3}", r"\p{N}"


def byte_level(regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def digits(single: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": single}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


# The patterns of Llama 3 and GPT-4o are written out as published, not put together by the code under test.
FORMS: dict[str, dict[str, Any]] = {
    "gpt2": byte_level(True),
    "gpt2 as split": sequence(split(_gpt2(ANY)), byte_level(False)),
    "gpt2 single": sequence(digits(True), byte_level(True)),
    "gpt2 digits together": sequence(digits(False), byte_level(True)),
    "gpt2 triples": sequence(split(THREE), byte_level(True)),
    "llama3": sequence(
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        byte_level(False),
    ),
    "cl100k removed": sequence(split(_cl100k(THREE), "Removed", True), byte_level(False)),
    "qwen2": sequence(split(_cl100k(ONE)), byte_level(False)),
    "cl100k any": sequence(split(_cl100k(ANY)), byte_level(False)),
    "gpt4o": sequence(split(GPT4O), byte_level(False)),
    "gpt4o single": sequence(split(_o200k(ONE, CONTRACTIONS)), byte_level(False)),
    "tekken": sequence(split(_o200k(ONE, "")), byte_level(False)),
    "deepseek": sequence(split(THREE), split(f"[{CJK_RANGES}]+"), split(_DEEPSEEK), byte_level(False)),
    "deepseek alone": sequence(split(_DEEPSEEK), byte_level(False)),
    "no cuts": byte_level(False),
}

PIECES = [
    " ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\x0b", "\x0c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\u200b", "\ufeff",
    "'s", "'S", "'ſ", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'Ve", "'m", "'ll", "'LL", "'lL", "'d", "'D", "'", "''", "’s", "'K",
    "ſ", "K", "'x", "a", "A", "the", "The", "THE", "don", "é", "É", "e\u0301", "E\u0301", "\u0301", "\u0301\u0308", "ǅ", "ʰ", "ª",
    "İ", "ß", "ﬁ", "ŉ", "日本", "語", "ひらがな", "カタカナ", "龥", "龦", "゛", "ー", "한국어", "\u1112\u1161\u11ab", "กำ", "ไทย",
    "हिन्दी", "বাংলা", "தமிழ்", "עִבְרִית", "العَرَبِيَّة", "Привет", "ΑΒΓ", "ς", "0", "7", "12", "123", "1234", "12345", "٣٤", "๕", "Ⅷ", "½", "²",
    "㊿", "𝟘", "𐹠", "!", "?!", "...", "/", "//", "-", "_", "#", "<", ">", "€", "™", "😀", "👩🏽‍🚀", "🇫🇷", "\x00", "\x7f", "\u0378", "\ue000",
    "\U0010ffff", "\u2060", EOS, "<|", "|>", "_a", "$x", "x/y", "://", "\\n", "“", "”", "—", "ab\u0345", "\U00010d40", "\U000116d0",
]  # fmt: skip


def nasty() -> st.SearchStrategy[str]:
    """What regular expressions and their hand-written doubles disagree on first, between any characters."""
    piece = st.one_of(
        st.sampled_from(PIECES), st.text(max_size=3), st.sampled_from(PIECES).map(lambda p: p * 7)
    )
    return st.lists(piece, max_size=24).map("".join)


@lru_cache(maxsize=1)
def sample() -> list[str]:
    """Text to train on, of all pieces."""
    chance = random.Random(5)
    return ["".join(chance.choices(PIECES, k=30)) for _ in range(1500)]


@lru_cache(maxsize=64)
def trained(
    form: str, size: int = 900, ignore_merges: bool = False, nfc: bool = False, added: tuple[str, ...] = ()
) -> Bpe:
    """A tokenizer of the form, trained on `sample`; `added`: added tokens that are not special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    content = json.loads(Tokenizer(models.BPE()).to_str())
    content["pre_tokenizer"] = FORMS[form]
    content["normalizer"] = {"type": "NFC"} if nfc else None
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokenizer.train_from_iterator(sample(), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = ignore_merges
    return load_bpe(json.dumps(content).encode(), EOS, form)


def of_library(bpe: Bpe, texts: list[str]) -> list[list[int]]:
    """The ids alone: with offsets the library takes two to three times as long."""
    return [encoding.ids for encoding in bpe.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
