"""Work on whole matrices, dealt out among the processes that hold them or parts of them: each matrix is worked on by one.

Muon's orthogonalisation needs whole matrices. Where all processes gathered all of them, each would do all of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.parallel.sharded_parameter import cuts_of

Work = Callable[[list[Tensor]], list[Tensor]]  # on whole tensors; results of their shapes


@dataclass(frozen=True)
class Level:
    """The processes of `group` hold the same tensors, or each a part of them along `dim` (from the end), of these `sizes`."""

    group: dist.ProcessGroup
    dim: int | None = None
    sizes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return dist.get_world_size(self.group)


def levels_of(parameter: Any) -> tuple[Level, ...]:
    """How the matrices of a parameter [..., m, n] are spread over processes, the outermost level first.

    `ParallelModel` stores the processes that hold the same parameter in its attribute `holders`. A stack that is sharded between its
    matrices needs no level: each process has some of them.
    """
    levels = []
    holders = getattr(parameter, "holders", None)
    if holders is not None:
        levels.append(Level(holders))
    for axis, place in enumerate(getattr(parameter, "placements", ())):
        group, count = parameter.device_mesh.get_group(axis), parameter.device_mesh.size(axis)
        if not place.is_shard():
            levels.append(Level(group))
        elif place.dim >= parameter.ndim - 2:
            whole, chunk = (
                parameter.shape[place.dim],
                -(-parameter.shape[place.dim] // count),
            )  # as `torch.chunk`
            sizes = tuple(max(min(chunk, whole - number * chunk), 0) for number in range(count))
            levels.append(Level(group, place.dim - parameter.ndim, sizes))
    for cut in cuts_of(parameter):
        if cut.dim >= parameter.ndim - 2:
            levels.append(Level(cut.group, cut.dim - parameter.ndim, (parameter.shape[cut.dim],) * cut.count))
    return tuple(level for level in levels if level.count > 1)


def dealt(pieces: Sequence[Tensor], levels: Sequence[Level], work: Work) -> list[Tensor]:
    """`work` on tensors of one shape of which this process has `pieces`; its pieces of the results. Collective over the
    levels' groups: the i-th tensor is worked on by the process i mod n."""
    if not pieces:
        return []  # nor have the processes of the inner levels any, which are at the same place of the outer ones
    if not levels:
        return work(list(pieces))
    level, rest = levels[0], levels[1:]
    if level.dim is None:
        return _shared(
            dealt(pieces[dist.get_rank(level.group) :: level.count], rest, work), pieces, level.group
        )
    mine = _collected(pieces, level)
    return _returned(dealt(mine, rest, work), pieces, level)


def _shared(mine: list[Tensor], pieces: Sequence[Tensor], group: dist.ProcessGroup) -> list[Tensor]:
    """The results of all processes, of which each has made every n-th."""
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    found, under_way = [], []
    for number, piece in enumerate(pieces):
        owner = number % count
        result = (
            mine[number // count].contiguous()
            if owner == rank
            else torch.empty_like(piece, memory_format=torch.contiguous_format)
        )
        under_way.append(
            dist.broadcast(result, dist.get_global_rank(group, owner), group=group, async_op=True)
        )
        found.append(result)
    for sent in under_way:
        sent.wait()  # the device waits, not the host
    return found


def _collected(pieces: Sequence[Tensor], level: Level) -> list[Tensor]:
    """The whole tensors that are this process's work, from everyone's pieces of them."""
    rank, count, dim = dist.get_rank(level.group), level.count, level.dim or 0
    sent = [piece.reshape(-1) for owner in range(count) for piece in pieces[owner::count]]
    number = len(pieces[rank::count])
    shapes = _shapes(pieces[0], level)
    here = pieces[0].numel()
    got = _exchanged(
        torch.cat(sent), [here * len(pieces[owner::count]) for owner in range(count)],
        [number * shape.numel() for shape in shapes], level.group,
    )  # fmt: skip
    parts = [part.view(number, *shape).unbind() for part, shape in zip(got, shapes, strict=True)]
    return [torch.cat(of, dim=dim) for of in zip(*parts, strict=True)]


def _returned(made: list[Tensor], pieces: Sequence[Tensor], level: Level) -> list[Tensor]:
    """This process's pieces of all results, from those who made them: the inverse of `_collected`."""
    count, dim = level.count, level.dim or 0
    cut = [torch.split(whole, list(level.sizes), dim=dim) for whole in made]
    sent = [parts[rank].reshape(-1) for rank in range(count) for parts in cut]
    here, numbers = pieces[0].numel(), [len(pieces[owner::count]) for owner in range(count)]
    shapes = _shapes(pieces[0], level)
    got = _exchanged(
        torch.cat(sent) if sent else pieces[0].new_empty(0), [len(made) * shape.numel() for shape in shapes],
        [here * number for number in numbers], level.group,
    )  # fmt: skip
    parts = [part.view(number, *pieces[0].shape).unbind() for part, number in zip(got, numbers, strict=True)]
    return [parts[at % count][at // count] for at in range(len(pieces))]


def _shapes(piece: Tensor, level: Level) -> list[torch.Size]:
    """The shapes of everyone's pieces of a tensor, of which `piece` is this process's."""
    found = []
    for size in level.sizes:
        shape = list(piece.shape)
        shape[level.dim or 0] = size
        found.append(torch.Size(shape))
    return found


def _exchanged(flat: Tensor, sent: list[int], got: list[int], group: dist.ProcessGroup) -> tuple[Tensor, ...]:
    """`sent[i]` elements of `flat` go to process i, from which `got[i]` come. All sizes are known: nothing is waited for."""
    into = flat.new_empty(sum(got))
    dist.all_to_all_single(into, flat, got, sent, group=group)
    return torch.split(into, got)
