"""The training loop. In one process or many, at the first start or after a restart: the same command, the same weights."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, run_state
from corpusmill.train.batch import Batch
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import Shards
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.finetune.distill import make_teacher
from corpusmill.train.finetune.objective import make_objective, validate
from corpusmill.train.finetune.start import begin
from corpusmill.train.finetune.trunk import begin_journal
from corpusmill.train.guard.attention import ADVICE, message, newest
from corpusmill.train.guard.guard import Guard, delete_abandoned, documents, roll_back
from corpusmill.train.guard.journal import amended, rollbacks
from corpusmill.train.guard.judge import Verdict
from corpusmill.train.log.metrics import MetricsLog, Span, row_of, totals, totals_and_each
from corpusmill.train.log.probe import look_inside
from corpusmill.train.log.profile import Profile
from corpusmill.train.log.progress import Progress
from corpusmill.train.log.sinks import Console, log_line, open_log
from corpusmill.train.log.stragglers import Stragglers, computing
from corpusmill.train.micro_batch import fit_micro_batch
from corpusmill.train.model.flops import MFU_FORMULA, peak_flops
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import in_warmup
from corpusmill.train.outer.worker import Outer
from corpusmill.train.parallel.elastic import fitted
from corpusmill.train.parallel.mesh import Flags, World, join
from corpusmill.train.parallel.model import build
from corpusmill.train.parallel.watch import connection_lost
from corpusmill.train.precision.adapt import autocast, automatic
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.process import Garbage, Stop
from corpusmill.train.run_folder import (
    CONFIG,
    DATA,
    PLAN,
    RESULT,
    begun_with,
    dumped,
    run_data,
    write_json,
    write_reading,
)
from corpusmill.train.step import Metrics, TrainState, label_count, train_step

if TYPE_CHECKING:
    from corpusmill.train.evaluate.tasks.during import Scores, TaskCurves

Row = dict[str, Any]


def train(
    config: TrainConfig, replay: str | None = None, *, on_row: Callable[[Row], None] | None = None
) -> dict[str, Any]:
    """Train to the last step, from the newest valid checkpoint if there is one; returns what result.json holds.

    `replay`: file or URL of another run's journal, whose decisions replace those of the guard. `on_row` gets each row of
    metrics.jsonl in the process that writes it; an exception that it raises ends the run.
    Raises `UserError` for a config that cannot run here or is not that of the run in its output, `WorkError` for
    data or a store that fails, and if the guard gives up. SIGTERM and SIGINT save a checkpoint and exit with 143 and 130.
    """
    # Before the processes join, which wait for each other only so long: tokenising texts may take longer.
    shards = open_run_data(config, log_line if os.environ.get("RANK", "0") == "0" else None)
    fit = fitted(config, int(os.environ.get("WORLD_SIZE", "1")))
    if fit.line and os.environ.get("RANK", "0") == "0":
        log_line(fit.line)
    world = join(fit.config, fit.active)
    try:
        if world.watch and world.spare:
            world.watch.wait_for_end()
            return {}
        if world.watch:
            world.watch.own()
        result = Trainer(fit.config, world, shards, replay, on_row).run()
        if world.watch:
            world.watch.finish()
        return result
    except RuntimeError as error:
        if lost := connection_lost(error, world.watch):
            raise lost from None
        raise
    finally:
        world.close()


class Trainer:
    """The run's parts, put together once; `run` is the loop."""

    metrics_log: MetricsLog | None = None  # in the first process

    def __init__(
        self,
        config: TrainConfig,
        world: World,
        shards: Shards,
        replay: str | None = None,
        on_row: Callable[[Row], None] | None = None,
    ) -> None:
        self.world, self.shards, self.on_row = world, shards, on_row
        self.folder = Folder(config.output_url)
        if config.precision == "auto":  # one for all processes, whatever CPUs they have
            first_one = begun_with(self.folder) or automatic(world.device) if world.first else ""
            config = config.model_copy(update={"precision": world.share(first_one.encode()).decode()})
        self.config = config
        self.saver = checkpoint.Saver(self.folder, config.checkpoint)
        self.stragglers = Stragglers(config.watch.straggler)
        origin = begin_journal(config, self.folder)
        about = self._documents, self._log, partial(in_warmup, config), origin
        self.guard = Guard(config.guard, self.folder, world, *about)
        if replay is not None:
            self.guard.replay(replay, fresh=not checkpoint.steps(self.folder))
        self._lay_out()
        self.tasks: TaskCurves | None = None
        if config.evaluation.tasks and config.evaluation.every:
            from corpusmill.train.evaluate.tasks import during  # and what reads tasks, which few runs need

            self.tasks = during.TaskCurves(config, self.folder, world, self.shards)
        # What one process has of the model's: a worker of `outer` has all of one.
        self.own = World(device=world.device) if config.outer else world
        model = build(config, self.shards.set.vocab_size, self.own)
        self.objective = make_objective(config, model, self.shards, world)
        columns = 2 + (len(self.objective.names) if self.objective else 0)
        window = torch.zeros(len(self.plan.sources), columns, dtype=torch.float64, device=world.device)
        optimizer = make_optimizer(model, config.optimizer)
        self.state = TrainState(config, model, optimizer, window, world.device, objective=self.objective)
        self.state.distiller = make_teacher(config, self.shards, world)
        if config.outer:
            self.state.outer = Outer(config.outer, model, optimizer, world)
        if config.precision == "fp16":
            self.state.loss_scale = LossScale(config.loss_scale, world.device)
        self.progress = Progress.of(config.log, world)
        self._resume()
        if 0 < self.state.step < config.schedule.steps:
            self.guard.journal.add(kind="resume", step=self.state.step)
        if config.memory.auto_micro_batch and self.state.step < config.schedule.steps:
            self.config = config = fit_micro_batch(self.state, world, self._log)
        self.console = Console(config.schedule.steps, self.state.step, world.first)

    def run(self) -> dict[str, Any]:
        """All steps to the last; rows, validation and checkpoints when they are due; a rollback when the guard decides one."""
        config, state, world = self.config, self.state, self.world
        steps, stop, flags = config.last_step, Stop(), Flags(world)
        garbage = Garbage(config.memory.collect_every)
        profile = Profile(config.log.profiled_steps, self.folder, world)
        self.span = Span(state.step)
        self._announce()
        try:
            while state.step < steps and not self.over:
                signalled, failed = flags(stop.signal, self.saver.failed)
                if failed:  # `wait` raises the error: training without checkpoints must not go on
                    self.saver.wait()
                stage = self.plan.segment_of(state.step + 1).stage
                row = due(state.step + 1, steps, config.log.every)
                self.guard.arm(state, stage.first_step)
                with profile.step(state.step + 1), world.measuring(state.step + 1):
                    batch = self.span.next_batch(self.stream)
                    batch = self.objective.prepared(batch, state.step + 1) if self.objective else batch
                    count = stage.sequences * self.plan.sequence_length // (world.size // self.own.size)
                    every = count if self.stream.all_labels else None
                    metrics = train_step(state, batch, label_count(batch, self.own, every), row)
                self.span.paused += profile.paused()
                garbage.step(state.step)
                validating = due(state.step, steps, config.validation.every)
                tasks = self.tasks is not None and due(state.step, steps, config.evaluation.every)
                row = validating or tasks or row
                save = signalled or due(state.step, steps, config.checkpoint.every)
                verdict = self.guard.judge(metrics, state.step, now=bool(row or save))
                if verdict.kind != "go_on":
                    self._roll_back(verdict)
                    continue
                self.console.step(state.step)
                if row:
                    self._row(metrics, batch, validating, tasks)
                if save or self.over or self.progress.plateau.step == state.step:
                    self._save()
                if signalled and state.step < steps:
                    flags.finish()
                    self.saver.wait()
                    self.console.print(
                        f"stopped by a signal after step {state.step}; run the same command to continue"
                    )
                    raise SystemExit(128 + int(stop.signal or signal.SIGTERM))
            flags.finish()
            self.saver.wait()
            if self.over:
                self.console.print(self.progress.plateau.line(state.step))
            return self._result()
        finally:
            self.saver.close()
            stop.release()
            garbage.release()
            profile.close()
            self.stream.close()
            self.console.close()
            if self.metrics_log:
                self.metrics_log.close()

    @property
    def over(self) -> bool:
        return self.progress.plateau.over(self.config.validation)

    def _lay_out(self) -> None:
        """Make the plan of the coming steps and its stream: at the start, and after a rollback."""
        config, data = self.config, amended(self.config.data, self.guard.journal.entries)
        # Caps on repeats are checked for the config's plan alone: data that a rollback skips must not stop the run.
        steps = config.schedule.steps if data == config.data else None
        self.plan = make_plan(data, self.shards, config.seed, steps)
        self.stream = StreamingTokens(
            self.shards, plan=self.plan, dp_rank=self.world.data_rank, dp_world=self.world.data_size, log=log_line,
            **data.model_dump(exclude={"shards"}),
        )  # fmt: skip

    def _roll_back(self, verdict: Verdict) -> None:
        """Go back to a healthy checkpoint, as a new process that reads the guard's journal does."""
        if verdict.kind == "stop":
            raise self.guard.stop(verdict)
        self.saver.wait()
        roll_back(self.guard, self.plan, verdict)
        self.stream.close()
        self._lay_out()
        self._resume()
        self.span = Span(self.state.step)

    def _resume(self) -> None:
        """Continue from the newest valid checkpoint of this branch, the same one in every process; or start from scratch if
        none was ever finished. Raises `WorkError` if some were and none can be used."""
        state, refused = self.state, dict[int, str]()
        if self.world.first:
            delete_abandoned(self.folder, self.guard.journal.entries)
        found = checkpoint.load_newest(self.folder, refused)
        for line in refused.values():
            self._log(line)
        self.saver.refused = set(refused)
        if found is None:
            run_state.check_fresh(self.folder, refused, self.config)
            if self.world.first:
                self._describe()
                write_reading(self.folder, self.shards.tokenizer(), self.shards.chat_template())
            found = begin(self.config, state, self.shards, self.folder, self.world.first)
        parts = self.config, state, self.stream, self.guard, self.progress, self.world
        rows = run_state.restore(found, *parts) if found else []
        changed = found and (found.state["loader"]["plan"] != self.plan.sha256 or self.config.may_change)
        if self.world.first and changed:
            self._describe()  # the coming steps have changed
        self._open_log(rows)

    def _open_log(self, tail: list[dict[str, Any]]) -> None:
        """Open metrics.jsonl after this step; `tail`: the last rows, from the checkpoint."""
        if not self.world.first:
            return
        if self.metrics_log:
            self.metrics_log.close()
        self.metrics_log = open_log(self.folder, self.config, self.state.step, tail)

    def _describe(self) -> None:
        kept = self.shards.set
        data = run_data(self.config.data, self.folder, kept.vocab_size, kept.eos_id)
        for name, value in (
            (CONFIG, dumped(self.config)), (DATA, data.model_dump()), (PLAN, self.plan.as_json()),
        ):  # fmt: skip
            write_json(self.folder / name, value)

    def _row(self, metrics: Metrics, batch: Batch, validating: bool, tasks: bool) -> None:
        """Add a row (`corpusmill.train.log.metrics`) to metrics.jsonl."""
        state, span, world = self.state, self.span, self.world
        # This waits for the device, so that only finished work is timed.
        sums, busy = totals_and_each(state, world, self.stream.sources, self.folder.url, computing(world))
        seconds = self.progress.passed(span.seconds, world)
        if validating:
            self._validate()
        scores = self._score_tasks(seconds / max(state.step - span.step, 1)) if tasks else None
        with autocast(self.config, world.device):
            inside = None
            if metrics.param_norm is not None:
                inside = look_inside(state.model, batch, world.device, self.config.data.micro_batch)
        if self.metrics_log:
            row = row_of(state, world, self.stream, sums, metrics, span, seconds, inside)
            rows = self.metrics_log.rows
            if slowest := self.stragglers.found(world, busy):
                row.update(slowest.row())
                if slowest.named:
                    self.console.print(slowest.line(state.step))
            row.update(self.progress.spent())
            row["skipped"] = self.guard.skipped_since(rows[-1]["step"] if rows else 0)
            if validating:
                row["validation"] = self.progress.validation
                row.update(self.progress.beside())
                row.update(self.progress.preferences())
            if scores:
                row.update(scores.row())
            self.metrics_log.write(row)
            self.console.row(row)
            if self.config.guard.enabled and (collapsed := newest(rows, self.config.guard.collapse)):
                self.console.print(f"guard: step {state.step}: {message(collapsed)}; {ADVICE}")
            if self.on_row:
                self.on_row(row)
        state.window.zero_()
        self.span = Span(state.step)

    def _documents(self, step: int) -> dict[str, list[str]]:
        """Some documents of a step's batch, for the journal; in the first process."""
        if not self.world.first:
            return {}
        return documents(self.shards, self.plan, self.config.data.fetch, step, self.config.guard.documents)

    def _log(self, line: str) -> None:
        if self.world.first:
            log_line(line)

    def _validate(self) -> None:
        began = time.monotonic()
        given = self.shards.validation, self.world, self.objective, self.stream.rewrite
        validate(self.progress, self.state, *given)
        self.console.validation(self.state.step, self.progress.validation)
        self.span.paused += time.monotonic() - began

    def _score_tasks(self, seconds_per_step: float) -> Scores:
        assert self.tasks
        began = time.monotonic()
        scores, line = self.tasks.scores(self.state.model, seconds_per_step)
        if line:
            self.console.print(line)
        self.console.print(f"step {self.state.step}/{self.config.schedule.steps}  tasks  {scores.line()}")
        self.span.paused += time.monotonic() - began
        return scores

    def _save(self) -> None:
        """Begin to publish a checkpoint."""
        window = totals(self.state, self.world, self.stream.sources, self.folder.url).tolist()
        began = time.monotonic()  # after `totals`: what the device still had to do is not a pause
        self.saver.pinned = self.progress.plateau.pinned
        parts = self.config, self.state, self.stream, self.guard, self.progress
        run_state.save(self.saver, *parts, window, self.metrics_log)
        self.span.paused += time.monotonic() - began

    def _announce(self) -> None:
        if self.config.parallel.zero and self.world.size == 1:
            self.console.print(f"parallel.zero {self.config.parallel.zero}: has no effect in one process")
        count, step = self.state.model.parameter_count, self.state.step
        start = f"continuing after step {step}" if step else "starting"
        start = start if step < self.config.last_step and not self.over else "nothing is left to do"
        tokens = self.plan.tokens(step + 1) - self.plan.tokens(step)
        self.console.print(
            f"{self.config.name}: {count / 1e6:.2f} M parameters, {tokens:,} tokens a step,"
            f" {self.world.size} process(es) on {self.world.device.type}, {self.config.precision}; {start}"
        )
        if line := self.state.model.trained_line:
            self.console.print(line)

    def _result(self) -> dict[str, Any]:
        """What result.json holds; written by the first process, empty in the others."""
        state, tokens = self.state, self.plan.tokens(self.state.step)
        if not self.metrics_log:
            return {}
        last = self.metrics_log.rows[-1] if self.metrics_log.rows else {}
        seconds = self.progress.seconds
        result = {
            "name": self.config.name,
            "output": self.folder.url,
            "steps": state.step,
            "tokens": tokens,
            "parameters": state.model.parameter_count,
            "loss": last.get("loss"),
            "loss_per_source": last.get("loss_per_source"),
            **self.progress.results(),
            "seconds": round(seconds, 2),
            "tokens_per_second": round(tokens / max(seconds, 1e-9), 1),
            "weights_xxh3": checkpoint.open_step(self.folder, state.step).weights_xxh3,
            "plan": self.plan.sha256,
            "skipped": self.guard.skipped_since(0),
            "rollbacks": len(rollbacks(self.guard.journal.entries)),
            "mfu_formula": MFU_FORMULA,
            "peak_flops": peak_flops(self.world.device),
        }
        write_json(self.folder / RESULT, result)
        self.console.print(
            f"{self.config.name}: done, {state.step} steps in {seconds:.0f} s; {self.folder / RESULT}"
        )
        return result


def due(step: int, steps: int, every: int | None) -> bool:
    """Whether something that is done every `every` steps, and at the last one, is done at this step."""
    return every is not None and (step % every == 0 or step == steps)
