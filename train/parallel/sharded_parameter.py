"""What an optimizer must know of a parameter that is spread over processes: sums over all of it, and the whole of it.

A DTensor knows how sharding spread it; how tensor and expert parallelism cut it, its attribute `cuts` says (set by
`corpusmill.train.parallel`, absent in one process).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.linalg import vector_norm


def cuts_of(parameter: Tensor) -> tuple[Any, ...]:
    """`corpusmill.train.parallel.tensor.Cut`s."""
    return getattr(parameter, "cuts", ())


def norm(x: Tensor, parameter: Tensor) -> Tensor:
    """Euclidean norm of a tensor that is spread as `parameter` is."""
    found = _complete(vector_norm(x))
    if cuts_of(parameter):
        square = found.square()
        for cut in cuts_of(parameter):
            dist.all_reduce(_here(square), group=cut.group)
        found = square.sqrt()
    return found


def size(parameter: Tensor) -> int:
    """Elements of the whole parameter."""
    count = parameter.numel()
    for cut in cuts_of(parameter):
        count *= cut.count
    return count


def mean(x: Tensor, dim: int, parameter: Tensor) -> Tensor:
    """Along a dimension (counted from the end, and kept) of a tensor that is spread as `parameter` is."""
    found = _complete(x.mean(dim, keepdim=True))
    for cut in cuts_of(parameter):
        if cut.dim == x.ndim + dim:
            dist.all_reduce(_here(found), group=cut.group)
            found = found / cut.count
    return found


def whole(x: Tensor, parameter: Tensor) -> Tensor:
    """Every element of the matrices in a tensor that is spread as `parameter` is (of a stack, of those that are here)."""
    found = x.full_tensor() if hasattr(x, "full_tensor") else x
    for cut in cuts_of(parameter):
        if cut.dim >= found.ndim - 2:
            parts = [torch.empty_like(found, memory_format=torch.contiguous_format) for _ in range(cut.count)]
            dist.all_gather(parts, found.contiguous(), group=cut.group)
            found = torch.cat(parts, dim=cut.dim)
    return found


def like(found: Tensor, parameter: Tensor) -> Tensor:
    """`found`, the same in every process, spread as `parameter` is; nothing is sent."""
    for cut in cuts_of(parameter):
        if cut.dim >= found.ndim - 2:
            found = found.tensor_split(cut.count, dim=cut.dim)[cut.index]
    if not hasattr(parameter, "full_tensor"):
        return found
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(parameter, DTensor)
    mesh = parameter.device_mesh
    everywhere = DTensor.from_local(found, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return everywhere.redistribute(mesh, parameter.placements)


def _complete(x: Tensor) -> Tensor:
    """The sum, everywhere, of what each process has a part of (a DTensor's partial sums); any other tensor as it is."""
    if not hasattr(x, "full_tensor"):
        return x
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(x, DTensor)
    return x.redistribute(placements=[Replicate() if place.is_partial() else place for place in x.placements])


def _here(x: Tensor) -> Tensor:
    return x.to_local() if hasattr(x, "to_local") else x
