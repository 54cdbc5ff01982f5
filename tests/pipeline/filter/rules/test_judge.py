"""Rules: the published numbers, overrides, mistakes in recipes and files, and judging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.rules import sets as rules
from corpusmill.pipeline.filter.rules.judge import failures, judge
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.pipeline.filter.rules.sets import resolve
from corpusmill.pipeline.filter.signals.registry import MEASURES
from corpusmill.schemas.filter import FilterParams
from tests.pipeline.filter.helpers import documents, stage, without_models

# What the papers say, written down a second time.
PUBLISHED = {
    "gopher_quality.word_count_min": ("at_least", 50),
    "gopher_quality.word_count_max": ("at_most", 100_000),
    "gopher_quality.mean_word_length_min": ("at_least", 3),
    "gopher_quality.mean_word_length_max": ("at_most", 10),
    "gopher_quality.hash_ratio_max": ("at_most", 0.1),
    "gopher_quality.ellipsis_ratio_max": ("at_most", 0.1),
    "gopher_quality.bullet_lines_max": ("at_most", 0.9),
    "gopher_quality.ellipsis_lines_max": ("at_most", 0.3),
    "gopher_quality.alpha_words_min": ("at_least", 0.8),
    "gopher_quality.stop_words_min": ("at_least", 2),
    "gopher_repetition.dup_line_frac_max": ("at_most", 0.3),
    "gopher_repetition.dup_para_frac_max": ("at_most", 0.3),
    "gopher_repetition.dup_line_chars_max": ("at_most", 0.2),
    "gopher_repetition.dup_para_chars_max": ("at_most", 0.2),
    "gopher_repetition.top_2_gram_max": ("at_most", 0.2),
    "gopher_repetition.top_3_gram_max": ("at_most", 0.18),
    "gopher_repetition.top_4_gram_max": ("at_most", 0.16),
    "gopher_repetition.dup_5_gram_max": ("at_most", 0.15),
    "gopher_repetition.dup_6_gram_max": ("at_most", 0.14),
    "gopher_repetition.dup_7_gram_max": ("at_most", 0.13),
    "gopher_repetition.dup_8_gram_max": ("at_most", 0.12),
    "gopher_repetition.dup_9_gram_max": ("at_most", 0.11),
    "gopher_repetition.dup_10_gram_max": ("at_most", 0.10),
    "c4.lorem_ipsum_max": ("at_most", 0),
    "c4.curly_brackets_max": ("at_most", 0),
    "c4.sentences_min": ("at_least", 5),
    "fineweb.line_punct_ratio_min": ("more_than", 0.12),
    "fineweb.short_line_ratio_max": ("less_than", 0.67),
    "fineweb.char_dup_ratio_max": ("less_than", 0.1),
    "fineweb.newline_ratio_max": ("at_most", 0.3),
}


def params(**given: Any) -> FilterParams:
    return FilterParams.model_validate(given)


def test_the_published_thresholds() -> None:
    found = resolve(params(**without_models()))
    assert {rule.name: (rule.comparison, rule.threshold) for rule in found} == PUBLISHED
    assert all(rule.signal in MEASURES for rule in found)


def test_order_is_the_recipes_then_language_toxicity_quality() -> None:
    found = resolve(
        params(
            rules=["c4", "gopher_quality"],
            language={"keep": ["en"]},
            toxicity={"remove_above": 0.9, "remove_below": 0.1},
            quality={"remove_below": 0.2},
        )
    )
    sets = list(dict.fromkeys(rule.set_name for rule in found))
    assert sets == ["c4", "gopher_quality", "language", "toxicity", "quality"]
    assert [rule.name for rule in found][-5:] == [
        "language.keep", "language.threshold", "toxicity.remove_above", "toxicity.remove_below",
        "quality.remove_below",
    ]  # fmt: skip


def test_thresholds_and_disable() -> None:
    given = params(
        thresholds={"gopher_quality.word_count_min": 7}, disable=["c4.sentences_min", "language.threshold"]
    )
    found = {rule.name: rule.threshold for rule in resolve(given)}
    assert found["gopher_quality.word_count_min"] == 7
    assert "c4.sentences_min" not in found and "language.threshold" not in found


def test_gopher_is_short_for_its_two_sets() -> None:
    """In `rules` and `skip_sources`: the parameters of a recipe that writes both out, hence its key."""
    pair = ["gopher_repetition", "gopher_quality"]
    short = FilterParams(rules=["gopher", "c4"], skip_sources={"code": ["gopher", "c4"]})
    full = FilterParams(rules=[*pair, "c4"], skip_sources={"code": [*pair, "c4"]})
    assert short == full and short.model_dump_json() == full.model_dump_json()
    assert FilterParams(rules=["gopher", "c4", "fineweb"]) == FilterParams()
    assert {
        rule.set_name for rule in resolve(FilterParams(rules=["gopher"], toxicity=None, language=None))
    } == set(pair)
    with pytest.raises(ValueError, match="did you mean 'gopher'"):
        FilterParams(rules=["gophr"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"thresholds": {"gopher_quality.word_min": 3}}, "did you mean 'gopher_quality.word_count_min'?"),
        ({"thresholds": {"language.threshold": 0.3}}, "set it as filter.language.threshold"),
        ({"disable": ["fineweb.short_lines"]}, "did you mean 'fineweb.short_line_ratio_max'?"),
        ({"skip_sources": {"web": ["gophers"]}}, "'gophers' is not a rule set"),
        ({"skip_sources": {"wed": ["c4"]}}, "'wed' is not a source; did you mean 'web'?"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        stage(**given)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: c4\norigin: x\nrules:\n  - {name: a, signal: c4.b, at_leats: 3}\n",
            "did you mean 'at_least'?",
        ),
        ("name: c4\norigin: x\nrules:\n  - {name: a, signal: c4.b}\n", "exactly one of"),
        (
            "name: c4\norigin: x\nrules:\n  - {name: a, signal: c4.b, at_least: 3, at_most: 4}\n",
            "exactly one of",
        ),
        ("name: c5\norigin: x\nrules:\n  - {name: a, signal: c4.b, at_least: 3}\n", "must be 'c4'"),
        ("name: c4\norigin: x\nrules: []\n", "rules"),
    ],
)
def test_a_wrong_rule_file_names_itself(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c4.yaml").write_text(text)
    monkeypatch.setattr(rules, "RULES_FOLDER", tmp_path)
    rules.rule_set.cache_clear()
    try:
        with pytest.raises(UserError) as error:
            rules.rule_set("c4")
    finally:
        rules.rule_set.cache_clear()
    assert message in str(error.value) and str(tmp_path / "c4.yaml") in str(error.value)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("at_least", [True, False, False]),
        ("at_most", [False, False, True]),
        ("more_than", [True, True, False]),
        ("less_than", [False, True, True]),
    ],
)
def test_each_comparison_at_its_threshold(comparison: Any, expected: list[bool]) -> None:
    # 0.3 is no float32: a judgement in float64 would take the stored value for more than 0.3.
    signals = pa.table({"s": pa.array([0.2, 0.3, 0.4, None], pa.float32())})
    assert failures(Rule("a.b", "s", comparison, 0.3), signals).tolist() == [*expected, False]


def test_language_among() -> None:
    signals = pa.table({"s": pa.array(["en", "de", None])})
    assert failures(Rule("language.keep", "s", "among", None, ("en",)), signals).tolist() == [
        False,
        True,
        True,
    ]


def test_decisions_hold_every_failed_rule_in_order() -> None:
    docs = documents(["a", "b", "c"])
    signals = pa.table(
        {
            "x": pa.array([1, 5, 9], pa.int64()),
            "y": pa.array([0.5, 0.5, 0.1], pa.float32()),
            "language.code": pa.array(["en", "de", None]),
            "language.score": pa.array([0.9, 0.8, 0.0], pa.float32()),
        }
    )
    judged = [
        Rule("r.x", "x", "at_least", 6),
        Rule("r.y", "y", "at_most", 0.25),
        Rule("r.z", "x", "at_most", 4),
    ]
    kept, decisions, counters = judge(docs, signals, judged, params())
    assert kept.tolist() == [False, False, False]
    first, second, third = decisions.to_pylist()
    assert (first["rule"], first["value"], first["threshold"]) == ("r.x", 1.0, 6.0)
    assert [(f["rule"], f["value"], f["threshold"]) for f in first["failed"]] == [
        ("r.x", 1, 6),
        ("r.y", 0.5, 0.25),
    ]
    assert [f["rule"] for f in second["failed"]] == ["r.x", "r.y", "r.z"]
    assert third["rule"] == "r.z" and len(third["failed"]) == 1
    assert counters == {
        "rule/r.x/first": 2, "rule/r.x/failed": 2, "rule/r.y/failed": 2, "rule/r.z/first": 1,
        "rule/r.z/failed": 2,
        "rule/r.z/only": 1,
    }  # fmt: skip
    kept, decisions, counters = judge(docs, signals, judged[:1], params())
    assert kept.tolist() == [False, False, True] and counters["rule/r.x/only"] == 2
    kept, decisions, _ = judge(
        docs, signals, [Rule("language.keep", "language.code", "among", None, ("en",))], params()
    )
    assert [(d["detail"], d["value"], d["threshold"]) for d in decisions.to_pylist()] == [
        ("language de", pytest.approx(0.8), None), ("language unknown", 0.0, None),
    ]  # fmt: skip


def test_no_rules_and_no_documents() -> None:
    docs = documents(["a"])
    signals = pa.table({"language.code": pa.array([None], pa.string())})
    kept, decisions, counters = judge(docs, signals, [], params())
    assert kept.tolist() == [True] and len(decisions) == 0 and counters == {}
