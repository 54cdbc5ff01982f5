"""Run in several processes: layouts, each against one process: losses, gradients of all parameters, weights after steps.

argv[1]: JSON list of [name, parallel settings, other settings]. The first process prints a line for each: that it agrees,
or what differs in which process. Comparisons are collected, not raised, so that all processes come to the next layout.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from corpusmill.schemas.training import TrainConfig
from corpusmill.train.batch import Batch
from corpusmill.train.log.probe import look_inside
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.precision.adapt import autocast, compile_layers
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.step import Metrics, TrainState, train_step

VOCAB, ROWS, LENGTH, STEPS, SOURCES = 90, 8, 24, 3, 2
MODEL = {"dim": 32, "layers": 4, "heads": 4, "kv_heads": 4, "ffn_dim": 48, "vocab_multiple": 8}
Gradients = dict[str, torch.Tensor]
Run = tuple[list[Metrics], list[Gradients], torch.Tensor]


def config_of(parallel: dict[str, Any], more: dict[str, Any]) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "name": "layouts", "precision": more.get("precision", "fp32"), "device": "cpu",
            "data": {"shards": "-", "sequence_length": LENGTH, "global_batch": ROWS, "micro_batch": more.get("micro_batch", 2), **more.get("data", {})},
            "model": {**MODEL, **more.get("model", {})}, "parallel": parallel,
            "optimizer": {"lr": 0.01, "grad_clip": 0.5, **more.get("optimizer", {"eps": 1e-4})},
            "schedule": {"steps": STEPS, "warmup_steps": 1, "kind": "constant"},
            **{name: more[name] for name in ("memory", "loss_scale", "adapter", "init_from") if name in more},
        }
    )  # fmt: skip


def batch_of(step: int) -> Batch:
    """The whole batch of a step: rows of several documents, in part not scored."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(VOCAB, (ROWS, LENGTH + 1), generator=generator)
    labels = ids[:, 1:].clone()
    labels[0, :7] = labels[5, 20:] = -100
    starts = torch.rand(ROWS, LENGTH, generator=generator) < 0.15
    documents = starts.cumsum(1)
    places = torch.arange(LENGTH).expand(ROWS, LENGTH)
    positions = places - torch.where(starts, places, 0).cummax(1).values
    return {
        "tokens": ids[:, :-1], "labels": labels, "documents": documents, "positions": positions,
        "source_id": torch.arange(ROWS) % SOURCES, "n": torch.arange(ROWS) + ROWS * step,
    }  # fmt: skip


def run(
    config: TrainConfig, model: ParallelModel, world: World, broken: bool = False, overflow: int | None = None
) -> Run:
    """Steps on this data rank's rows: metrics, and before each update this process's part of every gradient."""
    state = TrainState(
        config, model, make_optimizer(model, config.optimizer), torch.zeros(SOURCES, 2, dtype=torch.float64)
    )
    if config.precision == "fp16":
        state.loss_scale = LossScale(config.loss_scale)
    gradients: list[Gradients] = []
    step = state.optimizer.step

    def watched(*args: Any, **kwargs: Any) -> Any:
        gradients.append(
            {n: local(p.grad).clone() for n, p in model.named_parameters() if p.grad is not None}
        )
        return step(*args, **kwargs)

    state.optimizer.step = watched  # type: ignore[method-assign]
    if broken or overflow:  # what a layout might get wrong: one process's gradient of one parameter
        complete = model.complete

        def damaged() -> None:
            if world.rank == world.size - 1:
                parameter = model.parameters()[-1]
                if broken:
                    local(parameter.grad).mul_(1.01)
                elif state.step == overflow:
                    local(parameter.grad).fill_(torch.inf)
            complete()

        model.complete = damaged  # type: ignore[method-assign]
    metrics = []
    # The second step has what the first one left: weights, states, biases. A third, where the second is to overflow.
    for number in range(STEPS if overflow else STEPS - 1):
        whole = batch_of(number)
        mine = {name: value.tensor_split(world.data_size)[world.data_rank] for name, value in whole.items()}
        metrics.append(train_step(state, mine, float((whole["labels"] >= 0).sum()), collect_stats=True))
    return metrics, gradients, state.window


