"""Run in four processes: steps of the objective that the argument names in each layout, each beside one process. The first process prints
a line for each that agrees, or what differs."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from corpusmill.schemas.distillation import StoredLogits, StoreSettings
from corpusmill.schemas.shards import Target
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.batch import Batch
from corpusmill.train.finetune.distill import Distiller
from corpusmill.train.finetune.preference import Preference
from corpusmill.train.finetune.regularize import Regularizer
from corpusmill.train.finetune.reward import values
from corpusmill.train.finetune.stored import Arrays, LogitFiles, Stored
from corpusmill.train.finetune.teacher_logits import keep
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.step import TrainState, train_step
from tests.train.finetune.adapter_layouts import moved
from tests.train.parallel.layouts import LENGTH, MODEL, ROWS, SOURCES, VOCAB

STEPS = 2
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {}, "zero 3": {"zero": 3}, "tensor x ddp": {"tensor": 2}, "pipeline x tensor": {"pipeline": 2, "tensor": 2},
    "pipeline x zero 1": {"pipeline": 2, "zero": 1},
}  # fmt: skip
REGULARIZED: dict[str, dict[str, Any]] = {
    "smoothed": {"label_smoothing": 0.2}, "noisy": {"embedding_noise": 10.0}, "adversarial": {"adversarial": 0.5},
    "all of these": {"label_smoothing": 0.1, "embedding_noise": 5.0, "adversarial": 0.1},
}  # fmt: skip
WHOLE_ROWS = ("ddp", "zero 3")  # layouts with an adversarial pass
OBJECTIVES = (
    "reward",
    "dpo",
    "ipo",
    "hinge",
    "orpo",
    "simpo",
    "kto",
    "labels",
    "distilled",
    "stored top",
    "stored sampled",
    "dpo of an adapter",
    *REGULARIZED,
)
SIZE = 6  # tokens of a document, of which the first half are its prompt
KINDS = {
    "kto": (Target.answer, Target.unrelated, Target.rejected, Target.unrelated),
    "labels": (Target.answer,) * 4,
    **dict.fromkeys(("distilled", "stored top", "stored sampled"), (Target.answer,) * 4),
    **dict.fromkeys(REGULARIZED, (Target.answer,) * 4),
}


def made_in(loss: str, layout: str) -> bool:
    return "adversarial" not in REGULARIZED.get(loss, {}) or layout in WHOLE_ROWS


def config_of(parallel: dict[str, Any], loss: str) -> TrainConfig:
    more: dict[str, Any] = {"objective": {"loss": loss.split()[0], "beta": 0.5}}
    if loss == "dpo of an adapter":
        more["adapter"] = {"rank": 4, "alpha": 8.0, "dora": True}
    if loss in KINDS and loss != "kto":
        more = (
            {} if loss == "labels" else {"distillation": {"teacher": "-", "temperature": 2.0, "share": 0.7}}
        )
    if loss == "reward":
        more = {"objective": {"loss": "reward", "centring": 0.01}}
    if loss in REGULARIZED:
        more = {"regularization": REGULARIZED[loss]}
    return TrainConfig.model_validate(
        {
            "name": "objectives", "precision": "fp32", "device": "cpu", "init_from": "-", "parallel": parallel, **more,
            "data": {
                "shards": "-", "conversations": {}, "sequence_length": LENGTH, "global_batch": ROWS, "micro_batch": 2,
            },
            "model": {**MODEL, "reward_head": loss == "reward"}, "optimizer": {"lr": 0.01, "grad_clip": 0.5, "eps": 1e-4},
            "schedule": {"steps": STEPS, "warmup_steps": 1, "kind": "constant"},
        }
    )  # fmt: skip


def batch_of(step: int, loss: str) -> Batch:
    """Rows of four documents each, of a prompt and an answer; of the last row the answers are shorter."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(VOCAB, (ROWS, LENGTH + 1), generator=generator)
    documents = (torch.arange(LENGTH) // SIZE).expand(ROWS, LENGTH)
    places = torch.arange(LENGTH) % SIZE
    kinds = torch.tensor(KINDS.get(loss, (Target.answer, Target.rejected) * 2))
    answers = (places >= SIZE // 2).expand(ROWS, LENGTH).clone()
    answers[-1] &= places < SIZE - 1
    return {
        "tokens": ids[:, :-1], "labels": torch.where(answers, ids[:, 1:], -100), "documents": documents,
        "positions": places.expand(ROWS, LENGTH), "source_id": torch.arange(ROWS) % SOURCES,
        "targets": torch.where(answers, kinds[documents], 0).to(torch.uint8), "n": torch.arange(ROWS) + ROWS * step,
    }  # fmt: skip


class Kept(LogitFiles):
    """Distributions of the labels of `batch_of`, without files."""

    def __init__(self, loss: str) -> None:
        self.settings = StoreSettings.model_validate({"kept": loss.split()[1], "count": 5})
        self.about = StoredLogits(
            teacher="-", weights_xxh3=None, plan="", rows=VOCAB, temperature=2.0, seed=0, settings=self.settings,
            sequences=ROWS * (STEPS + 1), per_file=ROWS,
        )  # fmt: skip

    def of(self, numbers: npt.NDArray[np.int64]) -> Arrays:
        found = []
        for number in numbers.tolist():
            labels = int((batch_of(number // ROWS, "stored")["labels"][number % ROWS] >= 0).sum())
            chance = torch.Generator().manual_seed(number)
            kept = keep(torch.randn(labels, VOCAB, generator=chance), self.settings, chance)
            found.append(
                {name: value.numpy() for name, value in zip(("ids", "log_p", "rest"), kept, strict=False)}
            )
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def run(config: TrainConfig, loss: str, world: World) -> tuple[ParallelModel, torch.Tensor, list[float]]:
    """Steps on this data rank's rows, beside a reference of other weights: the model, the window of all processes, and what evaluation
    finds on other rows, of which the first data rank makes more batches than the others."""
    model, objective = build(config, VOCAB, world), None
    if config.objective is not None:
        reference = None
        if config.adapter is not None:  # whose reference is the model without it
            reference = model
            model.load_whole(moved(config).state_dict())
        elif config.objective.needs_reference:
            reference = build(config, VOCAB, world, frozen=True)
            reference.load_whole(Decoder(config.model, VOCAB, seed=9).state_dict())
        if loss == "reward":
            for piece in model.parts:
                piece.score = values
        objective = Preference(config.objective, model, reference, world)
    columns = 2 + (len(objective.names) if objective else 0)
    window = torch.zeros(SOURCES, columns, dtype=torch.float64)
    state = TrainState(config, model, make_optimizer(model, config.optimizer), window, objective=objective)
    if loss.startswith("stored"):
        assert config.distillation is not None
        state.distiller = Stored(config.distillation, Kept(loss), world.device, chunk=20)
    elif config.distillation is not None:  # by a teacher that is wider and deeper
        wider = config.model.model_copy(update={"dim": 48, "layers": 5})
        teacher = build(config.model_copy(update={"model": wider}), VOCAB, world, frozen=True)
        teacher.load_whole(Decoder(wider, VOCAB, seed=9).state_dict())
        state.distiller = Distiller(config.distillation, teacher, chunk=20)
    if config.regularization is not None:
        state.distiller = Regularizer(config.regularization)
    for step in range(STEPS):
        train_step(
            state, part(batch_of(step, loss), world), float((batch_of(step, loss)["labels"] >= 0).sum()), True
        )
    found: list[float] = []
    if objective is not None and loss != "kto":  # whose divergence depends on how rows are batched
        mine, size = part(batch_of(9, loss), world), 1 if world.data_rank == 0 else ROWS
        cut = [torch.split(value, size) for value in mine.values()]
        figures = objective.evaluate(
            [dict(zip(mine, values, strict=True)) for values in zip(*cut, strict=True)]
        )
        found = [figures.loss, *figures.named.values()]
    return model, world.total(window), found


def part(whole: Batch, world: World) -> Batch:
    """This data rank's rows."""
    return {name: value.tensor_split(world.data_size)[world.data_rank] for name, value in whole.items()}


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    loss = sys.argv[1]
    single, window, figures = run(config_of({}, loss), loss, World())
    wanted = single.state_dict()
    for name, parallel in LAYOUTS.items():
        if not made_in(loss, name):
            continue
        config = config_of(parallel, loss)
        model, found, own = run(config, loss, join(config))
        problems = []
        for key, value in model.state_dict().items():
            here, (_, offsets) = local(value), model.part(key, value)
            box = tuple(slice(low, low + size) for low, size in zip(offsets, here.shape, strict=True))
            if not torch.allclose(here, wanted[key][box], rtol=1e-4, atol=1e-5):
                problems.append(f"{key} differs by {float((here - wanted[key][box]).abs().max()):.2g}")
        # Margins are small differences of sums of some 200.
        if not torch.allclose(found, window, rtol=1e-4, atol=1e-4):
            problems.append(f"window is {found.tolist()}, not {window.tolist()}")
        if not torch.allclose(torch.tensor(own), torch.tensor(figures), rtol=1e-4, atol=1e-5):
            problems.append(f"evaluation finds {own}, not {figures}")
        somewhere = torch.tensor(float(bool(problems)))
        dist.all_reduce(somewhere)
        if problems:
            print(f"{loss}, {name}, process {dist.get_rank()}: {'; '.join(problems)}", flush=True)
        elif not somewhere and dist.get_rank() == 0:
            print(f"{loss}, {name}: agrees", flush=True)
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
