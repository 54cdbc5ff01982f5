"""A CUDA device for machines that have none: tensors that say that they are on `cuda:0`, compute on the CPU, and note whatever
would make the host wait for a real device.

    with FakeCuda() as cuda:
        model = cuda.moved(model)
        step(model)
    assert cuda.waits == []

What a real device refuses is refused: operations on tensors of both sides, except for CPU tensors without dimensions where
CUDA takes them. Waits are reads of values (`item`, `tolist`, `bool`, `numpy`, `cpu`), operations whose output's shape depends
on values (`nonzero`, boolean masks), and copies between the sides, unless they are non-blocking and the host's part is
pinned. Results are those of the CPU, so that they can be compared with it.

It replaces what the trainer uses of `torch.cuda`, with streams that do nothing; autocast; and the attention kernels, with plain
ones. Not for torch.compile, NCCL, DistributedDataParallel and `fully_shard`: those need a real device (tests/gpu).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
# The host must read the result, or values that decide its shape.
READS = (
    aten._local_scalar_dense, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select, aten.bincount, aten._unique2,
    aten.unique_dim, aten.unique_consecutive,
)  # fmt: skip
# Take no CPU tensor beside CUDA tensors, not even one without dimensions, or wait for its copy.
STRICT = (aten.stack, aten.cat, aten.index_add_, aten.scatter_add_)
INDEXED = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)


class CudaTensor(torch.Tensor):
    """Wraps the CPU tensor that has its values. For C++ it is on the CPU, for Python on CUDA."""

    inner: Tensor
    owner: FakeCuda

    @staticmethod
    def __new__(cls, inner: Tensor, owner: FakeCuda) -> CudaTensor:
        made: Any = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
        )
        made.inner, made.owner = inner.detach(), owner
        return made  # type: ignore[no-any-return]

    device = property(lambda _self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda _self: True)  # type: ignore[assignment]
    is_cpu = property(lambda _self: False)  # type: ignore[assignment]

    def record_stream(self, _stream: Any) -> None:
        pass

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"CudaTensor({self.inner!r})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls from Python that C++ would not pass on, since for it there is no device to leave."""
        kwargs, name, self = kwargs or {}, getattr(func, "__name__", ""), args[0] if args else None
        if isinstance(self, CudaTensor):
            if name in ("tolist", "numpy", "cpu"):
                self.owner.note(name)
                return getattr(self.inner.clone(), name)()
            if name == "to" and _to_host(args[1:], kwargs):
                self.owner.note("to the CPU")
                given = [a for a in args[1:] if isinstance(a, torch.dtype)]
                return self.inner.clone().to(*given, **{k: v for k, v in kwargs.items() if k == "dtype"})
        if name == "where" and any(isinstance(a, Tensor) and not a.is_cuda for a in args):
            raise RuntimeError("where: expected all tensors to be on one device, found cuda:0 and cpu")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = list[CudaTensor]()

        def seen(value: Tensor) -> Tensor:
            if isinstance(value, CudaTensor):
                ours.append(value)
            return value

        _each((*args, *(kwargs or {}).values()), seen)
        return ours[0].owner.dispatch(func, args, dict(kwargs or {}))


def _to_host(args: Any, kwargs: Any) -> bool:
    for given in (*args, kwargs.get("device")):
        if isinstance(given, str | torch.device) and torch.device(given).type == "cpu":
            return True
        if isinstance(given, Tensor) and not given.is_cuda:
            return True
    return False