def compare(parallel: dict[str, Any], more: dict[str, Any]) -> list[str]:
    """What differs from one process, as this one sees it."""
    differences: list[str] = []

    @contextlib.contextmanager
    def noted(what: str) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            differences.append(f"{what}: {error}")

    config = config_of(parallel, more)
    world = join(config)
    model = build(config, VOCAB, world)
    if more.get("compile"):
        for part in model.parts:
            compile_layers(part, backend=more["compile"])
    initial, whole, wanted = reference(json.dumps(more))
    last = dict(whole.named_parameters())
    close: dict[str, Any] = more.get("close", {"rtol": 1e-4, "atol": 5e-6})

    def box(name: str, tensor: torch.Tensor, everything: torch.Tensor) -> torch.Tensor:
        """This process's part of a whole tensor."""
        shape, offsets = model.part(name, tensor)
        assert shape == tuple(everything.shape), (name, shape)
        return everything[
            tuple(slice(low, low + size) for low, size in zip(offsets, local(tensor).shape, strict=True))
        ]

    def same(got: torch.Tensor, expected: torch.Tensor, what: str, **how: float) -> None:
        torch.testing.assert_close(got, expected, msg=lambda m: f"{what}: {m}", **{**close, **how})

    parameters = dict(model.named_parameters())
    with noted("first values"):
        for name, parameter in parameters.items():
            assert torch.equal(local(parameter), box(name, parameter, initial[name])), name
    found = run(config, model, world, bool(more.get("broken")), more.get("overflow"))
    with noted("metrics"):
        for number, (a, b) in enumerate(zip(found[0], wanted[0], strict=True), 1):
            finite = bool(a.grad_norm.isfinite())
            assert finite == bool(b.grad_norm.isfinite()) == (number != more.get("overflow"))
            assert a.loss_scale == b.loss_scale
            if not finite:
                continue
            for field in ("grad_norm", "param_norm", "update_norm"):
                same(getattr(a, field), getattr(b, field), field, atol=1e-6)
            for name, value in (b.auxiliary or {}).items():
                # With two experts as likely but for the rounding of fp16, a token goes to either.
                tied = name == "load" and "close" in more
                same((a.auxiliary or {})[name], value, name, atol=1.0 if tied else 1e-7)
    with noted("gradients"):
        for number, (a, b) in enumerate(zip(found[1], wanted[1], strict=True)):
            assert set(a) == set(parameters)
            if number + 1 == more.get("overflow"):
                continue
            for name, grad in a.items():
                same(grad, box(name, parameters[name], b[name]), f"gradient at step {number} of {name}")
    with noted("weights"):
        for name, parameter in parameters.items():
            expected = box(name, parameter, last[name].detach())
            same(local(parameter.detach()), expected, f"weights of {name}", atol=max(1e-4, close["atol"]))
    total = world.total(found[2])
    with noted("losses"):
        same(total, wanted[2], "loss per source", atol=1e-6)
    # What rows of metrics contain of attention and logits: of the first rows of all processes.
    parts = [
        {k: v.tensor_split(world.data_size)[d] for k, v in batch_of(0).items()}
        for d in range(world.data_size)
    ]
    with autocast(config, world.device):
        seen = look_inside(model, parts[world.data_rank], world.device)
        rows = {k: torch.cat([part[k][:2] for part in parts]) for k in parts[0]}
        with patch("corpusmill.train.log.probe.ROWS", ROWS):
            right = look_inside(whole, rows, world.device, ROWS)
    near = {"rtol": 10 * close["rtol"], "atol": 1e-4}
    with noted("attention"):
        for name, value in seen._asdict().items():
            same(value, getattr(right, name), name, **near)
    return differences


@functools.cache
def reference(settings: str) -> tuple[dict[str, torch.Tensor], ParallelModel, Run]:
    """One process alone: first values, the model after its steps, and what `run` found. Layouts share it."""
    more = json.loads(settings)
    config = config_of({}, {**more, "memory": {}})
    model = ParallelModel([Decoder(config.model, VOCAB, config.seed)])
    initial = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return initial, model, run(config, model, World(), overflow=more.get("overflow"))


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name, parallel, more in json.loads(sys.argv[1]):
        differences: list[list[str]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(differences, compare(parallel, more))
        if dist.get_rank() == 0:
            for rank, different in enumerate(differences):
                for line in different:
                    print(f"{name} differs in process {rank}: {' '.join(line.split())}")
            if not any(differences):
                print(f"{name} agrees")
            sys.stdout.flush()
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
