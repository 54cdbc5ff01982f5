"""An ablation from its arms to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from corpusmill.ablate.arms import CONTROL, FULL, Arm
from corpusmill.ablate.counts import Measured, measure
from corpusmill.ablate.differences import differences
from corpusmill.ablate.pool import BASE, make
from corpusmill.ablate.report import FILE, PAGE, as_page
from corpusmill.common.storage import Folder
from corpusmill.schemas.ablation import Ablation, AblationArm, ArmDifference, HeldOutSet
from corpusmill.schemas.manifest import MANIFEST, StageManifest, hash_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from corpusmill.schemas.recipe import Recipe

OTHER = 1_000_000  # the control's draws begin here


def plan_of(arms: list[Arm], sets: Mapping[str, str], draws: int, smallest: float) -> str:
    """A hash of what will be measured: made before anything runs, and kept in the report."""
    recipes = {arm.name: arm.recipe.model_dump(mode="json", exclude={"output", "cluster"}) for arm in arms}
    return hash_json({"arms": recipes, "held_out": dict(sets), "draws": draws, "smallest": smallest})


def run(
    recipe: Recipe, arms: list[Arm], sets: Mapping[str, str], out: Path, draws: int, smallest: float, workers: int | None,
    log: Callable[[str], None],
) -> Ablation:  # fmt: skip
    """Run what is not finished, measure, and write `ablation.json` and `ablation.html` to `out`."""
    plan = plan_of(arms, sets, draws, smallest)
    pool = make(recipe, arms, sets, out, workers, log)
    log("counting trigrams")
    shards = {name: one for name, (one, _) in pool.arms.items()}
    found = measure(shards, {**pool.held, **pool.sets}, draws, {CONTROL: OTHER})
    names = np.array(found.sources)
    main = np.isin(names, [*(pool.sets or pool.held)])
    each = {str(name): names == name for name in dict.fromkeys(found.sources)}
    overall = _compared(found, main, smallest)
    by_set = {name: _compared(found, chosen, smallest) for name, chosen in each.items()}
    result = Ablation(
        plan=plan, measure="trigrams", draws=draws, tokens=found.tokens, smallest=smallest,
        held_out={
            name: HeldOutSet(
                documents=int(chosen.sum()), bytes=round(float(found.bytes[chosen].sum())), own=name in pool.sets
            )
            for name, chosen in each.items()
        },
        arms=[
            AblationArm(
                name=arm.name,
                documents=pool.arms[arm.name][1].counts[arm.recipe.local[-1]].kept,
                tokens=found.totals[arm.name],
                bits_per_byte=found.rate(arm.name, main),
                by_set={name: found.rate(arm.name, chosen) for name, chosen in each.items()},
                difference=overall.get(arm.name),
                differences={name: rows[arm.name] for name, rows in by_set.items() if arm.name in rows},
                cpu_seconds=_cost(out, arm) if arm.name == f"without {arm.first}" else None,
            )
            for arm in arms
        ],
    )  # fmt: skip
    (out / FILE).write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (out / PAGE).write_text(as_page(result), encoding="utf-8")
    return result


def _compared(found: Measured, chosen: npt.NDArray[np.bool_], smallest: float) -> dict[str, ArmDifference]:
    """The differences of arms on a part of the documents; none of fewer than two."""
    if chosen.sum() < 2:
        return {}
    part = {name: bits[:, chosen] for name, bits in found.bits.items()}
    rows = differences(part, found.bytes[chosen], FULL, CONTROL, halves=True)
    return {name: ArmDifference(**d._asdict(), verdict=d.verdict(smallest)) for name, d in rows.items()}


def _cost(out: Path, arm: Arm) -> float | None:
    """CPU seconds of the stage that an arm leaves out, in the whole recipe's run."""
    manifest = StageManifest.model_validate_json((Folder(str(out / BASE)) / f"{arm.first}/{MANIFEST}").read())
    return None if manifest.resources is None else manifest.resources.actual.cpu_seconds
