"""Whatever a YAML text is, there is plain data or one line about what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.common.config import override, validate
from corpusmill.common.errors import UserError
from corpusmill.common.yaml import LEVELS, parse
from corpusmill.schemas.recipe import Recipe

NINE = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x\n  b: *x\n", r"^f.yaml: a.b: contains itself by an alias"),
        ("stages: &s [ingest, *s]\n", r"^f.yaml: stages.1: contains itself by an alias"),
        ("x: 1" + "0" * 30, r"^f.yaml: x: must be an integer of 64 bits .* is of 100 bits"),
        ("x: " + "9" * 5000, r"^f.yaml: not valid YAML: (Value|Key)Error"),
        ("a: {b: .inf}", r"^f.yaml: a.b: must be a finite number, is inf"),
        ("a: [1, .nan]", r"^f.yaml: a.1: must be a finite number, is nan"),
        ("x: 1e999999999", r"^f.yaml: x: must be a finite number"),
        ("a: " + "[" * 5000 + "]" * 5000, r"^f.yaml: nested too deeply; 32 levels"),
        ("a: " + "[" * 40 + "]" * 40, r"^f.yaml: a.0.0: nested too deeply; 32 levels"),
        ("\n".join(" " * level + "a:" for level in range(3000)), r"nested too deeply"),
        (NINE, r"^f.yaml: more than 100,000 values, with what its aliases"),
        ("x: !!int foo", r"^f.yaml: not valid YAML: (Value|Key)Error"),
        ("x: !!bool foo", r"^f.yaml: not valid YAML: (Value|Key)Error"),
        ("x: !!binary aGVsbG8=", r"^f.yaml: x: of type bytes; allowed: mapping, list"),
        ("x: !!set {a, b}", r"^f.yaml: x: of type set"),
        ("x: !!python/object/apply:os.system ['true']", r"^f.yaml:1:4: not valid YAML: could not determine a constructor"),
        ("? [a, b]\n: 1", r"^f.yaml: \('a', 'b'\): a key must be a string"),
        ("1: 2", r"^f.yaml: 1: a key must be a string; put it in quotes"),
        ('a: "\\0"', r"^f.yaml: a: '\\x00': NUL and half of a surrogate pair"),
        ('a: "\\ud800"', r"^f.yaml: a: .*half of a surrogate pair"),
    ],
)  # fmt: skip
def test_one_line_with_the_key(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse(text, "f.yaml")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_what_is_allowed_stays_as_it_is_written() -> None:
    text = "a: no\nb: 1e-5\nc: 2026-01-01\nd: 0x1F\ne: [1, ~, true]\nf: {g: -9223372036854775808}\nh: &h {i: 1}\nj: [*h, *h]"
    assert parse(text, "f") == {
        "a": "no", "b": 1e-5, "c": "2026-01-01", "d": 31, "e": [1, None, True], "f": {"g": -(2**63)}, "h": {"i": 1},
        "j": [{"i": 1}, {"i": 1}],
    }  # fmt: skip
    levels = parse("[" * LEVELS + "]" * LEVELS, "f")
    assert json.dumps(levels) == "[" * LEVELS + "]" * LEVELS


def test_settings_have_the_same_limits() -> None:
    with pytest.raises(UserError, match=r"--set 'a=\.inf': must be a finite number"):
        override({}, ["a=.inf"])


@pytest.mark.parametrize(
    "key",
    ["ingest.partition_mb", "ingest.max_record_mb", "dedup.memory_mb", "tokenizer.sample_mb", "shard.shard_mb", "split.similarity_mb",
     "split.validation_mb"],
)  # fmt: skip
def test_sizes_are_within_what_can_be_computed_with(key: str) -> None:
    config = override({"name": "t", "sources": {"w": {"paths": ["x"]}}}, [f"{key}=1e308"])
    with pytest.raises(UserError, match=rf"^r.yaml: {key}: ") as caught:
        validate(Recipe, config, "r.yaml")
    assert "\n" not in str(caught.value)


PIECES = st.sampled_from(
    ["a", "- ", ": ", "\n", "  ", "&x ", "*x", "<<: ", "!!int ", "!!timestamp ", "!!omap ", "{", "}", "[", "]", ",", '"', "'", "|\n",
     ".inf", "9" * 40, "0o9", "%YAML 1.1\n", "---\n", "? ", "#", "\t", "\\", "\x85", "\ufeff", "sources", "dedup", "name"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=80))
@example("name: t\n<<: 5")
@example("!!omap [a: 1]: 3")
def test_any_text(text: str) -> None:
    try:
        value = parse(text, "f.yaml")
    except UserError as error:
        assert "\n" not in str(error)
        return
    json.dumps(value, allow_nan=False)  # plain data
    if isinstance(value, dict):
        with pytest.raises(UserError, match="r.yaml"):
            validate(Recipe, value, "r.yaml")


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=6), inside, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from(sorted(Recipe.model_fields)), VALUES)
def test_any_value_at_any_key_of_a_recipe(key: str, value: Any) -> None:
    config = {"name": "t", "sources": {"w": {"paths": ["x"]}}, key: value}
    try:
        validate(Recipe, config, "r.yaml")
    except UserError as error:
        lines = str(error).splitlines()
        assert len(lines) <= 11 and all(line.startswith("r.yaml: ") for line in lines)
