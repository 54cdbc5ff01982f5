"""What a user may write as an address, and the errors for anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.inspect.lineage.shards import Address, characters, parse


@pytest.mark.parametrize(
    ("text", "wanted", "stem", "path"),
    [
        ("books-train-000003:4:1207", ("books-train-000003", "4", 1207, 1207), "books-train-000003", None),
        ("a-train-000000:0:100-120", ("a-train-000000", "0", 100, 120), "a-train-000000", None),
        ("s3://b/run/shards/a/train/a-train-000001.tar:2:0", None, "a-train-000001", "s3://b/run/shards/a/train/a-train-000001.tar"),
        ("./a/train/a-train-000001:a-train-000001-000002:7", None, "a-train-000001", "./a/train/a-train-000001"),
        ("a-train-000001.tar:2:0", None, "a-train-000001", "a-train-000001.tar"),
    ],
)  # fmt: skip
def test_addresses(text: str, wanted: tuple[str, str, int, int] | None, stem: str, path: str | None) -> None:
    found = parse(text)
    assert str(found) == text and (found.stem, found.path) == (stem, path)
    assert wanted is None or found == wanted


@pytest.mark.parametrize("text", ["", "a", "a:1", "a:1:x", "a:1:-1", "a:1:9-3", ":1:2", "a::2", "a:1:2-"])
def test_what_is_no_address_is_reported_in_a_line(text: str) -> None:
    with pytest.raises(UserError, match="SHARD:BLOCK:TOKEN") as error:
        parse(text)
    assert "\n" not in str(error.value)


@given(st.text())
def test_any_text_is_an_address_or_a_users_mistake(text: str) -> None:
    with contextlib.suppress(UserError):
        assert isinstance(parse(text), Address)


def test_characters() -> None:
    assert characters("--chars", "10-19") == (10, 20) and characters("--chars", "7") == (7, 8)
    for text in ("", "a", "9-3", "-3"):
        with pytest.raises(UserError, match="--chars"):
            characters("--chars", text)
