"""Collectives that torch.compile traces, begun and not waited for; imported only where there are several processes.

PyTorch's module is private: the public collectives write in place, along dimension 0 alone, and break the compiled graph of a layer.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor


def functional() -> Any:
    """The module."""
    import torch.distributed._functional_collectives as module

    return module


def gathering(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The tensors of all processes, one behind the other along dimension 0."""
    module = functional()
    # The second name is that before PyTorch 2.13.
    gather = getattr(module, "all_gather_single", None) or module.all_gather_tensor
    found: Tensor = gather(x.contiguous(), 0, group)  # gloo sends the memory as it lies
    return found


def scattering(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This process's part, along a dimension, of the sum over all."""
    module = functional()
    scatter = getattr(module, "reduce_scatter_single", None) or module.reduce_scatter_tensor
    found: Tensor = scatter(x.contiguous(), "sum", dim, group)
    return found
