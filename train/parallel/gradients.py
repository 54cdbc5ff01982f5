"""From each process's gradients to the gradient of the run: what is a part of a sum is summed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from corpusmill.train.parallel.sharded_parameter import Cuts, local

if TYPE_CHECKING:
    from corpusmill.train.parallel.mesh import Mesh

BUCKET = 1 << 25  # elements that are sent together


def sum_over(tensors: list[Tensor], group: dist.ProcessGroup) -> None:
    """Add up each tensor over a group, in place, many in one message."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for same in by_type.values():
        bucket: list[Tensor] = []
        for number, tensor in enumerate(same, 1):
            bucket.append(tensor)
            if number == len(same) or sum(t.numel() for t in bucket) >= BUCKET:
                flat = torch.cat([t.flatten() for t in bucket])
                dist.all_reduce(flat, group=group)
                for t, part in zip(bucket, torch.split(flat, [t.numel() for t in bucket]), strict=True):
                    t.copy_(part.view_as(t))
                bucket = []


def complete(parameters: dict[str, nn.Parameter], cuts: Cuts, mesh: Mesh, tied: bool, reduced: bool) -> None:
    """After the last backward of a step, each gradient becomes that of the run's loss.

    What tensor parallelism leaves whole has a summand in each process; a tied embedding has one in the first and one in
    the last stage; without sharding each data rank has one (DistributedDataParallel has added those up already).
    """
    grads = {name: local(p.grad) for name, p in parameters.items() if p.grad is not None}
    if mesh.config.tensor > 1:
        whole = [g for n, g in grads.items() if all(cut.axis != "tensor" for cut in cuts.get(n, ()))]
        sum_over(whole, mesh.dense.get_group("tensor"))
    if not reduced and mesh.config.zero == 0 and mesh.dense.size(1) > 1:
        sum_over(list(grads.values()), mesh.dense.get_group("replicate"))
    if tied and mesh.ends is not None and mesh.stage in (0, mesh.stages - 1):
        sum_over([grads["embedding.weight"]], mesh.ends)
