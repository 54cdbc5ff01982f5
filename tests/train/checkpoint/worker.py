"""Run in several processes, what each of them does, in order: argv: LAYOUT:ACTION:RUN[:OPTIMIZER] ..."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.training import CheckpointConfig
from corpusmill.train import checkpoint
from corpusmill.train.checkpoint import Piece
from corpusmill.train.checkpoint.read import read_into
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.sharded_parameter import Cut, Cuts

# Nothing of it can be dealt evenly: 18 and 22 rows over 4 processes, 3 experts over 4 (one of them gets none).
MODEL = ModelConfig.model_validate(
    {
        "dim": 18, "layers": 2, "heads": 3, "ffn_dim": 22, "vocab_multiple": 1,
        "moe": {"experts": 3, "ffn_dim": 6, "bias_rate": 0.01, "first": 1},
    }
)  # fmt: skip


def build(layout: str, seed: int, kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Decoder(MODEL, 19, seed)
    size = dist.get_world_size() if dist.is_initialized() else 1
    if layout in ("zero", "hybrid") and size > 1:
        shape, names = ((size,), ("shard",)) if layout == "zero" else ((2, size // 2), ("replicate", "shard"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in model.layers.values():
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, make_optimizer(model, OptimizerConfig.model_validate({"kind": kind}))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for step in range(steps):
        tokens = torch.arange(20).view(2, 10).add(step) % 19
        model(tokens, tokens).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def whole(pieces: dict[str, Piece], model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The whole tensors by PyTorch's own gathering; all processes call it."""
    from corpusmill.train.optim.make import state_tensors

    found = {**model.state_dict(), **state_tensors(model, optimizer)}
    assert found.keys() == pieces.keys()
    return {
        name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone()
        for name, t in found.items()
    }


def reference(shape: tuple[int, ...], salt: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) * 2 + salt


CUT = {"a": (8, 6), "b": (4, 10, 3), "c": (7,), "exp_avg/a": (8, 6), "exp_avg/b": (4, 10, 3), "step/a": ()}


def cut_pieces(tensors: dict[str, Tensor]) -> dict[str, Piece]:
    """Two tensor-parallel processes, times what remains as `fully_shard` shards: a by rows, b by its middle, c whole."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    tp = rank % 2
    group = mesh["tp"].get_group()
    cuts: Cuts = {
        "a": (Cut("tensor", 0, tp, 2, group),),
        "b": (Cut("tensor", 1, tp, 2, group),),
        "c": (),
    }
    local = {}
    for name, tensor in tensors.items():
        for cut in cuts[name.rpartition("/")[2]] if tensor.ndim else ():
            tensor = tensor.chunk(cut.count, cut.dim)[cut.index].clone()
        local[name] = distribute_tensor(tensor, mesh["dp"], [Shard(0)]) if tensor.ndim else tensor
    return checkpoint.pieces_of(local, cuts)


def act(task: str) -> None:
    """`LAYOUT:ACTION:RUN[:OPTIMIZER]`."""
    layout, action, url, kind, *_ = f"{task}:adamw".split(":")
    run = Folder(url)
    first = not dist.is_initialized() or dist.get_rank() == 0
    if layout == "cut":
        tensors = {name: reference(shape, n) for n, (name, shape) in enumerate(CUT.items())}
        if action == "save":
            checkpoint.save(run, 1, cut_pieces(tensors), {"n": 1}, file_bytes=200)
        else:
            pieces = cut_pieces({name: torch.zeros_like(tensor) for name, tensor in tensors.items()})
            read_into(checkpoint.load_step(run, 1), pieces)
            for name, piece in cut_pieces(tensors).items():
                assert torch.equal(piece.local, pieces[name].local), name
        return
    model, optimizer = build(layout, 1 if action == "save" else 2, kind)
    if action == "save":
        train(model, optimizer)
        saver = checkpoint.Saver(run, CheckpointConfig(keep_last=2))
        saver.save(2, checkpoint.live(model, optimizer), {"n": 2})
        tensors = whole(checkpoint.live(model, optimizer), model, optimizer)
        train(model, optimizer)  # while it is written
        saver.wait()
        if first:
            Path(run.url).mkdir(exist_ok=True)
            save_file(tensors, f"{run.url}/expected.safetensors")
    elif action == "load":
        found = checkpoint.load_newest(run)
        assert found is not None and found.state == {"n": 2}
        checkpoint.restore(found, model, optimizer)
        tensors = whole(checkpoint.live(model, optimizer), model, optimizer)
        for name, tensor in load_file(f"{run.url}/expected.safetensors").items():
            assert torch.equal(tensor, tensors[name]), name
    elif action == "fail":  # one process cannot write, none may hang, all report the same
        train(model, optimizer)
        create = Folder.create
        if not first:

            def full(self: Folder) -> Any:
                raise WorkError(f"{self.name}: cannot write: no space")

            Folder.create = full  # type: ignore[method-assign]
        saver = checkpoint.Saver(run, CheckpointConfig())
        saver.save(3, checkpoint.live(model, optimizer), {})
        try:
            saver.wait()
        except WorkError as error:
            print(error)
        Folder.create = create  # type: ignore[method-assign]
        assert checkpoint.load_newest(run) is None
    elif action == "harm":  # the damage lies in one process's share; all come to the same answer
        train(model, optimizer)
        checkpoint.save(run, 4, checkpoint.live(model, optimizer), {})
        file = Path(run.url) / "checkpoints/step-000004/model-00002-of-00002.safetensors"
        if first:
            file.write_bytes(file.read_bytes()[:-1] + b"x")
        dist.barrier()
        refused: dict[int, str] = {}
        found = checkpoint.load_newest(run, refused)
        print(found and found.step, list(refused.values()))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for task in sys.argv[1:]:
        act(task)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
