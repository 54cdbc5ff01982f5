"""An ablation from its arms to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from corpusmill.ablate.arms import CONTROL, FULL, Arm
from corpusmill.ablate.counts import held_out_of, measure
from corpusmill.ablate.differences import differences
from corpusmill.ablate.pool import BASE, make
from corpusmill.ablate.report import FILE, PAGE, as_page
from corpusmill.common.storage import Folder
from corpusmill.schemas.ablation import Ablation, AblationArm, ArmDifference
from corpusmill.schemas.manifest import MANIFEST, StageManifest, hash_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.schemas.recipe import Recipe

OTHER = 1_000_000  # the control's draws begin here


def plan_of(arms: list[Arm], draws: int, smallest: float) -> str:
    """A hash of what will be measured: made before anything runs, and kept in the report."""
    recipes = {arm.name: arm.recipe.model_dump(mode="json", exclude={"output", "cluster"}) for arm in arms}
    return hash_json({"arms": recipes, "draws": draws, "smallest": smallest})


def run(
    recipe: Recipe, arms: list[Arm], out: Path, draws: int, smallest: float, workers: int | None, log: Callable[[str], None]
) -> Ablation:  # fmt: skip
    """Run what is not finished, measure, and write `ablation.json` and `ablation.html` to `out`."""
    plan = plan_of(arms, draws, smallest)
    pool = make(recipe, arms, out, workers, True, log)
    log("counting trigrams")
    shards = {name: one for name, (one, _) in pool.arms.items()}
    bits, size, totals = measure(shards, pool.held, draws, {CONTROL: OTHER})
    found = differences(bits, size, FULL, CONTROL, halves=True)
    sources = np.array(held_out_of(pool.held, next(iter(shards.values())).set.vocab_size).sources)
    rows = []
    for arm in arms:
        each = bits[arm.name].mean(0)
        d = found.get(arm.name)
        rows.append(
            AblationArm(
                name=arm.name,
                documents=pool.arms[arm.name][1].counts[arm.recipe.local[-1]].kept,
                tokens=totals[arm.name],
                bits_per_byte=float(each.sum() / size.sum()),
                by_source={
                    str(name): float(each[sources == name].sum() / size[sources == name].sum())
                    for name in np.unique(sources)
                },
                difference=None if d is None else ArmDifference(**d._asdict(), verdict=d.verdict(smallest)),
                cpu_seconds=_cost(out, arm) if arm.name == f"without {arm.first}" else None,
            )
        )
    result = Ablation(
        plan=plan, measure="trigrams", draws=draws, tokens=min(totals.values()) // 2,
        held_out_documents=len(size), held_out_bytes=round(float(size.sum())), smallest=smallest, arms=rows,
    )  # fmt: skip
    (out / FILE).write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (out / PAGE).write_text(as_page(result), encoding="utf-8")
    return result


def _cost(out: Path, arm: Arm) -> float | None:
    """CPU seconds of the stage that an arm leaves out, in the whole recipe's run."""
    manifest = StageManifest.model_validate_json((Folder(str(out / BASE)) / f"{arm.first}/{MANIFEST}").read())
    return None if manifest.resources is None else manifest.resources.actual.cpu_seconds
