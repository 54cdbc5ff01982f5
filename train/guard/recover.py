"""A rollback: which checkpoint to go back to, what data to pass over, and whose documents were in the batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import MANIFEST
from corpusmill.train import checkpoint
from corpusmill.train.data.inspect import describe
from corpusmill.train.guard.journal import abandoned, rollbacks
from corpusmill.train.guard.judge import History, Verdict, unhealthy

if TYPE_CHECKING:
    from corpusmill.schemas.data import FetchConfig
    from corpusmill.schemas.guard import GuardConfig, JournalEntry
    from corpusmill.train.data.plan import Plan
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.guard.guard import Guard

TRIES = 2  # rollbacks to one checkpoint, the second with more data passed over and a lower rate


def branch(run: Folder, entries: list[JournalEntry]) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """The published checkpoints of a run, step -> the guard's part of their state; and the steps of those that lie on
    branches which a rollback gave up."""
    found: dict[int, dict[str, Any]] = {}
    given_up = []
    for step in checkpoint.steps(run):
        folder = run / f"checkpoints/step-{step:06d}"
        try:
            if not (folder / MANIFEST).exists():
                continue
            state = orjson.loads((folder / checkpoint.STATE).read()).get("guard") or {}
        except (FileNotFoundError, ValueError):
            continue  # damaged: it will not be resumed from
        if abandoned(entries, step, state.get("journal", 0)):
            given_up.append(step)
        else:
            found[step] = state
    return found, given_up


def target(run: Folder, entries: list[JournalEntry], first: int, config: GuardConfig) -> tuple[int, bool]:
    """(step, healthy) of the checkpoint to go back to: the newest healthy one before step `first`, else the newest before
    it, else the oldest of all; -1 if there is none. One that `TRIES` rollbacks went back to has been no help: an older
    healthy one is taken, if there is one."""
    states, _ = branch(run, entries)
    before = [step for step in states if step < first]
    healthy = [s for s in before if not unhealthy(History.from_json(states[s].get("history")), config)]
    tried = Counter(entry.to_step for entry in rollbacks(entries))
    fresh = [step for step in healthy if tried[step] < TRIES]
    return max(fresh or healthy or before, default=min(states, default=-1)), bool(healthy)


def delete_abandoned(run: Folder, entries: list[JournalEntry]) -> None:
    """Delete the checkpoints of branches that were given up, the newest first, and of each its manifest first: killed
    at any moment, the rest is found again at the next start, before anything is resumed."""
    checkpoint.abandon(run, branch(run, entries)[1])


def roll_back(guard: Guard, plan: Plan, verdict: Verdict) -> None:
    """Decide a rollback and publish it; the run then resumes, as a process does that finds the journal so.

    Only the entry records it: killed before it is written, the run goes on as if it had not been
    decided, killed after it, the next process goes back. Raises `WorkError` if there is nothing to go back to.
    """
    config, world, entries = guard.config, guard.world, guard.journal.entries
    found, health = target(guard.run, entries, verdict.first, config) if world.first else (0, False)
    to_step, healthy = world.agree(found), bool(world.agree(health))
    if to_step < 0:
        raise guard.stop(
            verdict, "there is no checkpoint to go back to: lower optimizer.lr or checkpoint.every, in another output"
        )  # fmt: skip
    step, begin = verdict.step, max(verdict.first, to_step + 1)
    batches = step - begin + 1 + config.margin
    n = plan.start_of(begin)
    guard.note(
        "rollback", verdict, to_step=to_step, healthy=healthy, documents=guard.documents(step),
        skipped={"step": begin, "batches": batches, "n": (n, n + batches * plan.segment_of(begin).stage.sequences)},
        lr_factor=config.lr_factor, until_step=step + config.lr_steps,
        back_step=step + config.lr_steps + config.lr_ramp + 1,
    )  # fmt: skip


def documents(shards: Shards, plan: Plan, fetch: FetchConfig, step: int, most: int) -> dict[str, list[str]]:
    """source -> ids of documents in the batch of a step: the first ones of sequences spread over it, `most` in all.

    What cannot be read now is no reason to stop: none are named then.
    """
    if not most:
        return {}
    try:
        numbers = plan.numbers(step)
        rows = describe(shards, plan, fetch, step, numbers[:: -(-len(numbers) // most)])
    except (UserError, WorkError, OSError):
        return {}
    share, found = max(most // max(len(rows), 1), 1), dict[str, list[str]]()
    for row in rows[:most]:
        ids = found.setdefault(row["source"], [])
        ids += [d["doc_id"] for d in row["documents"][:share] if d["doc_id"] not in ids]
    return found
