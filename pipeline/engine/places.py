"""Where a run or a stage's command put things, and by which recipe it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError

if TYPE_CHECKING:
    from corpusmill.schemas.recipe import Recipe

# Where a stage's folder has another name than the stage.
FOLDERS = {"shard": "shards"}
BESIDE = ("ledger", "report")  # of a stage's command: never the stage itself


def stage_folders(stages: list[str], out: str) -> dict[str, str]:
    """Where a stage command publishes: the stage, the last one, straight in OUT; its ledger below, and a report that
    was asked for later; what comes before it below OUT/before."""
    *before, name = [stage for stage in stages if stage not in BESIDE]
    root = out.rstrip("/")
    return {
        name: out,
        **{stage: f"{root}/before/{stage}" for stage in before},
        **{stage: f"{root}/{stage}" for stage in BESIDE if stage in ("ledger", *stages)},
    }


def recipe_of(run: str) -> tuple[Recipe, bool]:
    """The recipe of a run, and whether it was a stage by itself, whose folder is laid out in its own way."""
    import json

    from corpusmill.common.config import validate
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.recipe import Recipe

    file = "manifest.json"
    try:
        manifest = json.loads((Folder(run) / file).read())
        alone = "recipe" not in manifest
        if alone:
            file = "run.json"
            manifest = json.loads((Folder(run) / file).read())
        return validate(Recipe, manifest["recipe"], f"{run}/{file}"), alone
    except FileNotFoundError:
        raise UserError(
            f"{run}: no finished run there; give the folder of a run, such as runs/quickstart, or the OUT of a"
            " stage's command"
        ) from None
    except (ValueError, KeyError):
        raise UserError(f"{run}/{file}: not the manifest of a run") from None
