"""Perturbations change what they say, at their rate, and the same for the same seed and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.perturb import KINDS, Perturbation, parse, parse_all
from corpusmill.common.perturb.characters import HOMOGLYPHS, NEIGHBOURS, OCR

TEXT = "The quick brown fox jumps over the lazy dog, while 12 owls look on; nobody minds. " * 200
TABLES = {"synonyms": {"quick": ["fast", "swift"], "dog": ["hound"]}, "distractor": ["Cats sleep all day."]}
ONE_FOR_ONE = ("typos", "ocr", "homoglyphs", "case")


def of(kind: str, rate: float) -> Perturbation:
    return Perturbation(kind, rate, table=TABLES.get(kind))


@pytest.mark.parametrize("kind", ONE_FOR_ONE)
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_characters_change_at_the_rate(kind: str, rate: float) -> None:
    found = of(kind, rate).apply(TEXT, "a")
    changed = [(old, new) for old, new in zip(TEXT, found, strict=True) if old != new]
    assert len(changed) / len(TEXT) == pytest.approx(rate, abs=0.002)
    allowed = {"typos": NEIGHBOURS, "ocr": OCR, "homoglyphs": HOMOGLYPHS}.get(kind)
    for old, new in changed:
        assert new in allowed[old] if allowed else new == old.swapcase()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_words_change_at_the_rate(rate: float) -> None:
    words = TEXT.split()
    kept = of("drop", rate).apply(TEXT, "a").split()
    assert len(kept) == max(round(len(words) * (1 - rate)), 1)
    swapped = of("swap", rate).apply(TEXT, "a")
    assert sorted(swapped.split()) == sorted(words) and len(swapped) == len(TEXT)
    moved = sum(a != b for a, b in zip(words, swapped.split(), strict=True))
    assert moved <= rate * len(words) + 1 and (moved > rate * len(words) / 2 or not rate)
    changed = of("synonyms", rate).apply(TEXT, "a").split()
    there = [n for n, word in enumerate(words) if word.strip(",.").lower() in TABLES["synonyms"]]
    assert sum(words[n] != changed[n] for n in there) == round(rate * len(there))
    assert all(words[n] == changed[n] for n in set(range(len(words))) - set(there))
    before = [of("distractor", rate).apply("Why?", str(n)) != "Why?" for n in range(1000)]
    assert sum(before) / 1000 == pytest.approx(rate, abs=0.05)


@pytest.mark.parametrize(("kind", "what"), [("whitespace", " "), ("punctuation", ",;.")])
def test_the_rate_is_of_what_can_change(kind: str, what: str) -> None:
    found = of(kind, 0.2).apply(TEXT, "a")
    without = str.maketrans("", "", what)
    assert found.translate(without) == TEXT.translate(without) and found != TEXT
    there = sum(TEXT.count(one) for one in what)
    if kind == "punctuation":
        assert len(TEXT) - len(found) == round(0.2 * there)
    else:
        doubled = found.count("  ")
        assert doubled + len(TEXT) - len(found) + doubled == round(0.2 * there)  # and those that are left out


@given(
    st.sampled_from(sorted(KINDS)), st.text(max_size=60), st.floats(0, 1), st.integers(), st.text(max_size=5)
)
def test_any_text_at_any_rate(kind: str, text: str, rate: float, seed: int, key: str) -> None:
    one = of(kind, rate)
    found = one.apply(text, key, seed)
    assert found == one.apply(text, key, seed)
    assert of(kind, 0).apply(text, key, seed) == text
    if kind in ONE_FOR_ONE:
        assert len(found) == len(text)


def test_other_keys_and_seeds_change_other_places() -> None:
    one = of("typos", 0.1)
    assert len({one.apply(TEXT, "a"), one.apply(TEXT, "b"), one.apply(TEXT, "a", 1)}) == 3
    # Short texts have the rate on average.
    changed = sum(one.apply("hello", str(n)) != "hello" for n in range(2000)) / 2000
    assert changed == pytest.approx(0.5, abs=0.05)


def test_what_is_given_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "synonyms.tsv"
    file.write_text("Quick\tfast\tswift\ndog\thound\n")
    found = parse(f"synonyms:0.5:{file}")
    assert (found.name, found.table) == (
        f"synonyms:0.5:{file}",
        {"quick": ["fast", "swift"], "dog": ["hound"]},
    )
    for text, message in {
        "typo:0.1": r"no such kind; did you mean 'typos'\? \(allowed: typos, ocr, ",
        "typos": "must be typos:RATE with a rate from 0 to 1, such as typos:0.05",
        "typos:7": "with a rate from 0 to 1",
        "typos:0.1:x.tsv": "typos reads no file: leave out :x.tsv",
        "synonyms:0.1": "needs a file: synonyms:0.1:FILE",
        "distractor:0.1:/nowhere": "cannot be read as UTF-8 text",
    }.items():
        with pytest.raises(UserError, match=message):
            parse(text)
    file.write_text("quick\n")
    with pytest.raises(UserError, match=r"synonyms.tsv:1: must be a word and its synonyms"):
        parse(f"synonyms:0.5:{file}")
    with pytest.raises(UserError, match="--perturb case:0.1: is given twice"):
        parse_all(["case:0.1", "case:0.10"])
