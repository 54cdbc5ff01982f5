"""Expert parallelism (Lepikhin et al. 2021): each process has E / n experts, and tokens travel to them and back."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


class Exchange:
    """Between the n processes of `group`, of which process i has the experts from i E / n on."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.size = group, dist.get_world_size(group)

    def __call__(self, compute: Callable[[Tensor, Tensor], Tensor], x: Tensor, load: Tensor) -> Tensor:
        """`compute(x, load)` as if all experts were here: x [N, C], of which the first `load[0]` rows are for expert 0,
        and so on; load int64 [E]. It waits for the device: the sizes of what is sent must be known."""
        from torch.distributed._functional_collectives import all_to_all_single_autograd, wait_tensor

        sent = load.view(self.size, -1)
        arriving = torch.empty_like(sent)
        dist.all_to_all_single(arriving, sent.contiguous(), group=self.group)
        there, here = sent.sum(1).tolist(), arriving.sum(1).tolist()
        got = wait_tensor(all_to_all_single_autograd(x, here, there, self.group))
        # Rows come process by process and, within, expert by expert; an expert wants all of its rows together.
        experts = arriving.shape[1]
        number = torch.arange(experts, device=x.device).repeat(self.size)
        order = number.repeat_interleave(arriving.flatten()).argsort(stable=True)
        made = compute(got[order], arriving.sum(0))[order.argsort()]
        back: Tensor = wait_tensor(all_to_all_single_autograd(made.contiguous(), there, here, self.group))
        return back
