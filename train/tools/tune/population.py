"""Population-based training (Jaderberg et al. 2017): runs side by side, of which the worst take over the best's weights.

A round trains each member for `population.every` steps in `round-<r>/<member>/`, the folder of a run. It starts as a copy
of a member's folder of the round before: its own, or, for the worst quarter, that of one of the best quarter, whose values
it also takes, perturbed. The state of the search is population.json alone, written after each round.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.search import Parameter, SearchConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.run_folder import RESULT, write_json
from corpusmill.train.tools.tune.lr_find import diverged
from corpusmill.train.tools.tune.report import in_full, ranked
from corpusmill.train.tools.tune.trial import Trial, check_trial, objective, run_trials

PERTURB = (0.8, 1.2)
RESAMPLE = 0.25  # how often a choice is drawn again
NOT_COPIED = (RESULT, "tensorboard", "log.txt", "lock")

Row = dict[str, Any]


def evolve(
    config: SearchConfig, base: dict[str, Any], train: TrainConfig, folder: Path, log: Callable[[str], None]
) -> tuple[list[Row], dict[str, Any]]:
    """Run the missing rounds. Returns the members as rows of search.json, and the lineage: a row for each member and round."""
    total = train.schedule.steps
    every = min(config.population.every or max(1, total // 10), total)
    rounds = math.ceil(total / every)
    file = Folder(folder / "population.json")
    lineage: list[Row] = json.loads(file.read())["lineage"] if file.exists() else []
    for number in range(len(lineage) // config.total, rounds):
        last = lineage[-config.total :] if number else []
        rows = plan_round(config, base, number, last)
        step = min((number + 1) * every, total)
        train_round(config, folder, rows, step, log)
        if all(row["value"] is None for row in rows):
            raise WorkError(
                f"{folder}: no member has ended round {number} well; the first: {rows[0]['reason']}"
            )
        lineage += rows
        write_json(file, {"lineage": lineage})
        if number:
            shutil.rmtree(folder / f"round-{number - 1:03d}", ignore_errors=True)
        best = ranked(config, rows, "member")[0]
        values = in_full(best["params"])
        log(f"step {step}/{total}  best: member {best['member']}, {best['value']:.4f}  {values}")
    members = [
        {
            "number": row["member"], "state": "complete" if row["value"] is not None else "failed",
            "value": row["value"], "reason": row["reason"], "steps": row["step"], "params": row["params"],
            "folder": str(place(folder, rounds - 1, row["member"])),
        }
        for row in lineage[-config.total :]
    ]  # fmt: skip
    return members, {"lineage": lineage}


def plan_round(config: SearchConfig, base: dict[str, Any], number: int, last: list[Row]) -> list[Row]:
    """The members of a round, with the weights they start from (`parent`) and their values: pure, given the round before."""
    rows: list[Row] = []
    order = ranked(config, last, "member")
    quarter = max(1, config.total // 4)
    top = [row for row in order[:quarter] if row["value"] is not None]
    worst = {row["member"] for row in last if row in order[-quarter:] or row["value"] is None}
    for member in range(config.total):
        rng = Random(f"{config.seed} {number} {member}")
        row: Row = {"round": number, "member": member, "parent": None, "value": None, "reason": ""}
        if not number:
            row["params"] = {key: draw(parameter, rng) for key, parameter in config.space.items()}
        elif member not in worst or member in {other["member"] for other in top}:
            row.update(parent=member, params=last[member]["params"])
        else:
            parent = rng.choice(top)
            row.update(parent=parent["member"], params=parent["params"])
            params = {key: changed(config.space[key], value, rng) for key, value in parent["params"].items()}
            try:
                check_trial(base, params)
                row["params"] = params
            except UserError as error:  # it keeps its parent's values
                row["reason"] = str(error).splitlines()[0]
        rows.append(row)
    return rows


def draw(parameter: Parameter, rng: Random) -> Any:
    """A first value."""
    if parameter.choices is not None:
        return rng.choice(parameter.choices)
    low, high = parameter.bounds
    value = low * (high / low) ** rng.random() if parameter.log else rng.uniform(low, high)
    return fitted(parameter, value)


def changed(parameter: Parameter, value: Any, rng: Random) -> Any:
    """A perturbed value: times 0.8 or 1.2 within the range; a choice is drawn again with probability `RESAMPLE`."""
    if parameter.choices is not None:
        return rng.choice(parameter.choices) if rng.random() < RESAMPLE else value
    return fitted(parameter, value * rng.choice(PERTURB))


def fitted(parameter: Parameter, value: float) -> float:
    """`value` within the range, on its steps, whole if the range is."""
    low, high = parameter.bounds
    step = parameter.step or (1 if parameter.whole else 0)
    value = min(max(low + round((value - low) / step) * step if step else value, low), high)
    return round(value) if parameter.whole else float(value)


def train_round(
    config: SearchConfig, folder: Path, rows: list[Row], step: int, log: Callable[[str], None]
) -> None:
    """Train every member up to `step`, and enter its value."""
    members: dict[Path, Row] = {}

    def starts() -> Iterator[Trial]:
        for row in rows:
            row["step"] = step
            where = place(folder, row["round"], row["member"])
            members[where] = row
            if row["round"] and not where.exists():
                copy(place(folder, row["round"] - 1, row["parent"]), where)
            more = {"stop_after": step, "may_change": list(config.space), "checkpoint.keep_last": 1}
            trial = Trial(where, folder / "base.json", {**row["params"], **more})
            if (where / RESULT).exists():  # ended before the search was killed
                row["value"] = objective(trial, config.objective)
                continue
            yield trial

    losses: dict[Path, list[float | None]] = {}

    def should_stop(trial: Trial) -> str:
        for row in trial.rows():
            losses.setdefault(trial.folder, []).append(row["loss"])
            if reason := diverged(losses[trial.folder]):
                return f"{reason}, at step {row['step']}"
        return ""

    with closing(run_trials(starts(), config.parallel, should_stop)) as ended:
        for trial in ended:
            row = members[trial.folder]
            problem = trial.verdict or trial.problem
            row["value"] = None if problem else objective(trial, config.objective)
            if row["value"] is None:
                row["reason"] = problem or f"{config.objective} is not a finite number"
                log(f"member {row['member']}: {row['reason']}")


def place(folder: Path, number: int, member: int) -> Path:
    return folder / f"round-{number:03d}/{member:02d}"


def copy(parent: Path, child: Path) -> None:
    """Copy a run's folder as the start of another; an interrupted copy is made again."""
    partial = child.with_name(f"{child.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(parent, partial, ignore=shutil.ignore_patterns(*NOT_COPIED))
    partial.rename(child)
