"""What a process holds of the whole tensors of a run, whatever the layout: boxes with names that never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from schemas.errors import UserError
from train.optim.state import state_tensors

Cuts = tuple[tuple[int, int, int], ...]  # (dim, index, count), the outermost first: even cuts of a parameter


class Piece(NamedTuple):
    """A box of a whole tensor of `shape`, at `offsets`, of the sizes of `local`, which is live; it may be empty."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    local: Tensor


def live(
    model: nn.Module | Sequence[nn.Module],
    optimizer: torch.optim.Optimizer | None = None,
    cuts: Mapping[str, Cuts] | None = None,
) -> dict[str, Piece]:
    """The pieces of a model (or of its parts in this process: chunks of a pipeline) and of its optimizer, by name.

    Parameters and what else decides the model's answers (the experts' biases) under their own names, the optimizer's
    state under `<key>/<parameter name>`. `cuts` says how parameters were cut before `fully_shard`.
    """
    modules: Iterable[nn.Module] = [model] if isinstance(model, nn.Module) else model
    tensors: dict[str, Tensor] = {}
    for module in modules:
        tensors.update(
            module.state_dict()
        )  # of a sharded model this also puts its shards back in place: first
        if optimizer is not None:
            tensors.update(state_tensors(module, optimizer))
    return pieces_of(tensors, cuts or {})


def pieces_of(tensors: dict[str, Tensor], cuts: Mapping[str, Cuts]) -> dict[str, Piece]:
    """The piece of each tensor: plain, or a DTensor of `fully_shard`, or of either a cut one.

    `cuts` has parameters' names; a state of the shape of its parameter, which must be among `tensors`, is cut as that.
    Raises `UserError` for a state whose part of the whole cannot be told.
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
        found[name] = Piece(tuple(shape), tuple(offsets), local)
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
    if hasattr(local, "__tensor_flatten__") or any(p.is_partial() for p in tensor.placements):
        raise UserError(
            f"{name}: the state of a sharded parameter is kept in a form that checkpoints cannot take apart; set"
            " optimizer.state_bits to 32, or shard less"
        )
    sizes, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    assert tuple(sizes) == tuple(local.shape), (name, sizes, local.shape)
    return list(tensor.shape), list(offsets), local


def _cuts_of(name: str, state: Tensor, tensors: dict[str, Tensor], cuts: Mapping[str, Cuts]) -> Cuts:
    """The cuts of an optimizer's state. Along a cut dimension it must have its parameter's size: a sum over the
    dimension (Adafactor's variances) is of this process's part alone, and nobody could tell that it is."""
    parameter = name.rpartition("/")[2]
    wanted = tuple(cut for cut in cuts.get(parameter, ()) if cut[2] > 1)
    if not wanted or state.ndim == 0:
        return ()
    shape = tensors[parameter].shape
    same = state.shape == shape
    if state.ndim != len(shape) or not all(
        same or 1 < shape[dim] == state.shape[dim] for dim, _, _ in wanted
    ):
        raise UserError(
            f"{name}: this optimizer's state is a summary of a part of {parameter}, which is cut by tensor or expert"
            " parallelism: it cannot be saved; use another optimizer, or another layout"
        )
    return wanted
