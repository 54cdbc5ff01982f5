"""Which part of a parameter this process holds: the shape of the whole, the offsets of the part, the axes along which it
is divided, and the number of replicas. Read by checkpoint, optimizers, norms and initialisation.

A parameter is a plain tensor or a DTensor of `fully_shard`; before that, tensor and expert parallelism may have cut it
(`Cut`, which `corpusmill.train.parallel.model` stores in its attribute `cuts`). A tensor "like" a parameter is divided in
the same way: its gradient, or an optimizer's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.linalg import vector_norm

PIECE = 1 << 16  # elements whose squares a CPU sums in float32


@dataclass(frozen=True)
class Cut:
    """This process has the `index`-th of `count` equal parts along `dim`; the processes of `group` have the others."""

    axis: str  # "tensor" or "expert"
    dim: int
    index: int
    count: int
    group: dist.ProcessGroup


Cuts = dict[str, tuple[Cut, ...]]  # by parameter's name, the outermost first


class Part(NamedTuple):
    """A box at `offsets` in a whole tensor of `shape`."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    def slices(self, sizes: Sequence[int]) -> tuple[slice, ...]:
        """The box, of these sizes, as an index of the whole."""
        return tuple(slice(low, low + size) for low, size in zip(self.offsets, sizes, strict=True))


def local(tensor: Any) -> Tensor:
    """The elements of a tensor (perhaps a DTensor) in this process."""
    found: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found


def cuts_of(parameter: Tensor) -> tuple[Cut, ...]:
    return getattr(parameter, "cuts", ())


def part_of(tensor: Any, cuts: Sequence[Cut] = ()) -> Part:
    """Where the local elements of a tensor lie in the whole; `cuts`, the outermost first, came before any sharding."""
    offsets, shape = [0] * tensor.ndim, list(tensor.shape)
    if hasattr(tensor, "device_mesh"):
        sizes, mesh = list(shape), tensor.device_mesh
        for axis, place in enumerate(tensor.placements):
            if place.is_shard():  # like `torch.chunk`: the last ones have less, or nothing
                chunk = -(-sizes[place.dim] // mesh.size(axis))
                start = min(mesh.get_local_rank(axis) * chunk, sizes[place.dim])
                offsets[place.dim] += start
                sizes[place.dim] = min(chunk, sizes[place.dim] - start)
        assert tuple(sizes) == tuple(local(tensor).shape), (tensor.placements, sizes)
    for cut in reversed(cuts):
        offsets[cut.dim] += cut.index * shape[cut.dim]
        shape[cut.dim] *= cut.count
    return Part(tuple(shape), tuple(offsets))


def replicas(parameter: Any, cuts: Sequence[Cut], processes: int) -> int:
    """How many of `processes`, which hold a parameter together, have the same part of it."""
    for cut in cuts:
        processes //= cut.count
    if hasattr(parameter, "device_mesh"):
        processes //= parameter.device_mesh.size(-1)
    return processes


def size(parameter: Tensor) -> int:
    """Elements of the whole parameter."""
    count = parameter.numel()
    for cut in cuts_of(parameter):
        count *= cut.count
    return count


def norm(x: Tensor, parameter: Tensor) -> Tensor:
    """Euclidean norm of the whole of a tensor like `parameter`."""
    found = _complete(vector_norm(x))
    if cuts_of(parameter):
        square = found.square()
        for cut in cuts_of(parameter):
            dist.all_reduce(local(square), group=cut.group)
        found = square.sqrt()
    return found


def mean(x: Tensor, dim: int, parameter: Tensor) -> Tensor:
    """Mean along a dimension (counted from the end, and kept) of the whole of a tensor like `parameter`."""
    found = _complete(x.mean(dim, keepdim=True))
    for cut in cuts_of(parameter):
        if cut.dim == x.ndim + dim:
            dist.all_reduce(local(found), group=cut.group)
            found = found / cut.count
    return found


def total_norm(tensors: Iterable[Tensor], replicas: Iterable[int], group: dist.ProcessGroup | None) -> Tensor:
    """Euclidean norm of all tensors of all processes together, in which each element counts once, however many `replicas`
    its tensor has. Not finite in every process if an element of one of them is not."""
    return combined(norms(tensors), replicas, group)


def norms(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """The norms of the pieces of each tensor, as `combined` takes them."""
    # A CPU sums in sequence in float32, which loses 0.3 % over an embedding of 38 M elements and less over its shards, so
    # that layouts would differ; in pieces the error is 1e-7. A GPU sums in a tree.
    parts = [local(t) for t in tensors]
    pieces = [torch.split(t.reshape(-1), PIECE) if t.device.type == "cpu" else (t,) for t in parts]
    found = iter(torch._foreach_norm([piece for of in pieces for piece in of]))
    return [[next(found) for _ in of] for of in pieces]


def combined(
    norms: Sequence[Sequence[Tensor]], replicas: Iterable[int], group: dist.ProcessGroup | None
) -> Tensor:
    """`total_norm` of tensors of which the `norms` of all pieces are known."""
    squares = torch.stack([norm for of in norms for norm in of]).double().square()
    if group is None:
        return squares.sum().sqrt().float()
    counts = tuple(count for count, of in zip(replicas, norms, strict=True) for _ in of)
    total = (squares / _counts(counts, squares.device)).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt().float()


@lru_cache(maxsize=16)
def _counts(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """Kept, for to make a tensor from numbers waits for the device; the same ones are asked for in every step."""
    return torch.tensor(counts, dtype=torch.float64, device=device)


def _complete(x: Tensor) -> Tensor:
    """A DTensor with its partial sums added up; any other tensor as it is."""
    if not hasattr(x, "full_tensor"):
        return x
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(x, DTensor)
    return x.redistribute(placements=[Replicate() if place.is_partial() else place for place in x.placements])
