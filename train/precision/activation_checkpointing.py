"""Activation checkpointing (Chen et al. 2016): a layer keeps less, and computes it again in its backward pass.

- full: a layer keeps its input.
- selective: that and the outputs of matrix products and attention (Korthikanti et al. 2022), of reductions and
  of the router's choice; norms, activations, RoPE and casts are computed again, and sequences gathered again.
- budget: torch.compile keeps a share of what it would, picked so that least is computed again (a knapsack).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from corpusmill.train.model.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from corpusmill.schemas.parallel import MemoryConfig

# Operations whose outputs `selective` keeps, as `namespace::name`; what an installation lacks is in no graph.
KEPT = frozenset(
    [f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "topk")]
    + [f"corpusmill::{name}" for name in ("one_by_one", "one_by_one_weights")]
    + [
        f"aten::_scaled_dot_product_{kind}"
        for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
    ]
    + ["torch_attn::_varlen_attn", "aten::_flash_attention_forward", "flex_attention"]
    + [f"_c10d_functional::{name}" for name in ("all_reduce", "reduce_scatter_tensor", "all_to_all_single")]
)


def apply_checkpointing(model: nn.Module, memory: MemoryConfig) -> None:
    """Give each layer of a model a `forward` that checkpoints; names of parameters stay, and so does what is hooked on
    the module. Before compile and `fully_shard`."""
    if memory.checkpointing in ("none", "budget"):  # a budget is the compiler's
        return
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # dropout needs none
    if memory.checkpointing == "selective":
        options["context_fn"] = _selective
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.forward = _checkpointed(layer.forward, options)  # type: ignore[method-assign]


def _checkpointed(whole: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    from torch.utils.checkpoint import checkpoint

    def forward(*inputs: Any) -> Any:
        return checkpoint(whole, *inputs, **options)

    return forward


def _selective() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]


def _policy(_context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    name = operation.name().split(".")[0]
    return CheckpointPolicy.MUST_SAVE if name in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def offloaded(memory: MemoryConfig, device: torch.device) -> AbstractContextManager[Any]:
    """Around a forward pass: what is kept for the backward pass waits in the host's memory, if it is to."""
    if memory.offload != "activations":
        return nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=device.type == "cuda")
