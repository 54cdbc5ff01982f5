"""The arms of an ablation: the whole recipe, and recipes that differ from it in one thing each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from corpusmill.common.config import override, validate
from corpusmill.common.errors import UserError, nearest
from corpusmill.schemas.recipe import Recipe

FULL, CONTROL = "full", "full again"
NEEDED = {"ingest", "split", "tokenizer", "shard"}  # without which there is nothing to measure
LAST = "shard"


class Arm(NamedTuple):
    """`name`: as the report has it; `recipe`: of the arm, up to its shards; `first`: the first stage that differs from the whole
    recipe's (None: none does); what comes before is shared."""

    name: str
    recipe: Recipe
    first: str | None


def arms_of(recipe: Recipe, without: Sequence[str], changes: Sequence[str]) -> list[Arm]:
    """The whole recipe, itself again as a control, and an arm for each stage (`dedup`) or rule set (`filter.c4`) that is left out and
    each `key=value` that is changed. Raises `UserError` for what the recipe does not have."""
    if recipe.of_conversations:
        raise UserError("ablate: the recipe is of conversations; bits per byte are of texts")
    whole = upto_shards(recipe)
    found = [Arm(FULL, whole, None), Arm(CONTROL, whole, None)]
    for name in without:
        stage, _, rules = name.partition(".")
        changed = _without_rules(whole, stage, rules) if rules else _without_stage(whole, stage)
        found.append(Arm(f"without {name}", changed, stage))
    for change in changes:
        given = whole.model_dump(mode="json", exclude_none=True)
        changed = validate(Recipe, override(given, [change]), f"--change {change}")
        first = _first_difference(whole, changed)
        if first is None:
            raise UserError(f"--change {change}: the recipe already has it; leave it out")
        found.append(Arm(change, changed, first))
    twice = [arm.name for at, arm in enumerate(found) if arm.name in {other.name for other in found[:at]}]
    if twice:
        raise UserError(f"ablate: '{twice[0]}' is given twice; leave one out")
    if len(found) == 2:
        raise UserError("ablate: no arm; name what to leave out (--without dedup) or to change (--change)")
    return found


def upto_shards(recipe: Recipe) -> Recipe:
    """A recipe that ends with its shards. Raises `UserError` for one that writes none."""
    names = recipe.stage_names
    if LAST not in names:
        raise UserError(f"ablate: the recipe writes no shards (its stages: {', '.join(names)}); add {LAST}")
    return recipe.model_copy(update={"stages": recipe.stages[: names.index(LAST) + 1]})


def _without_stage(recipe: Recipe, stage: str) -> Recipe:
    names = recipe.stage_names
    free = [name for name in names if name not in NEEDED]
    if stage not in free:
        near = nearest(stage, free)
        raise UserError(
            f"--without {stage}: no stage that can be left out{near} (allowed: {', '.join(free)})"
        )
    stages = [entry for entry, name in zip(recipe.stages, names, strict=True) if name != stage]
    return recipe.model_copy(update={"stages": stages})


def _without_rules(recipe: Recipe, stage: str, rules: str) -> Recipe:
    there = recipe.filter.rules
    if stage != "filter" or rules not in there:
        allowed = ", ".join(f"filter.{name}" for name in there)
        raise UserError(f"--without {stage}.{rules}: no rule set of the recipe (allowed: {allowed})")
    left = recipe.filter.model_copy(update={"rules": [name for name in there if name != rules]})
    return recipe.model_copy(update={"filter": left})


def _first_difference(whole: Recipe, changed: Recipe) -> str | None:
    """The first stage whose parameters or place differ."""
    if whole.sources != changed.sources or whole.seed != changed.seed:
        return "ingest"
    for name, other in zip(whole.stage_names, changed.stage_names, strict=False):
        if name != other or whole.params_of(name) != changed.params_of(other):
            return name
    return None if len(whole.stages) == len(changed.stages) else LAST


def with_held_out(arm: Arm, against: str, tokenizer: str) -> Recipe:
    """The arm's recipe as it is run: documents that hold text of the held-out files `against` are removed, nothing is held out
    again, and the tokenizer is the one of all arms."""
    recipe = arm.recipe
    given: dict[str, Any] = recipe.model_dump(mode="json", exclude_none=True)
    stages, names = list(given["stages"]), recipe.stage_names
    if "decontaminate" not in names:
        local = [at for at, name in enumerate(names) if name in recipe.local and name != "redact"]
        stages.insert(local[-1] + 1, "decontaminate")
    mine = given.get("decontaminate", {})
    # The recipe's own sets, but not in the arm that leaves the stage out.
    own = mine.get("against", []) if "decontaminate" in names else []
    given["stages"] = stages
    given["decontaminate"] = {**mine, "against": [*own, against]}
    for source in given["sources"].values():
        source["min_kept"] = 0  # that an arm keeps little of a source is what is measured
    given["split"] = {"validation_share": 0, "min_documents": 0}
    given["tokenizer"] = {"path": tokenizer}
    return validate(Recipe, given, arm.name)


def shared_stages(arm: Arm, whole: Recipe) -> list[str]:
    """The stages whose output is that of the `whole` recipe: those before the first difference, and before held-out text is removed."""
    found = []
    for name in whole.local:
        if name in (arm.first, "decontaminate", "redact"):
            break
        found.append(name)
    return found