class FakeCuda(TorchDispatchMode):
    """The device. `waits`: each wait of the host, with the place in the project that causes it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._pinned = WeakTensorKeyDictionary()
        self._patches = ExitStack()

    def __enter__(self) -> FakeCuda:
        stream = SimpleNamespace(
            wait_stream=lambda _other: None, wait_event=lambda event: event.waited(), record_event=_event,
            synchronize=lambda: self.note("stream.synchronize"),
        )  # fmt: skip
        replaced: dict[str, Any] = {
            "torch.cuda._lazy_init": lambda: None,
            "torch.cuda.get_device_capability": lambda *_: (9, 0),
            "torch.cuda.current_stream": lambda *_: stream,
            "torch.cuda.Stream": lambda *_: stream,
            "torch.cuda.stream": lambda _stream: nullcontext(),
            "torch.cuda.synchronize": lambda *_: self.note("torch.cuda.synchronize"),
            # Of the step before: the host may be one step ahead, no more.
            "torch.cuda.Event": _event,
            "torch.compile": lambda function: function,
            "torch.nn.attention.varlen.varlen_attn": _varlen_attn,
            "torch.nn.attention.flex_attention.create_block_mask": _create_block_mask,
            "torch.nn.attention.flex_attention.flex_attention": _flex_attention,
            "torch.optim.Optimizer._group_tensors_by_device_and_dtype": staticmethod(
                _grouped(torch.optim.Optimizer._group_tensors_by_device_and_dtype)
            ),
            "torch.autocast": _autocast(torch.autocast),
            "torch.amp.autocast": _autocast(torch.amp.autocast),
            "torch.is_autocast_enabled": _of_cpu(torch.is_autocast_enabled),
            "torch.get_autocast_dtype": _of_cpu(torch.get_autocast_dtype),
            "torch.set_float32_matmul_precision": lambda _: None,
        }
        for name, value in replaced.items():
            self._patches.enter_context(patch(name, value))
        self._lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device="cuda")` comes to `dispatch`
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(self._lifts)
        self._patches.close()

    def moved(self, value: Any) -> Any:
        """A copy of a tensor on the device; or a module, in place, with its parameters and buffers there."""
        if not isinstance(value, nn.Module):
            return CudaTensor(value.detach().clone(), self)
        for module in value.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = nn.Parameter(self.moved(parameter), parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = self.moved(buffer)
        return value

    def note(self, what: str) -> None:
        """Note a wait."""
        frames = [frame for frame in traceback.extract_stack() if frame.filename != __file__]
        ours = [
            frame
            for frame in frames
            if "/train/" in frame.filename and "/site-packages/" not in frame.filename
        ]
        place = ours[-1] if ours else frames[-1]
        self.waits.append(f"{what} in {place.filename.rpartition('/train/')[2]}:{place.lineno}, {place.name}")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatch(func, args, dict(kwargs or {}))

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One operation, on either side or between them."""
        op, device = func.overloadpacket, kwargs.get("device")
        if op in (aten._pin_memory, aten.is_pinned):
            return self._pin(args[0]) if op is aten._pin_memory else args[0] in self._pinned
        ours, host = list[CudaTensor](), list[Tensor]()

        def unwrapped(value: Tensor) -> Tensor:
            if isinstance(value, CudaTensor):
                ours.append(value)
                return value.inner
            host.append(value)
            return value

        given, named = _each(args, unwrapped), {key: _each(value, unwrapped) for key, value in kwargs.items()}
        if not ours and (device is None or torch.device(device).type != "cuda"):
            pinned = kwargs.pop("pin_memory", None)
            made = func(*args, **kwargs)
            return self._pin(made) if pinned else made
        if op in (aten._to_copy, aten.copy_) and host:
            quick = kwargs.get("non_blocking") or (op is aten.copy_ and args[2:3] == (True,))
            if not (quick and host[0] in self._pinned):
                self.note("a copy that is not pinned" if quick else "a blocking copy")
        elif op in READS or func.namespace == "corpusmill" or _counted(func, args, kwargs):
            self.note(str(op))
        elif ours and any(t.dim() or op in STRICT or "_foreach" in str(op) for t in host):
            raise RuntimeError(f"{op}: expected all tensors to be on one device, found cuda:0 and cpu")
        for key in ("device", "pin_memory", "non_blocking"):
            named.pop(key, None)
        made = func(*given, **named)
        # What changes in place is returned as it was given.
        known: dict[int, Tensor] = {id(t.inner): t for t in ours} | {id(t): t for t in host}
        return _each(made, lambda t: known[id(t)] if id(t) in known else CudaTensor(t, self))

    def _pin(self, tensor: Tensor) -> Tensor:
        made = tensor.clone(memory_format=torch.contiguous_format)
        self._pinned[made] = True
        return made


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Arguments or results with `change` of each tensor. (`tree_map` takes most of the time of a small operation.)"""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)([_each(part, change) for part in value])
    return value


def _event() -> Any:
    return SimpleNamespace(record=lambda: None, synchronize=lambda: None, waited=lambda: None)


def _counted(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether the size of a result is counted: elements under a boolean mask, or repetitions."""
    if func.overloadpacket is aten.repeat_interleave:
        return func._overloadname == "Tensor" and kwargs.get("output_size") is None
    return func.overloadpacket in INDEXED and any(t is not None and t.dtype == torch.bool for t in args[1])


def _grouped(real: Callable[..., Any]) -> Callable[..., Any]:
    """Optimizers' tensors by device, which C++ reads."""

    def group(lists: Any, *more: Any) -> Any:
        cuda = isinstance(next(iter(lists[0]), None), CudaTensor)
        return {(CUDA if cuda else at, dtype): found for (at, dtype), found in real(lists, *more).items()}

    return group


def _of_cpu(function: Callable[[str], Any]) -> Callable[..., Any]:
    return lambda device=None: function("cpu" if device in (None, "cuda") else device)


def _autocast(real: type[torch.autocast]) -> type[torch.autocast]:
    class Autocast(real):  # type: ignore[valid-type, misc]
        def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
            super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return Autocast


def _varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, *,
    window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`torch.nn.attention.varlen.varlen_attn`, document by document."""
    before, after = window_size
    assert after in (0, before) and cu_seq_q is cu_seq_k and cu_seq_q.dtype == torch.int32
    parts = []
    for low, high in pairwise(cu_seq_q.inner.tolist()):
        assert 0 <= high - low <= max_q == max_k
        if high > low:
            q, k, v = (x[low:high].transpose(0, 1)[None] for x in (query, key, value))
            mask = torch.ones(high - low, high - low, dtype=torch.bool, device=CUDA)
            if after >= 0:
                mask = mask.tril(after)
            if before >= 0:
                mask = mask.triu(-before)
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=enable_gqa)
            parts.append(found[0].transpose(0, 1))
    return torch.cat(parts)


def _create_block_mask(visible: Any, rows: int, heads: None, queries: int, keys: int, device: str) -> Tensor:
    """`create_block_mask` of FlexAttention, as the mask itself."""
    places = [torch.arange(size, device=CUDA) for size in (rows, queries, keys)]
    row, i, j = (place.view([-1 if at == n else 1 for at in range(3)]) for n, place in enumerate(places))
    found: Tensor = visible(row, None, i, j)
    return found[:, None]


class _Logarithms(NamedTuple):
    """What `AuxRequest(lse=True)` asks for."""

    lse: Tensor


def _flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score_mod: Any = None,
    *,
    block_mask: Tensor,
    enable_gqa: bool,
    return_aux: Any = None,
) -> Any:
    """FlexAttention, with all scores at once if there is more to do than a mask."""
    if score_mod is None and return_aux is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=block_mask, enable_gqa=enable_gqa)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    if score_mod is not None:
        scores = score_mod(scores, *[None] * 4)
    scores = scores.masked_fill(~block_mask, float("-inf"))
    found = (scores.softmax(-1) @ v.float()).to(v.dtype)
    return (found, _Logarithms(scores.logsumexp(-1))) if return_aux is not None else found
