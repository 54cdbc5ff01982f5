"""Addresses of coins by their published examples, and the hash that Python's library lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.redact.addresses import (
    base58check,
    bech32,
    eip55,
    is_base58check,
    is_bech32,
    is_ethereum,
    keccak256,
)
from corpusmill.pipeline.redact.batch import Look, find

MAIN = [
    "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2",
    "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
]
SEGWIT = [
    "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq", "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
    "bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr",
]  # fmt: skip
# The examples of EIP-55.
ETHEREUM = ["5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "fB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "dbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "D1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb"]  # fmt: skip


def found(text: str) -> list[str]:
    data = text.encode() + b"\x00"
    return [data[h.start : h.end].decode() for h in find(data, Look(["crypto"]))]


@pytest.mark.parametrize("word", [*MAIN, *SEGWIT, *("0x" + digits for digits in ETHEREUM)])
def test_found_whole_and_never_with_a_wrong_character(word: str) -> None:
    assert found(f"send to {word}.") == [word]
    assert found(f"x{word} {word}x _{word} {word}/y") == []
    middle = len(word) // 2
    other = next(c for c in "23457aAbBcC" if c.lower() != word[middle].lower())
    assert found(f"tx {word[:middle]}{other}{word[middle + 1 :]}") == []


def test_an_ethereum_address_in_one_case_needs_a_word() -> None:
    lower = "0x" + ETHEREUM[0].lower()
    assert found(f"commit {lower}") == []
    assert found(f"my wallet: {lower}") == [lower]
    assert found("wallet 0x0000000000000000000000000000000000000000") == []


def test_hashes_and_other_long_words_are_left_alone() -> None:
    assert (
        found("d41d8cd98f00b204e9800998ecf8427e 3f786850e387550fdab836ed7e6dc881de23001b bc123456789012345")
        == []
    )


def test_keccak_and_the_cases_that_it_decides() -> None:
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"abc").hex() == "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"
    assert [eip55(digits.lower()) for digits in ETHEREUM] == ETHEREUM
    assert is_ethereum("0x" + ETHEREUM[0].upper()) is None


@given(st.binary(min_size=20, max_size=20))
def test_what_is_made_checks(payload: bytes) -> None:
    assert is_base58check(base58check(b"\x00" + payload)) and is_base58check(base58check(b"\x05" + payload))
    assert is_base58check(base58check(b"\x6f" + payload), test=True)
    assert not is_base58check(base58check(b"\x6f" + payload))
    assert is_bech32(bech32("bc", payload))
