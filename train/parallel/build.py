"""From a config to this process's part of a decoder, which is never whole anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.fsdp import shard
from corpusmill.train.parallel.mesh import World, make_mesh
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.parallel.pipeline import keep
from corpusmill.train.parallel.sharded_parameter import Cuts
from corpusmill.train.parallel.tensor import split_model
from corpusmill.train.precision.adapt import adapt, offload_policy
from corpusmill.train.precision.autocast import TYPES, computing

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig


def build(config: TrainConfig, vocab_size: int, world: World) -> ParallelModel:
    """The decoder of a config in this process's place, with its first values; collective."""
    if world.size == 1:
        with world.device:  # a GPU makes the first values at once, and the same
            whole = Decoder(config.model, vocab_size, config.seed)
        adapt(whole, config, world.device)
        return ParallelModel([whole], world)
    mesh, parallel = make_mesh(config.parallel, world), config.parallel
    parts: list[Decoder] = []
    cuts: Cuts = {}
    for piece in range(mesh.stage, parallel.pieces, parallel.pipeline):
        with torch.device("meta"):
            part = keep(Decoder(config.model, vocab_size), piece, parallel.pieces)
            cuts.update(split_model(part, mesh))
        adapt(part, config, world.device)
        if parallel.zero:
            shard(part, mesh, TYPES.get(config.precision), offload_policy(config.memory))
        part.to_empty(device="cpu" if config.memory.offload == "optimizer" else world.device)
        for buffer in part.buffers():  # which are never offloaded
            buffer.data = buffer.data.to(world.device)
        if parallel.pipeline > 1:  # whose schedule calls it
            part.forward = computing(config, world.device)(part.forward)  # type: ignore[method-assign]
        parts.append(part)
    model = ParallelModel(parts, world, mesh, cuts)
    model.initialise(config.seed)
    return model
