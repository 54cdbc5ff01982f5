"""Whether a run may write over what its output holds: not over the finished run of another recipe."""

from __future__ import annotations

from typing import Any

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.common.yaml import shortened
from corpusmill.pipeline.engine.layout import RUN
from corpusmill.schemas.manifest import MANIFEST, RunRecord
from corpusmill.schemas.recipe import REPORT, Recipe

SHOWN = 3  # differences in an error


def check_recipe(recipe: Recipe, output: Folder, alone: bool) -> None:
    """Raise `UserError` if the output is the finished run of another recipe, but for `cluster`, `output`, `retain` and `report`.

    `alone`: a stage's command, whose record has another name.
    """
    file = output / (RUN if alone else MANIFEST)
    try:
        record = RunRecord.model_validate_json(file.read())
        before = _publishing(validate(Recipe, record.recipe, str(file)))
    except FileNotFoundError:
        return
    except (ValueError, UserError):  # of another version, or no run: keys tell what is valid
        return
    if record.ended_early:
        return
    changed = _differences(before, _publishing(recipe))
    if changed:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise UserError(
            f"{output}: finished, by another recipe: {'; '.join(changed[:SHOWN])}{more}. Give --replace to make it again in"
            " place (what did not change is kept), or give another output"
        )


def _publishing(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe changes what is published; the report can be written again at any time."""
    config = recipe.model_dump(mode="json", exclude={"cluster", "output", "retain", "report"})
    return {**config, "stages": [stage for stage in config["stages"] if stage != REPORT]}


def _differences(before: Any, after: Any, key: str = "") -> list[str]:
    """`key: old -> new` of each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in {**before, **after}
            for line in _differences(before.get(name), after.get(name), f"{key}.{name}".lstrip("."))
        ]
    return [] if before == after else [f"{key}: {_shown(before)} -> {_shown(after)}"]


def _shown(value: Any) -> str:
    return "none" if value is None else shortened(value, 40)
