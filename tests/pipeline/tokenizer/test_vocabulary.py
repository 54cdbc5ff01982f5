"""The figures on a vocabulary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.tokenizer.vocabulary import Vocabulary, describe, repetition, scripts


@given(st.binary(min_size=1, max_size=6), st.integers(1, 6))
def test_a_repetition_is_found_by_its_shortest_unit(unit: bytes, times: int) -> None:
    count, shortest = repetition(unit * times)
    assert shortest * count == unit * times and count >= times
    assert all(unit * times != (unit * times)[:n] * (len(unit) * times // n) for n in range(1, len(shortest)))


@given(st.lists(st.binary(min_size=1, max_size=12)))
def test_every_token_has_one_script(tokens: list[bytes]) -> None:
    counts = scripts(tokens)
    assert sum(counts.values()) == len(tokens)
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


def test_scripts_by_name() -> None:
    cases = {
        " the": "latin", "ª": "latin", "привет": "cyrillic", "日本": "cjk", "の": "hiragana", "नमस्ते": "devanagari", "µm": "mixed",
        " 12": "digits", "½": "digits", " \n": "white space", "--": "signs", "😀": "signs", "aб": "mixed",
    }  # fmt: skip
    for text, script in cases.items():
        assert scripts([text.encode()]) == {script: 1}, text
    assert scripts([b"\xe6\x97"]) == {"part of a character": 1}
    assert scripts(["日".encode()[1:] + "本".encode()]) == {"cjk": 1}


def test_figures() -> None:
    tokens = [b"<eos>", b"a", b"", b"-" * 8, b"abab", b"ababab", b" longest token", b"\n\n\n"]
    special = np.array([True] + [False] * 7)
    merged = np.array([False, False, False] + [True] * 5)
    used = np.array([False, True, False, True, True, True, False, False])
    got = describe(Vocabulary(tokens, special, merged), used)
    assert (got["special_tokens"], got["merged_tokens"], got["unused_tokens"]) == (1, 5, 2)
    assert got["unused_longest"] == [" longest token", "\n\n\n"] and got["longest_tokens"][:2] == [
        " longest token",
        "-" * 8,
    ]
    assert got["repetitions"]["tokens"] == 3
    assert got["repetitions"]["most_repeated"] == [
        {"token": "-" * 8, "unit": "-", "times": 8},
        {"token": "\n\n\n", "unit": "\n", "times": 3},
        {"token": "ababab", "unit": "ab", "times": 3},
    ]
