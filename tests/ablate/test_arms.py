"""Arms: recipes that differ from the whole one in what was asked for, and share the stages before."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.ablate.arms import CONTROL, FULL, arms_of, shared_stages, with_held_out
from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.recipe import Recipe

SOURCES = {"books": {"paths": ["books"]}}


def recipe(**more: Any) -> Recipe:
    return validate(Recipe, {"name": "x", "sources": SOURCES, **more}, "recipe")


def test_an_arm_differs_in_one_thing() -> None:
    found = arms_of(recipe(), ["dedup", "filter.c4"], ["filter.cut_lines=true", "dedup.similarity=0.7"])
    whole = found[0].recipe
    assert [arm.name for arm in found[:2]] == [FULL, CONTROL] and found[1].recipe == whole
    assert "report" not in whole.stage_names and whole.stage_names[-1] == "shard"
    dedup, rules, lines, similarity = found[2:]
    assert [name for name in whole.stage_names if name not in dedup.recipe.stage_names] == ["dedup"]
    assert set(whole.filter.rules) - set(rules.recipe.filter.rules) == {"c4"}
    assert rules.recipe.stage_names == lines.recipe.stage_names == whole.stage_names
    assert lines.recipe.filter == whole.filter.model_copy(update={"cut_lines": True})
    assert similarity.recipe.dedup == whole.dedup.model_copy(update={"similarity": 0.7})
    assert [arm.first for arm in found] == [None, None, "dedup", "filter", "filter", "dedup"]


def test_arms_share_what_comes_before_the_difference() -> None:
    arms = arms_of(recipe(), ["dedup", "redact"], ["filter.cut_lines=true"])
    ready = [with_held_out(arm, "held-out/*.jsonl", "tokenizer.json") for arm in arms]
    shared = [shared_stages(arm, arms[0].recipe) for arm in arms]
    before = ["ingest", "filter", "dedup"]
    assert shared == [before, before, ["ingest", "filter"], before, ["ingest"]]
    own = {"python": "mine:keep", "version": "1"}
    before_dedup = recipe(stages=["ingest", own, "dedup", "split", "tokenizer", "shard"])
    whole, _, left_out = arms_of(before_dedup, ["keep"], [])
    assert shared_stages(whole, whole.recipe) == ["ingest", "keep", "dedup"]
    assert shared_stages(left_out, whole.recipe) == ["ingest"]  # what follows reads other documents
    for one in ready:
        assert one.decontaminate.against == ["held-out/*.jsonl"] and one.tokenizer.path == "tokenizer.json"
        assert all(source.min_kept == 0 for source in one.sources.values())
        assert one.split.validation_share == 0 and "decontaminate" in one.stage_names
    assert ready[0].stage_names[:5] == ["ingest", "filter", "dedup", "decontaminate", "redact"]


def test_evaluation_sets_of_the_recipe_are_removed_too() -> None:
    own = recipe(decontaminate={"against": ["evals"]})
    arm = arms_of(own, ["decontaminate"], [])[2]
    ready = with_held_out(arm, "held-out/*.jsonl", "tokenizer.json")
    assert ready.decontaminate.against == [
        "held-out/*.jsonl"
    ]  # the arm is without the sets, not without what holds the measure
    whole = with_held_out(arms_of(own, ["dedup"], [])[0], "held-out/*.jsonl", "tokenizer.json")
    assert whole.decontaminate.against == ["evals", "held-out/*.jsonl"]


@pytest.mark.parametrize(
    ("without", "changes", "message"),
    [
        ([], [], "ablate: no arm; name what to leave out (--without dedup) or to change (--change)"),
        (["dedpu"], [], "--without dedpu: no stage that can be left out; did you mean 'dedup'? (allowed: filter, dedup, redact)"),
        (["split"], [], "--without split: no stage that can be left out"),
        (["filter.gopher"], [], "--without filter.gopher: no rule set of the recipe (allowed: filter."),
        (["redact.c4"], [], "--without redact.c4: no rule set of the recipe"),
        (["dedup", "dedup"], [], "ablate: 'without dedup' is given twice; leave one out"),
        ([], ["dedup.similarity=0.8"], "--change dedup.similarity=0.8: the recipe already has it; leave it out"),
        ([], ["dedup.similarty=0.7"], "dedup.similarty: unknown key; did you mean 'similarity'?"),
    ],
)  # fmt: skip
def test_what_a_recipe_does_not_have_is_one_line(
    without: list[str], changes: list[str], message: str
) -> None:
    with pytest.raises(UserError) as error:
        arms_of(recipe(), without, changes)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_recipe_without_shards_has_nothing_to_measure() -> None:
    with pytest.raises(
        UserError, match=r"the recipe writes no shards \(its stages: ingest, filter\); add shard"
    ):
        arms_of(recipe(stages=["ingest", "filter"]), ["filter"], [])
