"""The loop. One process or many, first start or tenth: the same command, the same weights."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import torch

from schemas.errors import WorkError
from schemas.manifest import hash_json
from schemas.storage import Folder
from schemas.training import TrainConfig
from train import checkpoint
from train.data.opening import open_run_data
from train.data.planning import make_plan
from train.data.shards import Shards
from train.data.stream import StreamingTokens
from train.distributed import World, join
from train.evaluate.validate import validation_losses
from train.export.load import load_weights
from train.metrics import MFU_FORMULA, Console, MetricsLog, memory_mib, mfu, say
from train.model.decoder import Decoder
from train.model.moe import load_figures
from train.optim import make_optimizer
from train.parallel import build
from train.precision.loss_scale import LossScale
from train.precision.micro_batch import fit_micro_batch
from train.run import CONFIG, PLAN, RESULT, TOKENIZER, dumped, refuse_changes, write_json
from train.step import Metrics, TrainState, train_step


def train(config: TrainConfig) -> dict[str, Any]:
    """Train to the last step, from the newest valid checkpoint if there is one; what result.json holds.

    Raises `UserError` for a config that cannot run here or is not that of the run in its output, `WorkError` for
    data or a store that fails. SIGTERM and SIGINT save a checkpoint and exit with 143 and 130.
    """
    # Before the processes join: tokenising texts takes longer than they wait for each other.
    shards = open_run_data(config, say if os.environ.get("RANK", "0") == "0" else None)
    world = join(config)
    try:
        return Trainer(config, world, shards).run()
    finally:
        world.close()


class Trainer:
    """The run's parts, put together once; `run` is the loop."""

    def __init__(self, config: TrainConfig, world: World, shards: Shards) -> None:
        self.config, self.world, self.shards = config, world, shards
        self.folder = Folder(config.output_url)
        self.saver = checkpoint.Saver(self.folder, config.checkpoint)
        self.plan = make_plan(config.data, self.shards, config.seed, config.schedule.steps)
        self.stream = StreamingTokens(
            self.shards, plan=self.plan, dp_rank=world.data_rank, dp_world=world.data_size, say=say,
            **config.data.model_dump(exclude={"shards"}),
        )  # fmt: skip
        model = build(config, self.shards.set.vocab_size, world)
        window = torch.zeros(len(self.plan.sources), 2, dtype=torch.float64, device=world.device)
        optimizer = make_optimizer(model, config.optimizer)
        self.state = TrainState(config, model, optimizer, window, world.device)
        if config.precision == "fp16":
            self.state.loss_scale = LossScale(config.loss_scale, world.device)
        self.seconds = 0.0  # of training, in all
        self.paused = 0.0  # of saving and validating, since the last row
        self.validation: dict[str, float] = {}
        tail = self._resume()
        if config.memory.auto_micro_batch and self.state.step < config.schedule.steps:
            self.config = config = fit_micro_batch(self.state, world, say if world.first else None)
        board = config.log.tensorboard and self.state.step < config.schedule.steps
        self.log = MetricsLog(self.folder, self.state.step, tail, board) if world.first else None
        self.console = Console(config.schedule.steps, self.state.step, world.first)

    def run(self) -> dict[str, Any]:
        """Step after step to the end; a row, a validation, a checkpoint when they are due."""
        config, state, world = self.config, self.state, self.world
        steps, stop = config.schedule.steps, Stop()
        mark, since, stalled = time.monotonic(), state.step, 0.0
        self._announce()
        try:
            while state.step < steps:
                asked = time.monotonic()
                batch = next(self.stream)
                stalled += time.monotonic() - asked
                valid, signalled, failed = world.sum(
                    float((batch["labels"] >= 0).sum()), stop.signal, self.saver.failed
                )
                if failed:  # rather than train on without checkpoints
                    self.saver.wait()
                metrics = train_step(state, batch, valid, watch=due(state.step + 1, steps, config.log.every))
                self.console.step(state.step)
                validate = due(state.step, steps, config.validation.every)
                if validate:
                    self._validate()
                if validate or due(state.step, steps, config.log.every):
                    self._row(
                        metrics, time.monotonic() - mark - self.paused, stalled, state.step - since, validate
                    )
                    mark, since, stalled, self.paused = time.monotonic(), state.step, 0.0, 0.0
                if signalled or due(state.step, steps, config.checkpoint.every):
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

    def _resume(self) -> list[dict[str, Any]]:
        """Take up the newest valid checkpoint, the same one in every process; the last rows it carries."""
        state, refused = self.state, list[str]()
        found = checkpoint.load_newest(self.folder, refused)
        if self.world.first:
            for line in refused:
                say(line)
        if found is None:
            if self.world.first:
                self._describe()
                (self.folder / TOKENIZER).write(self.shards.tokenizer())
            if self.config.init_from:
                whole = Decoder(self.config.model, self.shards.set.vocab_size)
                load_weights(whole, Folder(self.config.init_from), self.shards.tokenizer())
                state.model.fill(whole.state_dict())
            return []
        saved = found.state
        refuse_changes(saved["config"], self.config, self.folder)
        self.stream.load_state_dict(saved["loader"])
        if self.world.first and saved["loader"]["plan"] != self.plan.sha256:
            self._describe()  # what lies ahead is another
        checkpoint.restore(found, state.model, state.optimizer)
        state.step, self.seconds, self.validation = found.step, saved["seconds"], saved["validation"]
        if state.loss_scale:
            state.loss_scale.load_state_dict(saved["loss_scale"])
        if self.world.first:  # the sums of all processes: one of them carries them on
            state.window.copy_(torch.tensor(saved["window"], dtype=torch.float64))
        return list(saved["metrics"])

    def _describe(self) -> None:
        for name, value in ((CONFIG, dumped(self.config)), (PLAN, self.plan.as_json())):
            write_json(self.folder / name, value)

    def _row(self, metrics: Metrics, seconds: float, stalled: float, steps: int, validated: bool) -> None:
        """One row of metrics.jsonl: means over the steps since the last one, norms and rate of this step."""
        state, world = self.state, self.world
        sums = self._sums()
        state.window.zero_()
        self.seconds += seconds
        if not self.log:
            return
        plan, length = self.plan, self.plan.segment_of(state.step).stretch.length
        speed = (plan.tokens(state.step) - plan.tokens(state.step - steps)) / max(seconds, 1e-9)
        loss, tokens = sums.sum(0).tolist()
        row = {
            "step": state.step,
            "tokens": plan.tokens(state.step),
            "loss": loss / max(tokens, 1.0),
            "loss_per_source": {
                name: total / count for name, (total, count) in zip(self.stream.sources, sums.tolist(), strict=True)
                if count
            },
            "lr": metrics.rate,
            "grad_norm": float(metrics.grad_norm),
            "param_norm": None if metrics.param_norm is None else float(metrics.param_norm),
            "update_norm": None if metrics.update_norm is None else float(metrics.update_norm),
            **({} if metrics.loss_scale is None else {"loss_scale": float(metrics.loss_scale)}),
            **self._auxiliary(metrics),
            "tokens_per_second": round(speed, 1),
            "mfu": mfu(speed / world.size, state.model.whole.flops_per_token(length), world.device),
            "loader_stall": round(stalled / max(seconds, 1e-9), 5),
            "memory_mib": memory_mib(world.device),
            "blocks_replaced": self.stream.fetched["replaced"],
        }  # fmt: skip
        if validated:
            row["validation"] = self.validation
        self.log.write(row)
        self.console.log(row)

    def _auxiliary(self, metrics: Metrics) -> dict[str, Any]:
        """Of this step: the losses beside the cross entropy, and how full the experts were."""
        values = dict(metrics.auxiliary or {})
        load = values.pop("load", None)
        row: dict[str, Any] = {name: float(value) for name, value in values.items()}
        return row if load is None else {**row, "expert_load": load_figures(self.config.model, load)}

    def _sums(self) -> torch.Tensor:
        """[sources, 2] loss and tokens of all processes since the last row; raises `WorkError` if it went wrong."""
        sums = self.world.total(self.state.window)
        if not bool(sums.isfinite().all()):
            bad = [
                n
                for n, loss in zip(self.stream.sources, sums[:, 0].tolist(), strict=True)
                if loss != loss or loss > 1e300
            ]
            raise WorkError(
                f"{self.folder}: the loss of {', '.join(bad)} is not a finite number at step {self.state.step}; nothing of"
                f" it was saved. Lower optimizer.lr (or set optimizer.grad_clip) and start in another output"
            )
        return sums

    def _validate(self) -> None:
        began = time.monotonic()
        self.validation = validation_losses(self.state.model, self.config, self.shards.validation, self.world)
        self.console.validation(self.state.step, self.validation)
        self.paused += time.monotonic() - began

    def _save(self) -> None:
        """Begin to publish a checkpoint; it holds what the next process needs to go on as if nothing had been."""
        began, state = time.monotonic(), self.state
        window, saved = self._sums().tolist(), dict[str, Any]()
        if self.log:
            self.log.flush()
            saved = {
                "v": 1,
                "step": state.step,
                "loader": self.stream.state_dict(),
                "window": window,
                "seconds": self.seconds,
                "validation": self.validation,
                "loss_scale": state.loss_scale.state_dict() if state.loss_scale else None,
                "metrics": self.log.tail(),
                "config": dumped(self.config),
                "config_hash": hash_json(dumped(self.config)),
            }
        self.saver.save(state.step, checkpoint.live(state.model, state.optimizer), saved)
        self.paused += time.monotonic() - began

    def _announce(self) -> None:
        count, plan = self.state.model.parameter_count, self.plan
        start = f"going on after step {self.state.step}" if self.state.step else "starting"
        start = start if self.state.step < self.config.schedule.steps else "nothing is left to do"
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
            "mfu_formula": MFU_FORMULA,
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
