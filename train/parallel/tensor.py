"""Tensor, sequence and expert parallelism: a decoder reduced to this process's part of each parameter, and the
communication of its modules (Shoeybi et al. 2019, Korthikanti et al. 2022, Lepikhin et al. 2021).

Each process then has a summand of the gradients of parameters that all hold (norms, biases after a sum, routers);
`ParallelModel.complete` adds them up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.lora import LoRALinear, complete_columns
from corpusmill.train.model.moe import Experts
from corpusmill.train.model.split import Split, declared_splits
from corpusmill.train.parallel import collectives
from corpusmill.train.parallel.mesh import Mesh
from corpusmill.train.parallel.sharded_parameter import Cut, Cuts


def split_model(model: Decoder, mesh: Mesh) -> Cuts:
    """Cut each parameter of `model` (on the meta device) to this process's part; return the cuts, by name.

    Raises `UserError` if the padded vocabulary cannot be divided.
    """
    groups = {}
    if mesh.config.expert > 1 and mesh.experts is not None:
        groups["expert"] = mesh.experts.get_group("expert")
    if mesh.config.tensor > 1:
        groups["tensor"] = mesh.dense.get_group("tensor")
        _check_vocabulary(model, mesh.config.tensor)
    found: Cuts = {}
    for name, splits in declared_splits(model).items():
        cuts = tuple(
            Cut(axis, dim, dist.get_rank(groups[axis]), dist.get_world_size(groups[axis]), groups[axis])
            for axis, dim in splits if axis in groups
        )  # fmt: skip
        if cuts:
            owner, _, last = name.rpartition(".")
            whole = getattr(model.get_submodule(owner), last)
            shape = list(whole.shape)
            for cut in cuts:
                shape[cut.dim] //= cut.count
            part = whole.new_empty(shape)
            if isinstance(whole, nn.Parameter):
                part = nn.Parameter(part, requires_grad=whole.requires_grad)
            setattr(model.get_submodule(owner), last, part)
            found[name] = cuts
    # `zero_bubble` computes the gradients of inputs and those of weights at different times.
    split: Split | None = None
    if "tensor" in groups:
        split = TensorSplit(groups["tensor"], mesh.config.schedule != "zero_bubble")
    elif mesh.context is not None:
        split = Split()
    if split is not None:
        model.context = split.context = mesh.context
    for module in model.modules():
        if hasattr(module, "split") and split is not None:
            module.split = split  # type: ignore[assignment]
        if isinstance(module, Experts) and "expert" in groups:
            module.exchange = Exchange(groups["expert"])
    return found


def _check_vocabulary(model: Decoder, tensor: int) -> None:
    rows = model.config.padded(model.vocab_size)
    if rows % tensor:
        raise UserError(
            f"parallel.tensor: {tensor} does not divide the vocabulary of {rows}: set model.vocab_multiple to a"
            f" multiple of {tensor}"
        )


class TensorSplit(Split):
    """`Split` among the processes of `group`."""

    def __init__(self, group: dist.ProcessGroup, overlap: bool = True) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self.name, self.overlap = group.group_name, overlap
        _SPLITS[self.name] = self

    def gather(self, x: Tensor, exact: bool = False) -> Tensor:
        if not exact and torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        found: Tensor = _Sequence.apply(x, self, False)  # type: ignore[no-untyped-call]
        return found

    def products(self, x: Tensor, *linears: nn.Linear) -> list[Tensor]:
        own = any("forward" in vars(linear) or linear.weight is None for linear in linears)  # in 8 or 4 bits
        if own or not self.overlap:
            x = self.gather(x)
            return [linear(x) for linear in linears]
        adapters = any(isinstance(linear, LoRALinear) for linear in linears)
        biases = [None if isinstance(linear, LoRALinear) else linear.bias for linear in linears]
        given = [x, *(linear.weight for linear in linears), *biases]
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            given = [None if tensor is None else tensor.to(dtype) for tensor in given]
        made = list(_Columns.apply(self, len(linears), *given))  # type: ignore[no-untyped-call]
        return complete_columns(made, x, linears, self.gather) if adapters else made

    def scatter(self, x: Tensor) -> Tensor:
        found: Tensor = _Sequence.apply(x, self, True)  # type: ignore[no-untyped-call]
        return found

    def take(self, x: Tensor) -> Tensor:
        return x.tensor_split(self.size, dim=1)[self.rank]

    def embed(self, tokens: Tensor, weight: Tensor) -> Tensor:
        row = tokens - self.rank * len(weight)
        elsewhere = (row < 0) | (row >= len(weight))
        found = F.embedding(row.masked_fill(elsewhere, 0), weight)
        return self.scatter(found.masked_fill(elsewhere[..., None], 0.0))

    def sum(self, x: Tensor) -> Tensor:
        return _reduced(x, "sum", self)

    def max(self, x: Tensor) -> Tensor:
        return _reduced(x, "max", self)


# Both wait: an AsyncCollectiveTensor in compiled code loses the gradient of what made it.


def _gathered(x: Tensor, split: TensorSplit) -> Tensor:
    return _arrived(_gathering(x, split), split)


def _scattered(x: Tensor, split: TensorSplit) -> Tensor:
    found: Tensor = collectives.functional().wait_tensor(_scattering(x, split))
    return found


def _gathering(x: Tensor, split: TensorSplit) -> Tensor:
    """Begun, not waited for, and so along the first dimension: along another one PyTorch waits, to put it together."""
    return collectives.gathering(x, split.group)


def _arrived(x: Tensor, split: TensorSplit) -> Tensor:
    """What `_gathering` began, along the sequence."""
    return torch.cat(collectives.functional().wait_tensor(x).chunk(split.size), dim=1)


def _scattering(x: Tensor, split: TensorSplit) -> Tensor:
    """Begun, not waited for."""
    return collectives.scattering(x, 1, split.group)


def _reduced(x: Tensor, operation: str, split: TensorSplit) -> Tensor:
    functional = collectives.functional()
    found: Tensor = functional.wait_tensor(functional.all_reduce(x.contiguous(), operation, split.group))
    return found


class _Sequence(torch.autograd.Function):
    """`Split.gather`, or with `scatter` `Split.scatter`: each is the gradient of the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, split: TensorSplit, scatter: bool) -> Tensor:
        ctx.split, ctx.scatter = split, scatter
        return _scattered(x, split) if scatter else _gathered(x, split)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor, None, None]:
        other = _gathered if ctx.scatter else _scattered
        return other(grad_output[0], ctx.split), None, None


