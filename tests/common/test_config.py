from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import differences, load, override, validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.recipe import Recipe

SOURCES: dict[str, Any] = {"a": {"paths": ["x"]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dedup": {"similarty": 1}}, r"r.yaml: dedup.similarty: unknown key; did you mean 'similarity'\?"),
        ({"sources": {"a": {"path": ["x"]}}}, r"sources.a.path: unknown key; did you mean 'paths'\?"),
        (
            {"filter": {"language": {"thresh": 1}}},
            r"filter.language.thresh: unknown key; did you mean 'threshold'\?",
        ),
        (
            {"filter": {"rules": ["gopher_qualty"]}},
            r"filter.rules: 'gopher_qualty' is not a rule set; did you mean 'gopher_quality'\?",
        ),
        (
            {"sources": {"a": {"paths": ["x"], "format": "jsonlines"}}},
            r"format: 'jsonlines' is not allowed; did you mean 'jsonl'",
        ),
        (
            {"dedup": {"similarity": 1.5}},
            r"dedup.similarity: input should be less than or equal to 1, is 1.5",
        ),
        (
            {"shard": {"format": "txt"}},
            r"shard.format: 'txt' is not allowed; did you mean 'text'\? \(allowed: 'tokens', 'text' or 'both'\)",
        ),
        ({"dedup": {"bands": 3}}, "bands and rows are given together"),
        ({"dedup": {"bands": 20, "rows": 20}}, "bands x rows = 400 exceeds num_perm = 112"),
        ({"stages": ["ingest", "shard"]}, "shard needs split before it"),
        ({"stages": ["ingest", "split", "dedup"]}, "come before split"),
        ({"sources": {"a b": {"paths": ["x"]}}}, "'a b': a name may contain only letters"),
        ({"name": "../x"}, "name: string should match pattern"),
    ],
)
def test_a_mistake_is_one_line_with_key_and_nearest_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        validate(Recipe, {"name": "r", "sources": SOURCES, **change}, "r.yaml")
    assert str(caught.value).startswith("r.yaml: ")


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(UserError) as caught:
        validate(Recipe, {"nam": "r", "sources": SOURCES, "sede": 1}, "r.yaml")
    assert len(str(caught.value).splitlines()) == 3  # two unknown keys, and `name` is missing


def test_yaml_is_1_2(tmp_path: Path) -> None:
    """`no` is Norwegian, not false; 1e-3 is a number."""
    file = tmp_path / "r.yaml"
    file.write_text(
        "name: r\nsources: {a: {paths: [x]}}\nfilter: {language: {keep: [en, no]}}\nsplit: {validation_share: 1e-3}\n"
    )
    recipe = load(Recipe, file)
    assert recipe.filter.language is not None and recipe.filter.language.keep == ["en", "no"]
    assert recipe.split.validation_share == 0.001


def test_overrides() -> None:
    config = {"a": {"b": 1}, "c": [1]}
    assert override(config, ["a.b=2", "a.d.e=x", "c=[2, 3]", "f=null"]) == {
        "a": {"b": 2, "d": {"e": "x"}}, "c": [2, 3], "f": None,
    }  # fmt: skip
    assert config == {"a": {"b": 1}, "c": [1]}
    with pytest.raises(UserError, match="must be key=value"):
        override(config, ["dedup.similarity"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", r"r.yaml:\d+:\d+: not valid YAML"),
        ("- 1", "must be a mapping"),
        ("a: \t- b: c: d", "not valid YAML"),
    ],
)
def test_broken_yaml(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        load(Recipe, file)


def test_missing_file() -> None:
    with pytest.raises(UserError, match="nothing.yaml: no such file"):
        load(Recipe, "nothing.yaml")


def test_differences_name_every_value_that_differs() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "d": None, "same": {"x": 1}}
    after = {"a": {"b": 1, "c": [2, 1], "e": 3}, "d": {"f": 1}, "same": {"x": 1}}
    assert differences(before, after) == {
        "a.c": ([1, 2], [2, 1]), "a.e": (None, 3), "d": (None, {"f": 1}),
    }  # fmt: skip
    assert differences(before, before) == {}
