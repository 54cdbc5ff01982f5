"""The processes as a mesh: pipeline x replicate x shard x tensor, and for experts the shard axis in two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from corpusmill.schemas.parallel import ParallelConfig
    from corpusmill.train.parallel.world import World


@dataclass(frozen=True)
class Mesh:
    """Of several processes. `dense` has the axes pipeline, replicate, shard, tensor; `experts` (None without expert
    parallelism) pipeline, replicate, shard, expert, tensor, whose shard x expert is the shard of `dense`."""

    config: ParallelConfig
    dense: DeviceMesh
    experts: DeviceMesh | None
    ends: (
        dist.ProcessGroup | None
    )  # the first and the last stage of one place, in which a tied embedding is twice

    @property
    def stage(self) -> int:
        return self.dense.get_local_rank("pipeline")

    @property
    def stages(self) -> int:
        return self.config.pipeline

    @property
    def tensor_rank(self) -> int:
        return self.dense.get_local_rank("tensor")

    def data(self, expert: bool = False) -> DeviceMesh:
        """What a parameter (a stack of experts) is sharded over: [shard], or [replicate, shard] if there are copies."""
        mesh = self.experts if expert and self.experts is not None else self.dense
        return mesh["replicate", "shard"] if self.config.replicate > 1 else mesh["shard"]


def make_mesh(config: ParallelConfig, world: World) -> Mesh:
    """Collective: every process makes the same groups in the same order."""
    from torch.distributed.device_mesh import init_device_mesh

    device, data = world.device.type, world.data_size
    # Without sharding the shard axis is 1 long and all data-parallel processes are replicas.
    replicate = data if config.zero == 0 else config.replicate
    shard = data // replicate
    dense = init_device_mesh(
        device, (config.pipeline, replicate, shard, config.tensor),
        mesh_dim_names=("pipeline", "replicate", "shard", "tensor"),
    )  # fmt: skip
    experts = None
    if config.expert > 1:
        experts = init_device_mesh(
            device, (config.pipeline, replicate, shard // config.expert, config.expert, config.tensor),
            mesh_dim_names=("pipeline", "replicate", "shard", "expert", "tensor"),
        )  # fmt: skip
    ends = None
    if config.pipeline > 1:
        per_stage = world.size // config.pipeline
        pairs = [[place, place + world.size - per_stage] for place in range(per_stage)]
        groups = [dist.new_group(pair) for pair in pairs]
        ends = groups[world.rank % per_stage]
    return Mesh(config, dense, experts, ends)
