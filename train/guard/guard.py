"""The guard of a run: sets each step's limits, judges the step by its numbers, and keeps the journal. It also decides
rollbacks: the checkpoint to go back to, the data to skip; and names documents of the batch."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import MANIFEST
from corpusmill.train import checkpoint
from corpusmill.train.data.inspect import describe
from corpusmill.train.guard import journal as entries_of
from corpusmill.train.guard.journal import JOURNAL, Journal, abandoned, documents_line, message, rollbacks
from corpusmill.train.guard.judge import (
    History,
    Limits,
    StepSignals,
    Verdict,
    judge,
    limits,
    observe,
    unhealthy,
)

if TYPE_CHECKING:
    from corpusmill.schemas.data import FetchConfig
    from corpusmill.schemas.guard import GuardConfig, JournalEntry
    from corpusmill.train.data.plan import Plan
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.step import Metrics, TrainState

NEVER = Limits(-math.inf, -math.inf)
GO_ON = Verdict("go_on")
TRIES = 2  # rollbacks to one checkpoint, the second with more data skipped and a lower rate


class Guard:
    """The same in every process: all judge the same numbers by the same journal, and the first one writes.

    `documents(step)` names documents of a step's batch; `log` takes messages. Activations of steps in the warm-up, where
    they grow from what the initialisation gave them, are neither judged nor remembered. `origin`: the step of its trunk that a branch
    goes back to where it has no checkpoint of its own; -1: none.
    """

    def __init__(
        self, config: GuardConfig, run: Folder, world: World, documents: Callable[[int], dict[str, list[str]]],
        log: Callable[[str], None], in_warmup: Callable[[int], bool] = lambda step: False, origin: int = -1,
    ) -> None:  # fmt: skip
        self.config, self.run, self.world, self.documents, self.log = config, run, world, documents, log
        self.in_warmup, self.origin = in_warmup, origin
        file = run / JOURNAL
        data = world.share(entries_of.read(file) if world.first else b"")
        self.journal = Journal(data, file if world.first else None, file.url)
        self.history = History()
        self._waiting: deque[tuple[int, torch.Tensor, torch.cuda.Event | None]] = deque()

    def replay(self, url: str, fresh: bool) -> None:
        """Follow the decisions of another run's journal, from the start (`fresh`: this run has no checkpoint yet)."""
        entries = self.journal.entries
        if any(entry.kind == "replay" and entry.note == url for entry in entries):
            return
        if entries or not fresh:
            raise UserError(
                f"--replay: {self.run} contains a run that is not a replay of {url}: set another output"
            )
        data = self.world.share(entries_of.read(Folder(url)) if self.world.first else b"")
        if not data:
            raise UserError(f"--replay {url}: no journal is there, or it is empty")
        self.journal.take_over(data, url)

    @property
    def detects(self) -> bool:
        """Whether steps are judged; otherwise only the journal's decisions are applied."""
        return self.config.enabled and not entries_of.replaying(self.journal.entries)

    def arm(self, state: TrainState, since: int) -> None:
        """Set the limits and the rate's factor of the next step; `since`: the first step with its mixture."""
        step, entries = state.step + 1, self.journal.entries
        state.lr_factor = entries_of.lr_factor(entries, step)
        if state.loss_scale and any(e.to_step == state.step for e in entries_of.rollbacks(entries)):
            state.loss_scale.lift(self.config.loss_scale_floor)
        self.history = replace(self.history, since=since)
        state.limits = None
        if step in entries_of.skipped(entries):
            state.limits = NEVER  # decided before this process began
        elif self.detects:
            state.limits = limits(self.history, self.config, step)
        elif entries_of.replaying(entries):
            state.limits = Limits()

    def judge(self, metrics: Metrics, step: int, now: bool) -> Verdict:
        """The verdict on a step; on CUDA, unless `now`, on the step before it, whose numbers have arrived by now.

        Skips are entered into the journal; the caller acts on `roll_back` and `stop`.
        """
        if metrics.signals is not None:
            scale = getattr(metrics, "loss_scale", None)  # of fp16
            known = metrics.signals if scale is None else torch.cat((metrics.signals, scale.double()[None]))
            self._waiting.append((step, *_sent(known)))
        late = metrics.signals is not None and ahead(metrics.signals) and not now
        while len(self._waiting) > late:
            at, numbers, event = self._waiting.popleft()
            if event:
                event.synchronize()
            verdict = self._judge(at, numbers.tolist())
            if verdict.kind in ("roll_back", "stop"):
                self._waiting.clear()
                return verdict
        return GO_ON

    def _judge(self, step: int, numbers: list[float]) -> Verdict:
        loss, grad_norm, activation, taken, *scale = numbers
        known = None if self.in_warmup(step) else activation or None
        signals = StepSignals(step, loss, grad_norm, known, scale[0] if scale else None)
        verdict = GO_ON
        if self.detects and step not in entries_of.skipped(self.journal.entries):
            past = entries_of.rollbacks(self.journal.entries, after=step - self.config.rollback_window)
            verdict = judge(self.history, signals, self.config, len(past))
        self.history = observe(self.history, signals, bool(taken), self.config)
        if verdict.kind == "skip":
            self.note("skip", verdict, documents=self.documents(step))
        return verdict

    def note(self, kind: str, verdict: Verdict, **values: Any) -> None:
        """Add an entry to the journal, and log it."""
        entry = self.journal.add(kind=kind, step=verdict.step, why=list(verdict.why), **values)
        self.log(message(entry))
        if entry.documents:
            self.log(f"guard: step {entry.step}: of its batch: {documents_line(entry)}")

    def stop(self, verdict: Verdict, because: str | None = None) -> WorkError:
        """Enter the end of the run, log the rollbacks so far, and return the error that ends it."""
        because = because or (
            f"guard.max_rollbacks ({self.config.max_rollbacks}) in {self.config.rollback_window} steps did not help: raise it"
            f" to go on from the newest checkpoint, or start with a lower optimizer.lr in another output"
        )
        self.note("stop", verdict, note=because)
        for entry in entries_of.rollbacks(self.journal.entries):
            self.log(f"tried: {message(entry)}")
        why = entries_of.reasons(self.journal.entries[-1])
        return WorkError(f"{self.run}: the guard stopped the run at step {verdict.step}: {why}; {because}")

    def skipped_since(self, step: int) -> int:
        """Number of skipped steps after `step`, without those of abandoned branches."""
        return sum(at > step for at in entries_of.skipped(self.journal.entries))

    def state_dict(self) -> dict[str, Any]:
        return {"journal": len(self.journal), "history": self.history.as_json()}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue with the history of a checkpoint (None: of a run that had no guard)."""
        self.history = History.from_json((state or {}).get("history"))
        self._waiting.clear()


def ahead(numbers: torch.Tensor) -> bool:
    """Whether the host runs ahead of the device of this tensor."""
    return numbers.is_cuda


def _sent(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """A copy of the tensor to the host, perhaps still under way, and the event of its arrival."""
    if not numbers.is_cuda:
        return numbers, None
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return host, event


def branch(run: Folder, entries: list[JournalEntry]) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """The published checkpoints of a run, step -> the guard's part of their state; and the steps of those on branches that a
    rollback abandoned."""
    found: dict[int, dict[str, Any]] = {}
    given_up = []
    for step in checkpoint.steps(run):
        folder = run / f"checkpoints/step-{step:06d}"
        try:
            if not (folder / MANIFEST).exists():
                continue
            state = orjson.loads((folder / checkpoint.STATE).read()).get("guard") or {}
        except (FileNotFoundError, ValueError):
            continue  # damaged: it will not be loaded
        if abandoned(entries, step, state.get("journal", 0)):
            given_up.append(step)
        else:
            found[step] = state
    return found, given_up


def target(run: Folder, entries: list[JournalEntry], first: int, config: GuardConfig) -> tuple[int, bool]:
    """(step, healthy) of the checkpoint to go back to: the newest healthy one before step `first`, else the newest before
    it, else the oldest of all; -1 if there is none. After `TRIES` rollbacks to one of them, an older healthy one is taken, if
    there is one."""
    states, _ = branch(run, entries)
    before = [step for step in states if step < first]
    healthy = [s for s in before if not unhealthy(History.from_json(states[s].get("history")), config)]
    tried = Counter(entry.to_step for entry in rollbacks(entries))
    fresh = [step for step in healthy if tried[step] < TRIES]
    return max(fresh or healthy or before, default=min(states, default=-1)), bool(healthy)


def delete_abandoned(run: Folder, entries: list[JournalEntry]) -> None:
    """Delete the checkpoints of abandoned branches. If this is interrupted, the next start continues, before it resumes."""
    checkpoint.abandon(run, branch(run, entries)[1])


def roll_back(guard: Guard, plan: Plan, verdict: Verdict) -> None:
    """Decide a rollback and publish it; the run then resumes, as a new process with this journal does.

    Only the journal's entry records it: a run killed before the entry is written continues without the rollback, one killed
    after it goes back. Raises `WorkError` if there is no checkpoint to go back to.
    """
    config, world, entries = guard.config, guard.world, guard.journal.entries
    found, health = target(guard.run, entries, verdict.first, config) if world.first else (0, False)
    to_step, healthy = world.agree(max(found, guard.origin)), bool(world.agree(health))
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
    """source -> ids of documents in the batch of a step: the first ones of sequences spread over it, `most` in all; none if
    the data cannot be read now, which must not stop the run."""
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
