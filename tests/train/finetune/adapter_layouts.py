"""Run in several processes: adapters in layouts, each against one process: first values, gradients, weights after steps, and that
nothing else moves. argv[1]: JSON list of [name, parallel settings, other settings]; prints as `tests.train.parallel.layouts` does."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.adapters import adapted, set_magnitudes, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.precision.adapt import compile_layers
from tests.train.parallel.layouts import VOCAB, Run, config_of, run


def fresh(config: TrainConfig) -> Decoder:
    return with_adapters(Decoder(config.model, VOCAB, config.seed), config.adapter, config.seed)


@torch.no_grad()
def moved(config: TrainConfig) -> Decoder:
    """The whole model; weights, B, magnitudes and biases are so far from what they first are that no gradient is next to 0."""
    model, generator = fresh(config), torch.Generator().manual_seed(5)
    set_magnitudes(model)
    for linear in adapted(model).values():
        if linear.quantised:
            linear.keep_codes(linear.values() + 0.1 * torch.randn(linear.values().shape, generator=generator))
        for parameter in (linear.weight, linear.lora_b, linear.magnitude, linear.bias):
            if parameter is not None:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    for name, parameter in model.named_parameters():
        if name.endswith(("prompt_embedding", "prefix_embedding")):
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    return model


@functools.cache
def reference(settings: str) -> tuple[ParallelModel, Run]:
    """One process alone: the model after its steps, and what `run` found."""
    config = config_of({}, json.loads(settings))
    model = ParallelModel([moved(config)])
    return model, run(config, model, World())


def compare(parallel: dict[str, Any], more: dict[str, Any]) -> list[str]:
    """What differs from one process, as this one sees it."""
    config = config_of(parallel, more)
    model, found = build(config, VOCAB, join(config)), []
    if more.get("compile"):
        for part in model.parts:
            compile_layers(part, backend=more["compile"])
    parameters = dict(model.named_parameters())

    def differs(name: str, here: torch.Tensor, whole: torch.Tensor, rtol: float, atol: float) -> bool:
        """A tensor like a parameter, and the whole one: not where this process has it."""
        shape, offsets = model.part(name, parameters[name])
        assert shape == tuple(whole.shape), (name, shape, whole.shape)
        box = [slice(low, low + size) for low, size in zip(offsets, here.shape, strict=True)]
        return not torch.allclose(here, whole[tuple(box)], rtol=rtol, atol=atol)

    def note(what: str, name: str) -> None:
        found.append(f"{what} of {name}")

    first, start = fresh(config).state_dict(), moved(config).state_dict()
    for name, parameter in parameters.items():
        if differs(name, local(parameter.detach()), first[name], 0.0, 0.0):
            note("first values", name)
    model.load_whole(start)
    alone, wanted = reference(json.dumps(more))
    metrics, gradients, window = run(config, model, model.world)
    if more.get("broken"):
        next(iter(gradients[0].values())).mul_(1.01)
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    if not trained or any(
        name.rpartition(".")[2]
        not in ("lora_a", "lora_b", "magnitude", "prompt_embedding", "prefix_embedding")
        for name in trained
    ):
        found.append(f"trained are {sorted(trained)}")
    # The second step's gradients are those at weights that the first one moved, which divides by small numbers.
    exact, rough = more.get("exact", (1e-5, 1e-6)), more.get("rough", (1e-4, 5e-6))
    for step, (rtol, atol) in enumerate((exact, rough)):
        if set(gradients[step]) != trained:
            found.append(f"gradients of {sorted(set(gradients[step]) ^ trained)}")
        for name, grad in gradients[step].items():
            whole = wanted[1][step][name]
            # Small ones too, by which queries and keys are trained, are right to 0.1 % of their largest element.
            near = atol if "exact" in more else min(atol, 1e-3 * float(whole.abs().max()))
            if not whole.any() or differs(name, grad, whole, rtol, near):
                note(f"gradient at step {step}", name)
    last = dict(alone.named_parameters())
    for name, parameter in parameters.items():
        here = local(parameter.detach())
        if name not in trained and differs(name, here, start[name], 0.0, 0.0):
            note("frozen weights", name)
        if name in trained and differs(name, here, last[name].detach(), 1e-4, max(1e-4, rough[1])):
            note("weights", name)
    for name, value in model.state_dict().items():
        if name not in parameters:
            box = model.part(name, value).slices(value.shape)
            if not torch.equal(value, start[name][box]):
                note("codes", name)
    for a, b in zip(metrics, wanted[0], strict=True):
        for field in ("grad_norm", "param_norm", "update_norm"):
            if not torch.allclose(getattr(a, field), getattr(b, field), rtol=rough[0], atol=1e-6):
                found.append(field)
    if not torch.allclose(model.world.total(window), wanted[2], rtol=rough[0], atol=1e-6):
        found.append("loss")
    return found


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name, parallel, more in json.loads(sys.argv[1]):
        found: list[list[str]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(found, compare(parallel, more))
        if dist.get_rank() == 0:
            for rank, lines in enumerate(found):
                for line in lines:
                    print(f"{name} differs in process {rank}: {line}")
            if not any(found):
                print(f"{name} agrees")
            sys.stdout.flush()
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
