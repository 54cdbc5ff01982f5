"""The loop. One process or many, first start or tenth: the same command, the same weights."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import Shards
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.evaluate.validate import validation_losses
from corpusmill.train.guard.guard import Guard
from corpusmill.train.guard.journal import amended, rollbacks
from corpusmill.train.guard.judge import Verdict, unhealthy
from corpusmill.train.guard.recover import delete_abandoned, documents, roll_back
from corpusmill.train.log.metrics import MFU_FORMULA, Console, MetricsLog, peak_flops, say
from corpusmill.train.log.probe import look_inside
from corpusmill.train.log.rows import Span, row_of, totals
from corpusmill.train.micro_batch import fit_micro_batch
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.model import build
from corpusmill.train.parallel.world import World, join
from corpusmill.train.precision.autocast import autocast
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.run_folder import CONFIG, PLAN, RESULT, TOKENIZER, dumped, refuse_changes, write_json
from corpusmill.train.step import Batch, Metrics, TrainState, train_step
from corpusmill.train.tools.convert.load import load_weights

Row = dict[str, Any]


def train(
    config: TrainConfig, replay: str | None = None, *, on_row: Callable[[Row], None] | None = None
) -> dict[str, Any]:
    """Train to the last step, from the newest valid checkpoint if there is one; what result.json holds.

    With `replay`, the file or URL of another run's journal, its decisions are taken instead of the guard's own. `on_row`
    gets each row of metrics.jsonl in the process that writes it; what it raises ends the run.
    Raises `UserError` for a config that cannot run here or is not that of the run in its output, `WorkError` for
    data or a store that fails, and if the guard gives up. SIGTERM and SIGINT save a checkpoint and exit with 143 and 130.
    """
    # Before the processes join: tokenising texts takes longer than they wait for each other.
    shards = open_run_data(config, say if os.environ.get("RANK", "0") == "0" else None)
    world = join(config)
    try:
        return Trainer(config, world, shards, replay, on_row).run()
    finally:
        world.close()


class Trainer:
    """The run's parts, put together once; `run` is the loop."""

    log: MetricsLog | None = None  # in the first process

    def __init__(
        self,
        config: TrainConfig,
        world: World,
        shards: Shards,
        replay: str | None = None,
        on_row: Callable[[Row], None] | None = None,
    ) -> None:
        self.config, self.world, self.shards, self.on_row = config, world, shards, on_row
        self.folder = Folder(config.output_url)
        self.saver = checkpoint.Saver(self.folder, config.checkpoint)
        self.guard = Guard(config.guard, self.folder, world, self._documents, self._say)
        if replay is not None:
            self.guard.replay(replay, fresh=not checkpoint.steps(self.folder))
        self._lay_out()
        model = build(config, self.shards.set.vocab_size, world)
        window = torch.zeros(len(self.plan.sources), 2, dtype=torch.float64, device=world.device)
        optimizer = make_optimizer(model, config.optimizer)
        self.state = TrainState(config, model, optimizer, window, world.device)
        if config.precision == "fp16":
            self.state.loss_scale = LossScale(config.loss_scale, world.device)
        self.seconds = 0.0  # of training, in all
        self.validation: dict[str, float] = {}
        self._resume()
        if 0 < self.state.step < config.schedule.steps:
            self.guard.journal.add(kind="resume", step=self.state.step)
        if config.memory.auto_micro_batch and self.state.step < config.schedule.steps:
            self.config = config = fit_micro_batch(self.state, world, self._say)
        self.console = Console(config.schedule.steps, self.state.step, world.first)

    def run(self) -> dict[str, Any]:
        """Step after step to the end; a row, a validation, a checkpoint when they are due; back if the guard says so."""
        config, state, world = self.config, self.state, self.world
        steps, stop = config.last_step, Stop()
        self.span = Span(state.step)
        self._announce()
        try:
            while state.step < steps:
                batch = self.span.next_batch(self.stream)
                valid, signalled, failed = world.sum(
                    float((batch["labels"] >= 0).sum()), stop.signal, self.saver.failed
                )
                if failed:  # rather than train on without checkpoints
                    self.saver.wait()
                self.guard.arm(state, self.plan.segment_of(state.step + 1).stretch.first_step)
                metrics = train_step(state, batch, valid, watch=due(state.step + 1, steps, config.log.every))
                validate = due(state.step, steps, config.validation.every)
                row = validate or due(state.step, steps, config.log.every)
                save = signalled or due(state.step, steps, config.checkpoint.every)
                verdict = self.guard.judge(metrics, state.step, now=bool(row or save))
                if verdict.kind != "go_on":
                    self._roll_back(verdict)
                    continue
                self.console.step(state.step)
                if row:
                    self._row(metrics, batch, validate)
                if save:
                    self._save()
                if signalled and state.step < steps:
                    self.saver.wait()
                    self.console.say(
                        f"stopped by a signal after step {state.step}; the same command goes on from there"
                    )
                    raise SystemExit(128 + int(stop.signal or signal.SIGTERM))
            self.saver.wait()
            return self._result()
        finally:
            self.saver.close()
            stop.release()
            self.stream.close()
            self.console.close()
            if self.log:
                self.log.close()

    def _lay_out(self) -> None:
        """The plan of what is still to come, and its stream: at the start, and after a rollback."""
        config, data = self.config, amended(self.config.data, self.guard.journal.entries)
        # Caps on repeats are of the config's plan: what a rollback passes over must not stop the run.
        steps = config.schedule.steps if data == config.data else None
        self.plan = make_plan(data, self.shards, config.seed, steps)
        self.stream = StreamingTokens(
            self.shards, plan=self.plan, dp_rank=self.world.data_rank, dp_world=self.world.data_size, say=say,
            **data.model_dump(exclude={"shards"}),
        )  # fmt: skip

    def _roll_back(self, verdict: Verdict) -> None:
        """Go back to a healthy checkpoint: what a new process would do that finds the guard's journal so."""
        if verdict.kind == "stop":
            raise self.guard.stop(verdict)
        self.saver.wait()
        roll_back(self.guard, self.plan, verdict)
        self.stream.close()
        self._lay_out()
        self._resume()
        self.span = Span(self.state.step)

    def _resume(self) -> None:
        """Take up the newest valid checkpoint of this branch, the same one in every process."""
        state, refused = self.state, dict[int, str]()
        if self.world.first:
            delete_abandoned(self.folder, self.guard.journal.entries)
        found = checkpoint.load_newest(self.folder, refused)
        for line in refused.values():
            self._say(line)
        self.saver.refused = set(refused)
        if found is None:
            if self.world.first:
                self._describe()
                (self.folder / TOKENIZER).write(self.shards.tokenizer())
            if self.config.init_from:
                whole = Decoder(self.config.model, self.shards.set.vocab_size)
                load_weights(whole, Folder(self.config.init_from), self.shards.tokenizer())
                state.model.fill(whole.state_dict())
            self._open_log([])
            return
        saved = found.state
        refuse_changes(saved["config"], self.config, self.folder)
        self.stream.load_state_dict(saved["loader"])
        if self.world.first and (saved["loader"]["plan"] != self.plan.sha256 or self.config.may_change):
            self._describe()  # what lies ahead is another
        checkpoint.restore(found, state.model, state.optimizer)
        self.guard.load_state_dict(saved.get("guard"))
        if state.loss_scale:
            state.loss_scale.load_state_dict(saved["loss_scale"])
        state.step, self.validation = found.step, saved["validation"]
        self.seconds = max(self.seconds, saved["seconds"])
        state.window.zero_()
        if self.world.first:  # the sums of all processes: one of them carries them on
            state.window.copy_(torch.tensor(saved["window"], dtype=torch.float64))
        self._open_log(list(saved["metrics"]))

    def _open_log(self, tail: list[dict[str, Any]]) -> None:
        """metrics.jsonl up to here; `tail` are the last rows that the checkpoint carries."""
        if not self.world.first:
            return
        if self.log:
            self.log.close()
        self.log = MetricsLog(self.folder, self.config, self.state.step, tail)

    def _describe(self) -> None:
        for name, value in ((CONFIG, dumped(self.config)), (PLAN, self.plan.as_json())):
            write_json(self.folder / name, value)

    def _row(self, metrics: Metrics, batch: Batch, validate: bool) -> None:
        """Add a row to metrics.jsonl; `corpusmill.train.log.rows` says what is in it."""
        state, span, world = self.state, self.span, self.world
        # It waits for the device, so that what is timed is work that was done.
        sums = totals(state, world, self.stream.sources, self.folder.url)
        seconds = span.seconds
        if validate:
            self._validate()
        with autocast(self.config, world.device):
            most = self.config.data.micro_batch
            inside = (
                look_inside(state.model, batch, world.device, most)
                if metrics.param_norm is not None
                else None
            )
        if self.log:
            row = row_of(state, world, self.stream, sums, metrics, span, seconds, inside)
            row["skipped"] = self.guard.skipped_since(self.log.rows[-1]["step"] if self.log.rows else 0)
            if validate:
                row["validation"] = self.validation
            self.log.write(row)
            self.console.log(row)
            if self.on_row:
                self.on_row(row)
        self.seconds += seconds
        state.window.zero_()
        self.span = Span(state.step)

    def _documents(self, step: int) -> dict[str, list[str]]:
        """Of the batch of a step, for the journal; the first process names them."""
        if not self.world.first:
            return {}
        return documents(self.shards, self.plan, self.config.data.fetch, step, self.config.guard.documents)

    def _say(self, line: str) -> None:
        if self.world.first:
            say(line)

    def _validate(self) -> None:
        began = time.monotonic()
        self.validation = validation_losses(self.state.model, self.config, self.shards.validation, self.world)
        self.console.validation(self.state.step, self.validation)
        self.span.paused += time.monotonic() - began

    def _save(self) -> None:
        """Begin to publish a checkpoint; it holds what the next process needs to go on as if nothing had been."""
        state = self.state
        window = totals(state, self.world, self.stream.sources, self.folder.url).tolist()
        saved = dict[str, Any]()
        began = time.monotonic()  # what the device still had to do is no pause
        if self.log:
            self.log.flush()
            saved = {
                "v": 1,
                "step": state.step,
                "loader": self.stream.state_dict(),
                "guard": self.guard.state_dict(),
                "window": window,
                "seconds": self.seconds,
                "validation": self.validation,
                "loss_scale": state.loss_scale.state_dict() if state.loss_scale else None,
                "metrics": self.log.tail(),
                "config": dumped(self.config),
                "config_hash": hash_json(dumped(self.config)),
            }
        # One that is not healthy takes the place of none: there may be need to go back beyond it.
        ill = unhealthy(self.guard.history, self.config.guard) is not None
        self.saver.save(state.step, checkpoint.live(state.model, state.optimizer), saved, 2 * ill)
        self.span.paused += time.monotonic() - began

    def _announce(self) -> None:
        if self.config.parallel.zero and self.world.size == 1:
            self.console.say(
                f"parallel.zero {self.config.parallel.zero}: one process has nothing to share out"
            )
        count, plan = self.state.model.parameter_count, self.plan
        start = f"going on after step {self.state.step}" if self.state.step else "starting"
        start = start if self.state.step < self.config.last_step else "nothing is left to do"
        self.console.say(
            f"{self.config.name}: {count / 1e6:.2f} M parameters,"
            f" {plan.tokens(self.state.step + 1) - plan.tokens(self.state.step):,} tokens a step, {self.world.size} process(es) on {self.world.device.type}, {self.config.precision}; {start}"
        )

    def _result(self) -> dict[str, Any]:
        """result.json: what the run ended with."""
        state, tokens = self.state, self.plan.tokens(self.state.step)
        if not self.log:
            return {}
        last = self.log.rows[-1] if self.log.rows else {}
        result = {
            "name": self.config.name,
            "output": self.folder.url,
            "steps": state.step,
            "tokens": tokens,
            "parameters": state.model.parameter_count,
            "loss": last.get("loss"),
            "loss_per_source": last.get("loss_per_source"),
            "validation": self.validation,
            "seconds": round(self.seconds, 2),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9), 1),
            "weights_xxh3": checkpoint.open_step(self.folder, state.step).weights_xxh3,
            "plan": self.plan.sha256,
            "skipped": self.guard.skipped_since(0),
            "rollbacks": len(rollbacks(self.guard.journal.entries)),
            "mfu_formula": MFU_FORMULA,
            "peak_flops": peak_flops(self.world.device),
        }
        write_json(self.folder / RESULT, result)
        self.console.say(
            f"{self.config.name}: done, {state.step} steps in {self.seconds:.0f} s; {self.folder / RESULT}"
        )
        return result


def due(step: int, steps: int, every: int | None) -> bool:
    """Whether something that happens every so many steps, and at the end, happens at this step."""
    return every is not None and (step % every == 0 or step == steps)


class Stop:
    """Remembers the first SIGTERM or SIGINT (0: none yet); a second one acts as if this were not here."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
            }

    def _note(self, number: int, _frame: object) -> None:
        self.signal = number
        self.release()

    def release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
