"""A rollback: which checkpoint to go back to, what data to pass over, and whose documents were in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.errors import UserError, WorkError
from schemas.manifest import MANIFEST
from schemas.storage import Folder
from train import checkpoint
from train.data.inspect import describe
from train.guard.journal import abandoned
from train.guard.judge import History, Verdict, unhealthy

if TYPE_CHECKING:
    from schemas.data import FetchConfig
    from schemas.guard import GuardConfig, JournalEntry
    from train.data.plan import Plan
    from train.data.shards import Shards
    from train.guard.guard import Guard


def refusal(entries: list[JournalEntry], step: int, state: dict[str, Any]) -> str | None:
    """Why a valid checkpoint is not to be taken: it lies on a branch that a rollback gave up."""
    entry = abandoned(entries, step, (state.get("guard") or {}).get("journal", 0))
    return f"given up by the rollback at step {entry.step}" if entry else None


def target(run: Folder, entries: list[JournalEntry], first: int, config: GuardConfig) -> tuple[int, bool]:
    """(step, healthy) of the checkpoint to go back to: the newest healthy one before step `first`, else the newest; -1
    if there is none."""

    def accept(step: int, state: dict[str, Any]) -> str | None:
        if step >= first:
            return f"not before step {first}"
        ill = unhealthy(History.from_json((state.get("guard") or {}).get("history")), config)
        return refusal(entries, step, state) or (ill if health else None)

    for health in (True, False):
        found = checkpoint.load_newest(run, accept=accept)
        if found:
            return found.step, health
    return -1, False


def roll_back(guard: Guard, plan: Plan, verdict: Verdict, step: int) -> None:
    """Decide a rollback at `step` and publish it; the run then resumes, as a process does that finds the journal so.

    Nothing but the entry says that it happened: killed before it is written, the run goes on as if it had not been
    decided, killed after it, the next process goes back. Raises `WorkError` if there is nothing to go back to.
    """
    config, world, entries = guard.config, guard.world, guard.journal.entries
    found, health = target(guard.run, entries, verdict.first, config) if world.first else (0, False)
    to_step, healthy = world.agree(found), bool(world.agree(health))
    if to_step < 0:
        raise guard.stop(
            step, verdict, f"no checkpoint from before step {verdict.first}: lower optimizer.lr or checkpoint.every, in"
            " another output",
        )  # fmt: skip
    batches = step - verdict.first + 1 + config.margin
    begin = plan.start_of(verdict.first)
    end = begin + batches * plan.segment_of(verdict.first).stretch.cells
    guard.note(
        "rollback", step, verdict, to_step=to_step, healthy=healthy, documents=guard.documents(step),
        skipped={"step": verdict.first, "batches": batches, "n": (begin, end)}, lr_factor=config.lr_factor,
        until_step=step + config.lr_steps, back_step=step + config.lr_steps + config.lr_ramp + 1,
    )  # fmt: skip


def delete(run: Folder, steps: list[int]) -> None:
    """Delete the checkpoints of these steps. What a killed deletion leaves has no manifest, and is nothing."""
    for step in steps:
        folder = run / f"checkpoints/step-{step:06d}"
        folder.delete([MANIFEST])
        folder.delete()


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
