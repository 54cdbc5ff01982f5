"""Run by torchrun with four processes: saved in each of six layouts, taken up in each of them, and gone on as if nothing
had been; in the same one to the bit. argv[1]: a folder."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from schemas.storage import Folder
from tests.train.parallel.layouts import SOURCES, STEPS, VOCAB, batch_of, config_of
from train import checkpoint
from train.distributed import World, join
from train.model.decoder import Decoder
from train.optim import make_optimizer
from train.parallel import ParallelModel, build
from train.parallel.shard import local
from train.step import TrainState, train_step

MODEL = {
    "model": {
        "moe": {"experts": 4, "top_k": 2, "ffn_dim": 16, "bias_rate": 0.01, "first": 2}, "dropout": 0.1
    }
}  # fmt: skip
LAYOUTS = {
    "ddp": {},
    "zero 3": {"zero": 3},
    "tensor": {"tensor": 4},
    "pipeline x tensor": {"pipeline": 2, "tensor": 2},
    "interleaved x zero 1": {"pipeline": 2, "schedule": "interleaved", "zero": 1},
    "experts x hybrid": {"zero": 2, "replicate": 2, "expert": 2},
}


def state_of(parallel: dict, world: World | None = None) -> TrainState:
    config = config_of(parallel, {**MODEL, "micro_batch": 1})
    if world is None:
        model = ParallelModel([Decoder(config.model, VOCAB, config.seed)])
    else:
        model = build(config, VOCAB, world)
    window = torch.zeros(SOURCES, 2, dtype=torch.float64)
    return TrainState(config, model, make_optimizer(model, config.optimizer), window)


def step(state: TrainState, world: World) -> None:
    whole = batch_of(state.step)
    mine = {name: value.tensor_split(world.data_size)[world.data_rank] for name, value in whole.items()}
    train_step(state, mine, float((whole["labels"] >= 0).sum()))


def main() -> None:
    folder = Folder(sys.argv[1])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())  # whatever a layout might draw, no two processes draw it
    single = state_of({})
    for _ in range(STEPS):
        step(single, World())
    wanted = single.model.state_dict()
    unbroken = {}
    for name, parallel in LAYOUTS.items():
        world = join(config_of(parallel, MODEL))
        state = state_of(parallel, world)
        for _ in range(STEPS - 1):
            step(state, world)
        run = folder / name.replace(" ", "-")
        checkpoint.save(run, state.step, checkpoint.live(state.model, state.optimizer), {"step": state.step})
        step(state, world)
        unbroken[name] = {key: local(value).clone() for key, value in state.model.state_dict().items()}
    for to, parallel in LAYOUTS.items():
        world = join(config_of(parallel, MODEL))
        for name in LAYOUTS:
            state = state_of(parallel, world)
            state.model.initialise(seed=99)  # nothing is right by chance
            found = checkpoint.load_newest(folder / name.replace(" ", "-"))
            assert found is not None
            checkpoint.restore(found, state.model, state.optimizer)
            state.step = found.step
            step(state, world)
            for key, value in state.model.state_dict().items():
                here, (_, offsets) = local(value), state.model.box(key, value)
                assert name != to or torch.equal(here, unbroken[name][key]), (name, key)
                box = tuple(slice(low, low + size) for low, size in zip(offsets, here.shape, strict=True))
                torch.testing.assert_close(
                    here, wanted[key][box], rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}"
                )
            if dist.get_rank() == 0:
                print(f"{name} -> {to}", flush=True)
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all was said.
    os._exit(0)


if __name__ == "__main__":
    main()
