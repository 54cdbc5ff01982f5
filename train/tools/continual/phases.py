"""The phases behind a run's newest checkpoint: the runs that each continued the one before, by `phase.json`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE, EarlierPhase, Phase
from corpusmill.schemas.phases import AVERAGE
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.plan import Plan, difference, past
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import Shards
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.guard.journal import amended, read_entries, skipped
from corpusmill.train.run_folder import PLAN, open_run, read_json


@dataclass(frozen=True)
class Part:
    """A phase up to the step at which the next one left it (of the last one: its newest checkpoint). `without`: steps whose update
    the guard dropped. Data of steps that were rolled back is skipped in `plan`."""

    config: TrainConfig
    run: Folder
    step: int
    shards: Shards
    plan: Plan
    without: frozenset[int]


def earlier_phase(run: Folder) -> EarlierPhase | None:
    """What a run continued; None for a run that began with random weights, or with those of a model that is no run's."""
    found = read_json(run / PHASE)
    return validate(Phase, found, str(run / PHASE)).earlier if found else None


def open_earlier(run: Folder, config: TrainConfig, earlier: EarlierPhase) -> tuple[TrainConfig, Folder]:
    """The run that `run` continued: beside it as it was when this began, or where its config has it. Raises `UserError`."""
    place = earlier.run
    if "://" not in place and run.local:
        place = os.path.normpath(f"{os.path.realpath(run.url)}/{place}")
        if not Path(place).exists() and config.start is not None:
            place = config.start.run
    try:
        return open_run(place)
    except UserError as error:
        raise UserError(f"{run / PHASE}: names the run {earlier.run}, which is not there: {error}") from None


def phases(config: TrainConfig, run: Folder) -> list[Part]:
    """All phases, the first one first. Raises `UserError` if a run of the chain, or the data that it was trained on, is missing."""
    soup = read_json(run / AVERAGE).get("members", [])
    if len({member["run"] for member in soup}) > 1:
        several = ", ".join(dict.fromkeys(member["run"] for member in soup))
        raise UserError(
            f"{run}: is an average of several runs, each with data of its own: name one of {several}"
        )
    found: list[Part] = []
    step = newest_checkpoint(run).step
    while True:
        found.insert(0, _part(config, run, step))
        earlier = earlier_phase(run)
        if earlier is None:
            return found
        config, run = open_earlier(run, config, earlier)
        step = earlier.step


def _part(config: TrainConfig, run: Folder, step: int) -> Part:
    shards, entries = open_run_data(config), read_entries(run)
    plan = make_plan(amended(config.data, entries), shards, config.seed)
    changes = difference(past(read_json(run / PLAN), step), past(plan.as_json(), step))
    if changes:
        raise UserError(f"{run}: was trained on other data than there is now: {'; '.join(changes)}")
    return Part(config, run, step, shards, plan, frozenset(skipped(entries)))