_SPLITS: dict[str, TensorSplit] = {}  # by the name of the group: an operation takes no objects


class _Columns(torch.autograd.Function):
    """`Split.products`, as in Megatron-LM (Korthikanti et al. 2022): the input is kept in parts and gathered again in the backward
    pass, during the product for its gradient, which is summed and scattered during those for the weights' gradients."""

    @staticmethod
    def forward(
        ctx: Any, split: TensorSplit, count: int, x: Tensor, *parameters: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.name, weights, biases = split.name, parameters[:count], parameters[count:]
        ctx.save_for_backward(x, *weights)
        whole = _gathered(x, split)
        return tuple(F.linear(whole, w, b) for w, b in zip(weights, biases, strict=True))  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        wanted, count = ctx.needs_input_grad[3:], len(weights)
        found = _columns_backward(list(grads), x, weights, list(wanted[:count]), ctx.name)
        to_weights = [made if w else None for made, w in zip(found[1:], wanted, strict=False)]
        to_biases = [g.sum((0, 1)) if w else None for g, w in zip(grads, wanted[count:], strict=True)]
        return None, None, found[0], *to_weights, *to_biases


def _overlapped(
    grads: list[Tensor], x: Tensor, weights: list[Tensor], wanted: list[bool], name: str
) -> list[Tensor]:
    """The gradients of x and of the weights `wanted` (of others something empty)."""
    split = _SPLITS[name]
    coming = _gathering(x, split) if any(wanted) else None
    # The last product first, as autograd adds them up.
    *others, last = zip(grads, weights, strict=True)
    whole = last[0] @ last[1]
    for grad, weight in reversed(others):
        whole = whole + grad @ weight
    going = _scattering(whole, split)
    del whole
    found = _unwanted(grads, weights)
    if coming is not None:
        rows = _arrived(coming, split).flatten(0, 1)
        found = [
            g.flatten(0, 1).T @ rows if w else none for g, w, none in zip(grads, wanted, found, strict=True)
        ]
    return [collectives.functional().wait_tensor(going), *found]


# One operation for the compiler, which would take the gathered input from the forward pass, and keep it, and wait at once.
_columns_backward = torch.library.custom_op("corpusmill::columns_backward", _overlapped, mutates_args=())


def _unwanted(grads: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    return [grad.new_empty(0) for grad, _ in zip(grads, weights, strict=True)]


@_columns_backward.register_fake
def _(grads: list[Tensor], x: Tensor, weights: list[Tensor], wanted: list[bool], _name: str) -> list[Tensor]:
    made = [
        torch.empty_like(weight) if w else none
        for weight, w, none in zip(weights, wanted, _unwanted(grads, weights), strict=True)
    ]
    return [torch.empty_like(x, memory_format=torch.contiguous_format), *made]


class Exchange:
    """Expert parallelism: process i of the n in `group` has E / n experts, from i E / n on; tokens are sent to them and
    back."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.size = group, dist.get_world_size(group)

    def __call__(self, compute: Callable[[Tensor, Tensor], Tensor], x: Tensor, load: Tensor) -> Tensor:
        """`compute(x, load)` as if this process had all experts: x [N, C], of which the first `load[0]` rows are for
        expert 0, and so on; load int64 [E]. It waits for the device, since the sizes of messages must be known."""
        functional = collectives.functional()
        sent = load.view(self.size, -1)
        arriving = torch.empty_like(sent)
        dist.all_to_all_single(arriving, sent.contiguous(), group=self.group)
        there, here = torch.stack((sent.sum(1), arriving.sum(1))).tolist()  # one wait for both
        got = functional.wait_tensor(functional.all_to_all_single_autograd(x, here, there, self.group))
        # Rows arrive process by process, of each expert by expert; an expert needs all of its rows together.
        experts = arriving.shape[1]
        number = torch.arange(experts, device=x.device).repeat(self.size)
        # With the size of the result, which is known, this does not wait once more.
        order = number.repeat_interleave(arriving.flatten(), output_size=sum(here)).argsort(stable=True)
        made = compute(got[order], arriving.sum(0))[order.argsort()]
        back = functional.all_to_all_single_autograd(made.contiguous(), there, here, self.group)
        found: Tensor = functional.wait_tensor(back)
        return found
