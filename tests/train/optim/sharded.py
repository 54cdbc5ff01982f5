"""Run in several processes: each optimizer on shards (ZeRO-3) against the same one on whole parameters; also with a flag that
says on the device whether a step is taken."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import prepare, state_tensors
from corpusmill.train.parallel.sharded_parameter import local


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tokens = (torch.arange(6)[:, None] * 5 + torch.arange(17) * 3) % 23
    for kind in sys.argv[1:]:
        models = [
            Decoder(ModelConfig(dim=24, layers=2, heads=2, ffn_dim=40, vocab_multiple=8), 24) for _ in "ab"
        ]
        for layer in models[1].layers.values():
            fully_shard(layer, mesh=mesh)
        fully_shard(models[1], mesh=mesh)
        config = OptimizerConfig.model_validate({"kind": kind, "lr": 0.01})
        optimizers = [make_optimizer(model, config) for model in models]
        prepare(optimizers[1])
        prepare(optimizers[0])
        for found_inf in (None, None, 1.0, 0.0):
            for model, optimizer in zip(models, optimizers, strict=True):
                model(tokens[:, :-1], tokens[:, 1:]).mean().backward()
                everything = {**dict(model.named_parameters()), **state_tensors(model, optimizer)}
                before = {name: local(tensor.detach()).clone() for name, tensor in everything.items()}
                if found_inf is not None:
                    optimizer.found_inf = torch.tensor(found_inf)
                if found_inf:
                    for p in model.parameters():
                        local(p.grad).fill_(torch.nan)
                optimizer.step()
                for name, tensor in everything.items():
                    same = torch.equal(local(tensor.detach()), before[name])
                    assert same or not found_inf, f"{kind}: {name} has changed"
                optimizer.zero_grad()
        names = [set(state_tensors(m, o)) for m, o in zip(models, optimizers, strict=True)]
        assert names[0] == names[1]
        whole, shards = (dict(model.named_parameters()) for model in models)
        for name, parameter in whole.items():
            torch.testing.assert_close(shards[name].full_tensor(), parameter, atol=1e-5, rtol=0, msg=name)
        if dist.get_rank() == 0:
            print(f"{kind} agrees", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
