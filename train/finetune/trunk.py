"""What a branch takes of its trunk (`branch`): the whole checkpoint, as a restart of the trunk would, under a schedule of its own.

So one run at a constant rate (WSD; Hu et al. 2024, MiniCPM) is the trunk of several decays, each at a tenth of its cost. The trunk is read, never
changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE
from corpusmill.schemas.training import changed
from corpusmill.train import checkpoint
from corpusmill.train.checkpoint import collectives
from corpusmill.train.guard import journal
from corpusmill.train.guard.journal import JOURNAL, read_entries
from corpusmill.train.log.metrics import rows_up_to
from corpusmill.train.run_folder import dumped, read_json, relative_to, write_json

if TYPE_CHECKING:
    from corpusmill.schemas.continual import BranchConfig
    from corpusmill.schemas.training import TrainConfig

FREE = ("schedule", "branch")  # what may differ from the trunk, beside what any restart may change


def checkpoint_of(
    config: TrainConfig, branch: BranchConfig, run: Folder, first: bool
) -> checkpoint.Checkpoint:
    """The trunk's checkpoint as if the run in the folder `run` had saved it, with all rows of the trunk's metrics. Collective; `first`: in the
    process that writes.

    Raises `UserError` if there is none of that step, or naming each key in which the config differs that a branch cannot change;
    `WorkError` if it is damaged.
    """
    trunk = Folder(branch.run)
    collectives.first(lambda: check_step(trunk, branch.step, "branch.step"))
    found = checkpoint.load_step(trunk, branch.step)
    saved = dict(found.state)
    lines = changed(saved["config"], dumped(config), allowed=FREE)
    if lines:
        raise UserError(
            f"branch: {trunk}: its step {branch.step} is of another config: {'; '.join(lines)}. Set it back: a branch changes schedule and"
            " data.stages"
        )
    saved |= {"config": dumped(config), "metrics": rows_up_to(trunk, found.step, saved["metrics"])}
    saved.pop("plateau", None)  # the best step is one of the trunk's
    if first:
        _write_phase(trunk, run)
    return found._replace(state=saved)


def begin_journal(config: TrainConfig, run: Folder) -> int:
    """Give a branch that has no journal the entries that its trunk's checkpoint knew of: rates that they lower and data that they pass over are
    those of its steps too. Collective. Returns the step of that checkpoint, to which the guard may go back; -1 of any other run.

    Raises `UserError` if it is not there, and `WorkError` if it is damaged.
    """
    branch = config.branch
    if branch is None:
        return -1

    def write() -> None:
        if (run / JOURNAL).exists() or checkpoint.steps(run):
            return
        trunk = Folder(branch.run)
        check_step(trunk, branch.step, "branch.step")
        known = read_entries(trunk)[: _known(trunk, branch.step)]
        if known:
            (run / JOURNAL).write(journal.dumped(known))

    collectives.first(write)
    return branch.step


def check_step(trunk: Folder, step: int, key: str) -> None:
    """Raise `UserError`, naming `key` and the steps that there are, if the trunk has no checkpoint of a step, or has rolled it back."""
    there, entries = checkpoint.steps(trunk), read_entries(trunk)
    if step in there and journal.abandoned(entries, step, _known(trunk, step)) is None:
        return
    others = ", ".join(str(one) for one in there if one != step) or "none"
    what = "was rolled back" if step in there else "no such checkpoint"
    raise UserError(f"{key} {step}: {what} in {trunk}; there are {others}")


def _known(trunk: Folder, step: int) -> int:
    """Entries that the trunk's journal had when the checkpoint of a step was saved."""
    return int((checkpoint.open_step(trunk, step).state.get("guard") or {}).get("journal", 0))


def _write_phase(trunk: Folder, run: Folder) -> None:
    """The run that the trunk itself continued is the one that its branch continued."""
    phase = read_json(trunk / PHASE)
    if phase:
        place = phase["earlier"]["run"]
        if "://" not in place and trunk.local:
            place = os.path.normpath(f"{os.path.realpath(trunk.url)}/{place}")
        write_json(
            run / PHASE,
            {**phase, "earlier": {**phase["earlier"], "run": relative_to(run, Folder(place), place)}},
        )
