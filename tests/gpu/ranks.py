"""Run in two processes: layouts on a device each, or on the CPU, against one process. argv: the kind of device."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import build
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.step import train_step
from tests.gpu.machines import Machine
from tests.gpu.steps import VOCAB, batch_of, config_of, finished, scored

LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {}, "zero 1": {"parallel.zero": 1}, "zero 3": {"parallel.zero": 3}, "tensor": {"parallel.tensor": 2},
    "offloaded": {"parallel.zero": 2, "memory.offload": "optimizer"},
}  # fmt: skip
STEPS = 3


def main() -> None:
    rank, cuda = int(os.environ["RANK"]), sys.argv[1] == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    machine = Machine()
    machine.device = device
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=rank, world_size=2)
    for kind in ("adamw", "muon"):
        # With an eps that keeps AdamW from dividing gradients of almost 0 by themselves; TF32 off, to compare.
        optimizer = {"kind": kind, "lr": 1e-2, "eps": 1e-4}
        common = {"optimizer": optimizer, "data.micro_batch": 2, "tf32": False, "compile": False}
        single = finished(config_of(common), build(config_of(common), VOCAB, World(device=device)), machine)
        data = [batch_of(number, single.config) for number in range(STEPS)]
        # In one process: no group is asked for sums.
        group, dist.is_initialized = dist.is_initialized, lambda: False
        for batch in data:
            single.limits = (float("inf"), float("inf"))
            train_step(single, batch, scored(batch))
        dist.is_initialized = group
        whole = single.model.state_dict()
        for name, parallel in LAYOUTS.items():
            config = config_of({**common, **parallel})
            world = World(rank, 2, device, config.parallel.tensor)
            state = finished(config, build(config, VOCAB, world), machine)
            for batch in data:
                mine = {
                    key: value.tensor_split(world.data_size)[world.data_rank] for key, value in batch.items()
                }
                state.limits = (float("inf"), float("inf"))
                train_step(state, mine, scored(batch), collect_stats=True)
            total = world.total(state.window)
            torch.testing.assert_close(
                total, single.window.cpu(), atol=0.0, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
            )
            near = 1e-4 if not cuda else 1e-3 if kind == "adamw" else 5e-3  # in bfloat16 on a device
            for key, value in state.model.state_dict().items():
                here = local(value).cpu()
                box = whole[key].cpu()[state.model.part(key, value).slices(here.shape)]
                torch.testing.assert_close(
                    here, box, atol=near, rtol=1e-3, msg=lambda m, k=key, n=name: f"{n}, {k}: {m}"
                )
            if rank == 0:
                print(f"{kind} {name} agrees", flush=True)
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
