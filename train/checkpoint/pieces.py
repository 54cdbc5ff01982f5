"""What a process holds of the whole tensors of a run, whatever the layout: boxes with names that never change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.train.optim.state import prepare, quantised, state_tensors

Cuts = tuple[tuple[int, int, int], ...]  # (dim, index, count), the outermost first: even cuts of a parameter


class Model(Protocol):
    """A module, or the parts of one that are in this process, under the names of the whole."""

    def state_dict(self) -> Any: ...

    def named_parameters(self) -> Iterator[tuple[str, Any]]: ...


class Piece(NamedTuple):
    """A box of a whole tensor of `shape`, at `offsets`, of the sizes of `local`, which is live; it may be empty.

    `codes`: the live tensor, if it is a quantised one; `local` then holds its values, in CPU memory.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    local: Tensor
    codes: Tensor | None = None

    def put_back(self) -> None:
        """After `local` was written to: quantise it. Where the same layout wrote it, to the same codes."""
        if self.codes is not None:
            self.codes.copy_(self.local.to(self.codes.device))


@torch.no_grad()
def live(model: Model, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Piece]:
    """The pieces of a model (or of its parts in this process) and of its optimizer, by name.

    Parameters and what else decides the model's answers (the experts' biases) under their own names, the optimizer's
    state under `<key>/<parameter name>`, also if no step was taken yet (a checkpoint without it would restore none,
    silently). `model.cuts`, if there is one, says how parameters were cut before
    `fully_shard`: by name, objects with `dim`, `index` and `count`.
    """
    tensors = dict(model.state_dict())  # of a sharded model this also puts its shards back in place: first
    if optimizer is not None:
        fresh = not any(optimizer.state.values())
        prepare(optimizer)
        states = state_tensors(model, optimizer)
        for state in states.values() if fresh else ():  # no step was taken: as it would begin
            if state.is_floating_point() and not quantised(state):  # those are 0
                state.zero_()
        tensors.update(states)
    cuts = {
        name: tuple((cut.dim, cut.index, cut.count) for cut in cuts)
        for name, cuts in getattr(model, "cuts", {}).items()
    }
    return pieces_of(tensors, cuts)


def pieces_of(tensors: dict[str, Tensor], cuts: Mapping[str, Cuts]) -> dict[str, Piece]:
    """The piece of each tensor: plain, or a DTensor of `fully_shard`, or of either a cut one.

    `cuts` has parameters' names; a state is cut as its parameter, which must be among `tensors`. Raises `UserError` for
    a state whose part of the whole is unknown.
    """
    found = {}
    for name, tensor in tensors.items():
        shape, offsets, local = _sharded(name, tensor)
        of_state = "/" in name
        for dim, index, count in reversed(
            _cuts_of(name, tensor, tensors, cuts) if of_state else cuts.get(name, ())
        ):
            offsets[dim] += index * shape[dim]
            shape[dim] *= count
        codes = local if quantised(local) else None
        found[name] = Piece(
            tuple(shape), tuple(offsets), local if codes is None else codes.dequantize().cpu(), codes
        )
    return found


def _sharded(name: str, tensor: Tensor) -> tuple[list[int], list[int], Tensor]:
    """(shape, offsets, local) before any cut."""
    tensor = tensor.detach()
    if not hasattr(tensor, "full_tensor"):
        return list(tensor.shape), [0] * tensor.ndim, tensor
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    local = tensor.to_local()
    assert not any(p.is_partial() for p in tensor.placements), name
    sizes, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    assert tuple(sizes) == tuple(local.shape), (name, sizes, local.shape)
    return list(tensor.shape), list(offsets), local


def _cuts_of(name: str, state: Tensor, tensors: dict[str, Tensor], cuts: Mapping[str, Cuts]) -> Cuts:
    """The cuts of an optimizer's state: its parameter's, but along dimensions that it is reduced over (Adafactor's
    variances, which `corpusmill.train.optim` reduces over all processes that share the parameter)."""
    parameter = name.rpartition("/")[2]
    wanted = [cut for cut in cuts.get(parameter, ()) if cut[2] > 1]
    if not wanted or state.ndim == 0:
        return ()
    shape = tensors[parameter].shape
    if state.shape == shape:
        return tuple(wanted)
    clear = state.ndim == len(shape) and all(shape[dim] > 1 for dim, _, _ in wanted)
    if not clear or any(state.shape[dim] not in (1, shape[dim]) for dim, _, _ in wanted):
        raise UserError(
            f"{name}: which part this is of the optimizer's state of a parameter that parallelism cut cannot be told,"
            " so it cannot be saved; use optimizer.kind adamw, or a layout that does not cut it"
        )
    return tuple(cut for cut in wanted if state.shape[cut[0]] > 1)
