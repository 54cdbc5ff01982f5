"""Digits of other scripts: read as ASCII ones, found where they stand, the same datum in any script."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.pipeline.redact.other_digits import ascii_digits, fold
from corpusmill.pipeline.redact.pseudonyms import pseudonym
from corpusmill.schemas.stages import DEFAULT_KINDS, RedactParams
from tests.pipeline.corpus import documents

SCRIPTS = {"arabic": 0x660, "persian": 0x6F0, "devanagari": 0x966, "bengali": 0x9E6, "full-width": 0xFF10}


def in_script(text: str, zero: int) -> str:
    return "".join(chr(zero + int(c)) if c.isascii() and c.isdigit() else c for c in text)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("lead", "kind", "value"),
    [("هاتف: ", "phone", "02-27354567"), ("card ", "card", "4111 1111 1111 1111"), ("आधार ", "in_aadhaar", "2341 2341 2346"),
     ("order #", "order_id", "123456"), ("", "ip", "93.184.216.34")],
)  # fmt: skip
def test_found_in_any_script(script: str, lead: str, kind: str, value: str) -> None:
    written = in_script(value, SCRIPTS[script])
    data = f"é {lead}{written} é\x00".encode()
    assert [(h.kind, data[h.start : h.end].decode()) for h in find(data, Look(DEFAULT_KINDS, ()))] == [
        (kind, written)
    ]
    assert ascii_digits(written.encode()) == value.encode()
    key = b"a key for these tests only"
    if kind != "ip":
        assert pseudonym(key, kind, written.encode()) == pseudonym(key, kind, value.encode())  # type: ignore[arg-type]


def test_full_width_signs_are_read_too() -> None:
    data = "電話：０３－１２３４－５６７８、＋８６（１０）１２３４ ５６７８\x00".encode()
    assert [data[h.start : h.end].decode() for h in find(data, Look(["phone"], ()))] == [
        "０３－１２３４－５６７８",
        "＋８６（１０）１２３４ ５６７８",
    ]


def test_text_without_them_is_read_as_it_is() -> None:
    for text in ("plain 123", "día ½ €", "русский текст", "हिन्दी", "עברית", "中文，没有"):
        assert fold(text.encode()) is None or "，" in text


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(max_size=6)
        | st.sampled_from([chr(zero + 5) for zero in SCRIPTS.values()] + ["：", "（", "é", "日", "1"]),
        max_size=20,
    ).map("".join)
)
@example("٠")
def test_every_place_is_kept(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    folded = fold(data)
    if folded is None:
        return
    assert [folded.place(at) for at in (0, len(folded.buffer))] == [0, len(data)]
    places = [folded.place(at) for at in range(len(folded.buffer) + 1)]
    assert places == sorted(set(places))
    for at, byte in enumerate(folded.buffer):
        piece = data[places[at] : places[at + 1]]
        assert piece == bytes([byte]) or ascii_digits(piece) == bytes([byte])
    assert fold(folded.buffer) is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_folded(data: bytes) -> None:
    folded = fold(data + b"\xd9\xa5")
    assert folded is not None and folded.place(len(folded.buffer)) == len(data) + 2


def test_documents_do_not_depend_on_their_batch() -> None:
    docs = documents(["电话：13812345678，", "هاتف: ٠٢-٢٧٣٥٤٥٦٧", "tel 99 88 77 66", "（订单号）：123456"])
    whole = redact(docs, RedactParams()).kept["text"].to_pylist()
    assert whole == [redact(docs.slice(row, 1), RedactParams()).kept["text"][0].as_py() for row in range(4)]
    assert whole[1] == "هاتف: <PHONE>"
