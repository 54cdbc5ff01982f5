"""ZeRO 1, 2, 3 and hybrid sharding as one switch on PyTorch's `fully_shard` (Rajbhandari et al. 2020, Zhao et al. 2023).

Stage 3 reshards parameters after each use. 2 and 1 keep them gathered from the first forward to the last backward of
a step; 2 reduces gradients at every micro-batch, 1 once a step. Losses are divided by the count of all tokens already,
so gradients are summed, never averaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import Mesh

if TYPE_CHECKING:
    from torch.distributed.fsdp import OffloadPolicy


def shard(
    part: Decoder, mesh: Mesh, dtype: torch.dtype | None = None, offload: OffloadPolicy | None = None
) -> None:
    """Shard a part of the model in place: each layer is a unit, the rest another; parameters become DTensors.

    `dtype`: of gathered parameters (None: their own); gradients are always summed in float32.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    config = mesh.config
    # With a pipeline, a unit that is resharded would be gathered again for every micro-batch.
    reshard = config.zero == 3 and config.pipeline == 1
    options: dict[str, Any] = {
        "mesh": mesh.data(), "mp_policy": MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False),
        "offload_policy": offload or OffloadPolicy(),
    }  # fmt: skip
    if mesh.experts is not None:
        options["shard_placement_fn"] = _placement(mesh)
    for layer in (*part.layers.values(), *(part.mtp.values() if part.mtp is not None else ())):
        fully_shard(layer, reshard_after_forward=reshard, **options)
    fully_shard(part, reshard_after_forward=False, **options)
    for module in part.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _placement(mesh: Mesh) -> Any:
    """Shards stacks of experts over their own mesh, and everything else over the default one."""
    # Private names, for there are no public ones: a mesh of a parameter's own is given by these alone.
    from torch.distributed.fsdp._fully_shard._fsdp_common import (
        FSDPMeshInfo,
        HSDPMeshInfo,
        ShardPlacementResult,
    )
    from torch.distributed.tensor import Shard

    axes = mesh.data(expert=True)
    own: Any = FSDPMeshInfo(axes, shard_mesh_dim=0)
    if axes.ndim == 2:
        own = HSDPMeshInfo(axes, shard_mesh_dim=1, replicate_mesh_dim=0)
    return lambda parameter: ShardPlacementResult(Shard(0), own) if parameter.ndim == 3 else None


def sync_gradients(part: nn.Module, zero: int, last: bool) -> None:
    """Before a backward pass, set whether it reduces gradients: with stage 1, only the `last` one of a step does."""
    from torch.distributed.fsdp import FSDPModule

    if isinstance(part, FSDPModule):
        part.set_requires_gradient_sync(last or zero > 1)
        part.set_is_last_backward(last)
        part.set_reshard_after_backward(last or zero == 3)


def release(part: nn.Module) -> None:
    """Free gathered parameters."""
    from torch.distributed.fsdp import FSDPModule

    for module in part.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
