"""Run in four processes: saved in layouts of a case, loaded in others, and trained on as if nothing had happened; in the same
layout to the bit. argv: a folder, the case, and JSON: the pairs of layouts [saved in, loaded in]."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from corpusmill.common.storage import Folder
from corpusmill.train import checkpoint
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.step import TrainState, train_step
from tests.train.parallel.layouts import SOURCES, STEPS, VOCAB, batch_of, config_of


class Case(NamedTuple):
    """Layouts by name, what else the config has, the layout that quick tests pair with all others, and how near to one
    process's weights those of all layouts end."""

    layouts: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    hub: str
    near: float = 1e-4


CASES = {
    "experts": Case(
        {
            "ddp": {},
            "zero 3": {"zero": 3},
            "tensor": {"tensor": 4},
            "pipeline x tensor": {"pipeline": 2, "tensor": 2},
            "interleaved x zero 1": {"pipeline": 2, "schedule": "interleaved", "zero": 1},
            "context x zero 1": {"context": 2, "zero": 1},
            "experts x hybrid": {"zero": 2, "replicate": 2, "expert": 2},
        },
        {
            "model": {
                "moe": {"experts": 4, "top_k": 2, "ffn_dim": 16, "bias_rate": 0.01, "first": 2}, "dropout": 0.1
            }
        },
        hub="zero 3",
    ),
    # Parameters whose states have codes in all layouts, in some and in none; blocks of other elements in each.
    "8 bits": Case(
        {"ddp": {}, "zero 3": {"zero": 3}, "tensor x zero 1": {"tensor": 2, "zero": 1}},
        {"model": {"dim": 64, "ffn_dim": 512, "layers": 2}, "optimizer": {"state_bits": 8, "eps": 1e-4}},
        hub="zero 3",
        near=2e-3,
    ),
}  # fmt: skip


def pairs(case: str, wanted: str) -> list[tuple[str, str]]:
    """All pairs of layouts; of the "hub": each of them and the hub, both ways, and each and itself; or the "rest"."""
    layouts, hub = list(CASES[case].layouts), CASES[case].hub
    of_hub = {(a, b): hub in (a, b) or a == b for b in layouts for a in layouts}
    return [pair for pair, held in of_hub.items() if wanted == "all" or held == (wanted == "hub")]


def state_of(
    parallel: dict, settings: dict, world: World | None = None, model: ParallelModel | None = None
) -> TrainState:
    """A fresh state, the optimizer's included, of `model`, None: a new one."""
    config = config_of(parallel, settings)
    if model is None and world is None:
        model = ParallelModel([Decoder(config.model, VOCAB, config.seed)])
    elif model is None:
        model = build(config, VOCAB, world)
    window = torch.zeros(SOURCES, 2, dtype=torch.float64)
    return TrainState(config, model, make_optimizer(model, config.optimizer), window)


def step(state: TrainState, world: World) -> None:
    whole = batch_of(state.step)
    mine = {name: value.tensor_split(world.data_size)[world.data_rank] for name, value in whole.items()}
    train_step(state, mine, float((whole["labels"] >= 0).sum()))


def main() -> None:
    folder, (layouts, settings, _, near) = Folder(sys.argv[1]), CASES[sys.argv[2]]
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.compiler.set_stance(
        "force_eager"
    )  # torchao compiles a step for each shape of a part; tests/train/optim runs that
    torch.manual_seed(dist.get_rank())  # whatever a layout might draw, no two processes draw it
    single = state_of({}, settings)
    for _ in range(STEPS):
        step(single, World())
    wanted = single.model.state_dict()
    unbroken, built = {}, {}
    for name, parallel in layouts.items():
        world = join(config_of(parallel, settings))
        state = state_of(parallel, settings, world)
        for _ in range(STEPS - 1):
            step(state, world)
        run = folder / name.replace(" ", "-")
        checkpoint.save(run, state.step, checkpoint.live(state.model, state.optimizer), {"step": state.step})
        step(state, world)
        built[name] = world, state.model
        unbroken[name] = {key: local(value).clone() for key, value in state.model.state_dict().items()}
    for name, to in json.loads(sys.argv[3]):
        world, model = built[to]
        state = state_of(layouts[to], settings, world, model)
        for value in state.model.state_dict().values():
            local(value).fill_(torch.nan)  # nothing is right by chance
        found = checkpoint.load_newest(folder / name.replace(" ", "-"))
        assert found is not None
        checkpoint.restore(found, state.model, state.optimizer)
        state.step = found.step
        step(state, world)
        for key, value in state.model.state_dict().items():
            here, (_, offsets) = local(value), state.model.part(key, value)
            assert name != to or torch.equal(here, unbroken[name][key]), (name, key)
            box = tuple(slice(low, low + size) for low, size in zip(offsets, here.shape, strict=True))
            torch.testing.assert_close(
                here, wanted[key][box], rtol=1e-4, atol=near, msg=lambda m, key=key: f"{key}: {m}"
            )
        if dist.get_rank() == 0:
            print(f"{name} -> {to}", flush=True)
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
