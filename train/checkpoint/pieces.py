"""The parts of a run's tensors that a process holds, in any layout: boxes, by names that never change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.train.optim.average import KEY
from corpusmill.train.optim.make import prepare, quantised, state_tensors
from corpusmill.train.parallel.sharded_parameter import Cut, Cuts, local, part_of


class Model(Protocol):
    """A module, or this process's parts of one, under the names of the whole."""

    def state_dict(self) -> Any: ...

    def named_parameters(self) -> Iterator[tuple[str, Any]]: ...


class Piece(NamedTuple):
    """A box of a whole tensor of `shape`, at `offsets`, of the sizes of `local`, the live tensor; it may be empty.

    `codes`: the live tensor if it is quantised; `local` then has its values, in CPU memory.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    local: Tensor
    codes: Tensor | None = None

    def put_back(self) -> None:
        """After writing to `local`, quantise it: to the same codes, if the same layout saved it."""
        if self.codes is not None:
            self.codes.copy_(self.local.to(self.codes.device))


@torch.no_grad()
def live(model: Model, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Piece]:
    """The pieces of a model (or of its parts in this process) and of its optimizer, by name.

    Parameters and the experts' biases under their own names, the optimizer's state under `<key>/<parameter name>`, also if
    no step was taken yet (a checkpoint without it would silently restore none). `model.cuts`, if there is one, has the cuts
    of parameters before `fully_shard`.
    """
    tensors = dict(model.state_dict())  # first, for it also reshards a sharded model
    if optimizer is not None:
        fresh = not any(optimizer.state.values())
        prepare(optimizer)
        states = state_tensors(model, optimizer)
        for name, state in states.items() if fresh else ():  # no step was taken yet
            own = name.partition("/")[0] != KEY and not quantised(state)  # quantised ones are 0 already
            if own and state.is_floating_point():
                state.zero_()
        tensors.update(states)
    return pieces_of(tensors, getattr(model, "cuts", {}))


def pieces_of(tensors: dict[str, Tensor], cuts: Cuts) -> dict[str, Piece]:
    """The piece of each tensor, which may be plain or a DTensor of `fully_shard`, and cut.

    `cuts`: by parameter; a state is cut as its parameter, which must be among `tensors`. Raises `UserError` for a state
    whose part of the whole is unknown.
    """
    found = {}
    for name, tensor in tensors.items():
        own = _cuts_of_state(name, tensor, tensors, cuts) if "/" in name else cuts.get(name, ())
        part = part_of(tensor, own)
        here = local(tensor.detach())
        codes = here if quantised(here) else None
        found[name] = Piece(*part, here if codes is None else codes.dequantize().cpu(), codes)
    return found


def _cuts_of_state(name: str, state: Tensor, tensors: dict[str, Tensor], cuts: Cuts) -> tuple[Cut, ...]:
    """The cuts of an optimizer's state: its parameter's, without those along dimensions over which it is reduced (Adafactor's
    variances, which `corpusmill.train.optim` reduces over all processes that share the parameter)."""
    parameter = name.rpartition("/")[2]
    wanted = tuple(cut for cut in cuts.get(parameter, ()) if cut.count > 1)
    if not wanted or state.ndim == 0:
        return ()
    shape = tensors[parameter].shape
    if state.shape == shape:
        return wanted
    clear = state.ndim == len(shape) and all(shape[cut.dim] > 1 for cut in wanted)
    if not clear or any(state.shape[cut.dim] not in (1, shape[cut.dim]) for cut in wanted):
        raise UserError(
            f"{name}: parallelism cut this parameter, and which part of its optimizer state is here is unknown,"
            " so it cannot be saved; use optimizer.kind adamw, or a layout that does not cut it"
        )
    return tuple(cut for cut in wanted if state.shape[cut.dim] > 1)
