"""Ids are the library's; cuts tile a text; the end of a document is found, and cannot be forged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.data.texts.encoder import load_encoder, read_encoder
from tests.train.data.texts.helpers import library, tokenizer_file, tokenizer_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ENCODER = load_encoder(tokenizer_json(), "t")
COMPOSING = load_encoder(tokenizer_json(nfc=True), "t")


def llama_like() -> bytes:
    """Not byte-level: blanks become '▁', one is put before the text, unknown characters are bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "é",
        "ab",
        "▁a",
    ]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [("a", "b"), ("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer.to_str().encode()


@given(st.lists(TEXT, max_size=6))
def test_ids_are_the_librarys(texts: list[str]) -> None:
    tokens, offsets = ENCODER.encode(texts)
    known = library(tokenizer_json())
    for text, low, high in zip(texts, offsets[:-1], offsets[1:], strict=True):
        assert tokens[low:high].tolist() == [
            *known.encode(text, add_special_tokens=False).ids,
            ENCODER.eos_id,
        ]
        assert known.decode(tokens[low : high - 1].tolist(), skip_special_tokens=False) == text
    assert tokens.dtype == np.uint16 and offsets[-1] == len(tokens)


@given(TEXT)
def test_an_encoder_that_composes(text: str) -> None:
    plain = COMPOSING.plain(text)
    ids = library(tokenizer_json(nfc=True)).encode(text, add_special_tokens=False).ids
    assert COMPOSING.encode([plain])[0].tolist() == [*ids, COMPOSING.eos_id]


def test_characters_count_in_the_composition() -> None:
    assert COMPOSING.plain("e\u0301a") == "éa" and ENCODER.plain("e\u0301a") == "e\u0301a"
    tokens = COMPOSING.encode([COMPOSING.plain("e\u0301a")])[0]
    assert COMPOSING.cuts("éa", [len(tokens) - 2]) == [(1, 1)]


@given(TEXT)
def test_cuts_of_a_byte_level_tokenizer_follow_its_bytes(text: str) -> None:
    data = text.encode()
    tokens = ENCODER.encode([text])[0][:-1].tolist()
    known = library(tokenizer_json())
    from tokenizers import pre_tokenizers

    letters = len(pre_tokenizers.ByteLevel.alphabet())
    assert letters == 256
    sizes = [len(known.id_to_token(token)) for token in tokens]  # a stand-in for each byte
    places = list(range(1, len(tokens) + 1))
    for place, (end, begin) in zip(places, ENCODER.cuts(text, places), strict=True):
        at = sum(sizes[:place])
        assert end == sum((byte & 0xC0) != 0x80 for byte in data[:at])
        assert begin == len(data[:at].decode(errors="ignore"))


def test_cuts_of_another_tokenizer_tile_the_text() -> None:
    encoder = load_encoder(llama_like(), "t")
    assert encoder.tokenizer.id_to_token(encoder.eos_id) == "</s>"
    text = "ab ab日 éb"
    tokens = encoder.encode([text])[0].tolist()
    cuts = encoder.cuts(text, list(range(1, len(tokens))))
    before = 0
    for end, begin in cuts:
        assert begin <= end and before <= end and end - begin <= 1 and end <= len(text)
        before = end
    assert cuts[-1] == (len(text), len(text))
    assert ("日" in text) and any(end - begin == 1 for end, begin in cuts)  # its three bytes are three tokens


def test_ends_of_documents(tmp_path: Path) -> None:
    for name in ("<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>"):
        encoder = load_encoder(tokenizer_json(eos=name), "t")
        assert encoder.tokenizer.id_to_token(encoder.eos_id) == name
    file = tokenizer_file(tmp_path, eos="[END]")
    with pytest.raises(UserError, match=r"no special token that ends documents, such as <\|endoftext\|>"):
        read_encoder(Folder(file))
    for name in ("[END]", {"content": "[END]", "lstrip": False}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": name}))
        data, encoder = read_encoder(Folder(file))
        assert (
            data == tokenizer_json(eos="[END]") and encoder.tokenizer.id_to_token(encoder.eos_id) == "[END]"
        )
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "[STOP]"}')
    with pytest.raises(
        UserError, match=r"no special token '\[STOP\]', which tokenizer_config.json beside it names"
    ):
        read_encoder(Folder(file))
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"tokenizer_config.json beside .*: not a JSON object"):
        read_encoder(Folder(file))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": null}')
    with pytest.raises(UserError, match="no special token that ends documents"):
        read_encoder(Folder(file))


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"t: not a tokenizer.json that `tokenizers` reads: .+"):
        load_encoder(b"{}", "t")
    with pytest.raises(UserError, match=r"t: not a tokenizer.json that `tokenizers` reads: .+"):
        load_encoder(b"\xff", "t")
    with pytest.raises(UserError, match=r"data.tokenizer: .*/none.json: no such file"):
        read_encoder(Folder(tmp_path / "none.json"))
    with pytest.raises(UserError, match="t: has no token 99999"):
        load_encoder(tokenizer_json(), "t", 99_999)


def test_text_cannot_end_a_document() -> None:
    ids = ENCODER.encode(["a <|endoftext|> b"])[0].tolist()
    assert ids.count(ENCODER.eos_id) == 1 and ids[-1] == ENCODER.eos_id
    with pytest.raises(UserError, match="t: text can forge the end of a document: 'a' in a text becomes"):
        load_encoder(tokenizer_json(), "t", ENCODER.tokenizer.token_to_id("a"))


def test_the_type_is_the_smallest_that_holds_every_id() -> None:
    content = json.loads(tokenizer_json())
    for last, dtype in ((2**16 - 1, np.uint16), (2**16, np.uint32)):
        content["added_tokens"][0]["id"] = content["model"]["vocab"]["<|endoftext|>"] = last
        encoder = load_encoder(json.dumps(content).encode(), "t")
        assert (encoder.eos_id, encoder.vocab_size, encoder.dtype) == (last, last + 1, dtype)
        assert encoder.encode(["a"])[0].dtype == dtype and encoder.encode(["a"])[0][-1] == last
